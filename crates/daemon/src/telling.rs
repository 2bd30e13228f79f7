//! The one place that tells what becomes of executions to all who count, follow or draw it: metrics, events, spans.
//! None of them makes an execution wait.

use std::time::Instant;

use crate::core::Core;
use crate::ending::Ending;
use crate::execution::Execution;
use crate::telemetry::{About, Times};

/// How it ended, and when the executor said so; it is on record since.
pub(crate) struct Ended<'e> {
    pub(crate) ending: &'e Ending,
    pub(crate) over: Instant,
}

/// Its sandbox is being built.
pub(crate) fn started(core: &Core, execution: &Execution) {
    if let Some(started) = execution.started() {
        core.metrics.spawned(started.saturating_duration_since(execution.dispatched));
    }
    core.events.started(execution);
}

pub(crate) fn ended(core: &Core, about: Option<About>, execution: &Execution, ended: &Ended<'_>) {
    core.metrics.ended(ended.ending, execution.dispatched.elapsed());
    core.events.ended(execution, ended.ending);
    if let Some(about) = about {
        let times =
            Times { dispatched: execution.dispatched, started: execution.started(), over: ended.over };
        core.telemetry.ended(about, times, ended.ending);
    }
}
