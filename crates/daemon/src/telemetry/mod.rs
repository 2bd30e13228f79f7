//! Spans of executions, for an OpenTelemetry collector. Nobody waits for it: what has ended is put into a queue with a
//! bound, and one task sends what is there. What does not fit, or what no collector takes in its time, is counted and
//! forgotten. Without a collector there is no queue and no task. Next: `span`, then `client`.
//!
//! The SDK's own batch processor is not used: it has a thread of its own, and says to nobody what it dropped.

mod client;
mod span;

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::config::Collector;
use crate::ending::Ending;
use crate::pipeline::Order;
use client::Client;
pub(crate) use span::{About, Times};
use span::{Ended, SPANS};

/// Executions that have ended and are not sent yet: some seconds of a service at its fastest, and about a megabyte.
const QUEUE: usize = 2048;
/// Executions in one message: what making it costs nobody else on the thread is to feel.
const BATCH: usize = 64;
/// How long the first one waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// For a collector to take one message.
const EXPORT: Duration = Duration::from_secs(5);
/// For all that is left when the service stops.
const LAST: Duration = Duration::from_secs(2);
/// Between two lines in the log about a collector that takes nothing.
const SAY_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Telemetry {
    sending: RwLock<Option<Sending>>,
    dropped: Counter,
}

#[derive(Debug)]
struct Sending {
    queue: mpsc::Sender<Ended>,
    /// Ends when the queue is closed and empty.
    task: JoinHandle<()>,
}

impl Telemetry {
    /// `dropped` counts spans that nobody gets. Within the runtime.
    pub fn start(collector: Option<&Collector>, dropped: Counter) -> Result<Self, ExporterBuildError> {
        let telemetry = Self { sending: RwLock::default(), dropped };
        telemetry.follow(collector)?;
        Ok(telemetry)
    }

    /// Sends there from now on; what was for another is sent there still.
    pub(crate) fn follow(&self, collector: Option<&Collector>) -> Result<(), ExporterBuildError> {
        let next = collector.map(|collector| self.sending_to(collector)).transpose()?;
        *self.sending.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn sending_to(&self, collector: &Collector) -> Result<Sending, ExporterBuildError> {
        let exporter = exporter(collector)?;
        let (queue, ended) = mpsc::channel(QUEUE);
        info!("spans go to {}", collector.endpoint);
        let task = tokio::spawn(send(exporter, ended, self.dropped.clone()));
        Ok(Sending { queue, task })
    }

    /// What its span says that is known before it runs; `None` where there are no spans.
    pub(crate) fn about(&self, order: &Order) -> Option<About> {
        let on = self.sending.read().unwrap_or_else(PoisonError::into_inner).is_some();
        on.then(|| About::new(order))
    }

    pub(crate) fn ended(&self, about: About, times: Times, ending: &Ending) {
        self.put(Ended::new(about, times, ending));
    }

    fn put(&self, ended: Ended) {
        let sending = self.sending.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sending) = &*sending else { return };
        if let Err(refused) = sending.queue.try_send(ended) {
            self.dropped.inc_by(spans(&[refused.into_inner()]));
        }
    }

    /// Sends what is left, for a moment.
    pub(crate) async fn finish(&self) {
        let sending = self.sending.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Sending { queue, mut task }) = sending else { return };
        drop(queue);
        if timeout(LAST, &mut task).await.is_err() {
            task.abort();
            warn!("the last spans are not sent: the collector takes too long");
        }
    }
}

fn exporter(collector: &Collector) -> Result<SpanExporter, ExporterBuildError> {
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Client::new(collector.addresses.clone()))
        .with_endpoint(collector.endpoint.clone())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORT)
        // Between two tries it would put the thread to sleep, and this service has only one.
        .with_retry_policy(RetryPolicy::disabled())
        .build()?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder_empty()
        .with_attributes([KeyValue::new("service.name", collector.service_name.clone()), version]);
    exporter.set_resource(&resource.build());
    Ok(exporter)
}

fn spans(ended: &[Ended]) -> u64 {
    ended.iter().map(Ended::spans).sum()
}

async fn send(exporter: SpanExporter, mut queue: mpsc::Receiver<Ended>, dropped: Counter) {
    let mut trouble = Trouble::default();
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        gather(&mut queue, &mut batch).await;
        let lost = spans(&batch);
        let mut message = Vec::with_capacity(batch.len() * SPANS);
        batch.drain(..).for_each(|ended| ended.draw(&mut message));
        let why = match timeout(EXPORT, exporter.export(message)).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {EXPORT:?}"),
        };
        dropped.inc_by(lost);
        trouble.with(&why, lost);
    }
}

/// Until there are enough for one message, or time is up, or no more will come.
async fn gather(queue: &mut mpsc::Receiver<Ended>, batch: &mut Vec<Ended>) {
    let until = Instant::now() + GATHER;
    while batch.len() < BATCH {
        match timeout_at(until, queue.recv_many(batch, BATCH - batch.len())).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// What is said about a collector that takes nothing: at once, and then once in a while, with what was lost meanwhile.
#[derive(Debug, Default)]
struct Trouble {
    said: Option<Instant>,
    unsaid: u64,
}

impl Trouble {
    fn with(&mut self, why: &str, lost: u64) {
        self.unsaid = self.unsaid.saturating_add(lost);
        if self.said.is_some_and(|said| said.elapsed() < SAY_AGAIN) {
            return;
        }
        warn!(spans = self.unsaid, "the collector took no spans: {why}");
        *self = Self { said: Some(Instant::now()), unsaid: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_fit_is_counted() {
        let address = "127.0.0.1:1".parse().unwrap();
        let collector = Collector {
            addresses: vec![address],
            endpoint: format!("http://{address}/v1/traces"),
            service_name: "stockade".to_owned(),
        };
        let telemetry = Telemetry::start(Some(&collector), Counter::default()).unwrap();
        // Nothing else runs meanwhile: the queue only fills.
        for _ in 0..QUEUE {
            telemetry.put(span::tests::refused(true));
        }
        assert_eq!(telemetry.dropped.get(), 0);
        telemetry.put(span::tests::refused(true));
        telemetry.put(span::tests::refused(false));
        assert_eq!(telemetry.dropped.get(), 6);
        telemetry.follow(None).unwrap();
        telemetry.put(span::tests::refused(true));
        assert_eq!(telemetry.dropped.get(), 6, "nobody wants it");
    }
}
