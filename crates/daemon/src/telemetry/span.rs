//! What one execution's spans say: who, when, for how long and how it ended. Never the command, its variables, its
//! output, or a message that may quote one of them.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use stockade_proto::Usage;
use stockade_store::ExecutionId;

use crate::ending::{Ending, Failure};
use crate::pipeline::{Door, Order};

/// Of one execution, at most.
pub(super) const SPANS: usize = 4;

/// What is known before it runs.
#[derive(Debug)]
pub(crate) struct About {
    id: ExecutionId,
    door: Door,
    principal: String,
    profile: String,
    asked: Instant,
    waited: Duration,
}

impl About {
    pub(super) fn new(order: &Order) -> Self {
        Self {
            id: order.id,
            door: order.door,
            principal: order.principal.clone(),
            profile: order.request.profile.clone(),
            asked: order.asked,
            waited: order.waited,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) dispatched: Instant,
    /// `None` if no sandbox was built.
    pub(crate) started: Option<Instant>,
    /// The executor's word.
    pub(crate) over: Instant,
}

/// An execution that has ended, as small as it can be kept.
#[derive(Debug)]
pub(super) struct Ended {
    about: About,
    times: Times,
    /// When it was on record, on both clocks: all other times are counted back from here, so that a clock that is set
    /// meanwhile turns no span around.
    now: (Instant, SystemTime),
    outcome: &'static str,
    failure: Option<Failure>,
    ran: Option<Ran>,
}

#[derive(Debug)]
struct Ran {
    exit_code: u8,
    stdout: u64,
    stderr: u64,
    usage: Usage,
}

impl Ended {
    pub(super) fn new(about: About, times: Times, ending: &Ending) -> Self {
        let ran = ending.result().map(|result| Ran {
            exit_code: result.exit_code,
            stdout: result.stdout.bytes,
            stderr: result.stderr.bytes,
            usage: result.usage,
        });
        let now = (Instant::now(), SystemTime::now());
        Self { about, times, now, outcome: ending.word(), failure: ending.failure(), ran }
    }

    pub(super) fn spans(&self) -> u64 {
        if self.times.started.is_some() { 4 } else { 2 }
    }

    /// The execution's own span, and below it those of its parts.
    pub(super) fn draw(self, message: &mut Vec<SpanData>) {
        let Times { dispatched, started, over } = self.times;
        let asked = self.about.asked;
        let part = |nth, name, from: Instant, to: Instant| SpanData {
            parent_span_id: self.span_id(0),
            ..self.span(nth, name, from, to)
        };
        message.push(part(1, "queue", asked, asked + self.about.waited));
        if let Some(started) = started {
            message.push(part(2, "spawn", dispatched, started));
            message.push(part(3, "run", started, over));
        }
        let status = match self.failure {
            Some(failure) => Status::error(failure.code),
            None => Status::Unset,
        };
        let whole = self.span(0, "execution", asked, self.now.0);
        message.push(SpanData { attributes: self.attributes(), status, ..whole });
    }

    fn span(&self, nth: u64, name: &'static str, from: Instant, to: Instant) -> SpanData {
        // Whoever has the id of an execution has its trace's: the same without dashes.
        let trace = TraceId::from_bytes(*self.about.id.as_bytes());
        let sampled = TraceFlags::SAMPLED;
        SpanData {
            span_context: SpanContext::new(trace, self.span_id(nth), sampled, false, TraceState::NONE),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: if nth == 0 { SpanKind::Server } else { SpanKind::Internal },
            name: name.into(),
            start_time: self.at(from),
            end_time: self.at(to),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("stockade").build(),
        }
    }

    /// Spans of one trace need to differ, and of no other. Never zero: a bit of the id's second half is always set.
    fn span_id(&self, nth: u64) -> SpanId {
        let mut half = [0; 8];
        half.copy_from_slice(&self.about.id.as_bytes()[8..]);
        SpanId::from(u64::from_be_bytes(half) ^ nth)
    }

    fn at(&self, moment: Instant) -> SystemTime {
        let (now, clock) = self.now;
        clock.checked_sub(now.saturating_duration_since(moment)).unwrap_or(clock)
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let about = &self.about;
        let mut attributes = vec![
            KeyValue::new("stockade.execution.id", about.id.to_string()),
            KeyValue::new("stockade.door", about.door.name()),
            KeyValue::new("stockade.principal", about.principal.clone()),
            KeyValue::new("stockade.profile", about.profile.clone()),
            KeyValue::new("stockade.outcome", self.outcome),
            KeyValue::new("stockade.queue_ms", millis(about.waited)),
        ];
        if let Some(started) = self.times.started {
            let spawn = started.saturating_duration_since(self.times.dispatched);
            attributes.push(KeyValue::new("stockade.spawn_ms", millis(spawn)));
        }
        if let Some(failure) = self.failure {
            attributes.push(KeyValue::new("stockade.failure.code", failure.code));
            attributes.push(KeyValue::new("stockade.failure.class", failure.class));
            // By this name the field's own tools look for it.
            attributes.push(KeyValue::new("error.type", failure.class));
        }
        if let Some(ran) = &self.ran {
            attributes.extend([
                KeyValue::new("process.exit.code", i64::from(ran.exit_code)),
                KeyValue::new("stockade.stdout_bytes", whole(ran.stdout)),
                KeyValue::new("stockade.stderr_bytes", whole(ran.stderr)),
                KeyValue::new("stockade.wall_ms", whole(ran.usage.wall_ms)),
                KeyValue::new("stockade.cpu_user_ms", whole(ran.usage.cpu_user_ms)),
                KeyValue::new("stockade.cpu_system_ms", whole(ran.usage.cpu_system_ms)),
                KeyValue::new("stockade.memory_peak_bytes", whole(ran.usage.memory_peak_bytes)),
            ]);
        }
        attributes
    }
}

/// The protocol has signed numbers only.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
pub(super) mod tests {
    use stockade_proto::link::NotRun;
    use stockade_proto::{Code, Refusal};

    use super::*;

    /// One that was refused, with a message that quotes the command.
    pub(in crate::telemetry) fn refused(started: bool) -> Ended {
        let asked = Instant::now();
        let about = About {
            id: ExecutionId::new(),
            door: Door::V1,
            principal: "ana".to_owned(),
            profile: "build".to_owned(),
            asked,
            waited: Duration::from_millis(5),
        };
        let times = Times { dispatched: asked, started: started.then_some(asked), over: asked };
        let refusal = Refusal::new(Code::NotPermitted, "there is no walrus-7715", "Name another.");
        Ended::new(about, times, &Ending::NotRun(NotRun::Refusal(refusal)))
    }

    #[test]
    fn spans_are_one_tree_and_quote_nothing() {
        for (started, names) in
            [(true, ["queue", "spawn", "run", "execution"].as_slice()), (false, &["queue", "execution"])]
        {
            let (ended, mut spans) = (refused(started), Vec::new());
            let (id, count) = (ended.about.id, ended.spans());
            ended.draw(&mut spans);
            assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), names);
            assert_eq!(count, spans.len() as u64);
            assert!(!format!("{spans:?}").contains("walrus"));
            let (root, parts) = spans.split_last().unwrap();
            assert_eq!(root.parent_span_id, SpanId::INVALID);
            assert_eq!(root.status, Status::error("UZ-EXEC-001"));
            for span in &spans {
                let context = &span.span_context;
                assert_eq!(context.trace_id().to_string(), id.to_string().replace('-', ""));
                assert!(context.is_valid() && span.start_time <= span.end_time);
            }
            for part in parts {
                assert_eq!(part.parent_span_id, root.span_context.span_id());
                assert!(spans.iter().filter(|span| span.span_context == part.span_context).count() == 1);
            }
        }
    }
}
