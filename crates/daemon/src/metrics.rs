//! What is counted, as Prometheus reads it.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::admission::Load;
use crate::ending::Ending;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    door: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LayerLabel {
    layer: String,
}

pub struct Metrics {
    registry: Registry,
    outcomes: Family<OutcomeLabel, Counter>,
    denials: Family<LayerLabel, Counter>,
    refusals: Family<RefusalLabel, Counter>,
    spawn: Histogram,
    queued: Histogram,
    duration: Histogram,
    output_bytes: Counter,
    output_sizes: Histogram,
    executor_restarts: Counter,
    /// Whoever sends spans counts here.
    pub(crate) spans_dropped: Counter,
    running: Gauge,
    waiting: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// From 0.5 ms up, doubling: 16 s with 16, nine hours with 26.
fn seconds(buckets: u16) -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, buckets))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("stockade");
        let metrics = Self {
            outcomes: Family::default(),
            denials: Family::default(),
            refusals: Family::default(),
            spawn: seconds(16),
            queued: seconds(16),
            duration: seconds(26),
            output_bytes: Counter::default(),
            // From 64 bytes up, times four: 1 GiB with 13.
            output_sizes: Histogram::new(exponential_buckets(64.0, 4.0, 13)),
            executor_restarts: Counter::default(),
            spans_dropped: Counter::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("executions", "Executions by how they ended", metrics.outcomes.clone());
        registry.register("denials", "What the live walls refused, by layer", metrics.denials.clone());
        registry.register(
            "refusals",
            "Requests that were refused before they were executions, by door and code",
            metrics.refusals.clone(),
        );
        registry.register(
            "spawn_seconds",
            "From the executor's order to the sandbox being built",
            metrics.spawn.clone(),
        );
        registry.register(
            "queue_seconds",
            "From the request to a free place, or to being turned away",
            metrics.queued.clone(),
        );
        registry.register("duration_seconds", "From dispatch to the end on record", metrics.duration.clone());
        registry.register("output_bytes", "Bytes that commands wrote", metrics.output_bytes.clone());
        registry.register(
            "execution_output_bytes",
            "Bytes that each execution wrote",
            metrics.output_sizes.clone(),
        );
        registry.register(
            "executor_restarts",
            "Times that the executor had to be started again",
            metrics.executor_restarts.clone(),
        );
        registry.register(
            "spans_dropped",
            "Spans of executions that no collector took",
            metrics.spans_dropped.clone(),
        );
        registry.register("running", "Executions that run", metrics.running.clone());
        registry.register("waiting", "Requests that wait for a place", metrics.waiting.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    pub(crate) fn waited(&self, time: Duration) {
        self.queued.observe(time.as_secs_f64());
    }

    pub(crate) fn refused(&self, door: &'static str, code: &'static str) {
        self.refusals.get_or_create(&RefusalLabel { door, code }).inc();
    }

    pub(crate) fn spawned(&self, time: Duration) {
        self.spawn.observe(time.as_secs_f64());
    }

    pub(crate) fn restarted(&self) {
        self.executor_restarts.inc();
    }

    pub(crate) fn ended(&self, ending: &Ending, time: Duration) {
        self.outcomes.get_or_create(&OutcomeLabel { outcome: ending.word() }).inc();
        self.duration.observe(time.as_secs_f64());
        let Some(result) = ending.result() else { return };
        let written = result.stdout.bytes.saturating_add(result.stderr.bytes);
        self.output_bytes.inc_by(written);
        self.output_sizes.observe(written as f64);
        for blocked in &result.blocked {
            let layer = blocked.layer.map_or_else(|| "several".to_owned(), |layer| layer.to_string());
            self.denials.get_or_create(&LayerLabel { layer }).inc_by(blocked.count);
        }
    }

    pub fn text(&self, load: Load) -> String {
        self.running.set(i64::try_from(load.running).unwrap_or(i64::MAX));
        self.waiting.set(i64::try_from(load.waiting).unwrap_or(i64::MAX));
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            // Writing to a string does not fail.
            Ok(()) | Err(_) => text,
        }
    }
}
