//! The one place that tells what becomes of executions to all who count or follow it: metrics and events. None of them
//! makes an execution wait.

use crate::core::Core;
use crate::ending::Ending;
use crate::execution::Execution;

/// Its sandbox is being built.
pub(crate) fn started(core: &Core, execution: &Execution) {
    core.metrics.spawned(execution.dispatched.elapsed());
    core.events.started(execution);
}

pub(crate) fn ended(core: &Core, execution: &Execution, ending: &Ending) {
    core.metrics.ended(ending, execution.dispatched.elapsed());
    core.events.ended(execution, ending);
}
