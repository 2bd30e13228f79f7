//! An execution whose client waits for it: when the client goes, so does the command (HTTP-5).

use std::sync::Arc;

use stockade_proto::Cancel;
use tokio::runtime::Handle;
use tracing::{info, warn};

use crate::core::Core;
use crate::execution::{Execution, Phase};

/// Dropped before the execution has ended, it ends it.
#[derive(Debug)]
pub struct Attached {
    core: Arc<Core>,
    pub execution: Arc<Execution>,
}

impl Attached {
    pub(crate) fn new(core: &Arc<Core>, execution: Arc<Execution>) -> Self {
        Self { core: Arc::clone(core), execution }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Phase::Ended(_) = self.execution.phase() {
            return;
        }
        // Where the runtime is going away, the executor goes with it.
        let Ok(runtime) = Handle::try_current() else { return };
        let (core, execution) = (Arc::clone(&self.core), Arc::clone(&self.execution));
        runtime.spawn(async move {
            let id = execution.id;
            info!(execution = %id, "the client left, its command is stopped");
            if let Err(denied) = core.cancel(&execution, Cancel::Hangup).await {
                warn!(execution = %id, "a command whose client left runs on: {}", denied.message());
            }
        });
    }
}
