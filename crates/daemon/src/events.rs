//! What happens to executions, told to whoever subscribed. Telling never waits: a subscriber that does not keep up
//! loses its place, not the execution its time.

use serde::Serialize;
use stockade_store::ExecutionId;
use tokio::sync::broadcast;

use crate::ending::{Ending, Failure};
use crate::execution::Execution;

/// Events that one subscriber may be behind.
const BEHIND: usize = 1024;

/// One change of one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Change {
    Started {
        execution: ExecutionId,
        principal: String,
    },
    Ended {
        execution: ExecutionId,
        principal: String,
        outcome: &'static str,
        exit_code: Option<u8>,
        failure: Option<Failure>,
    },
}

impl Change {
    pub fn principal(&self) -> &str {
        match self {
            Self::Started { principal, .. } | Self::Ended { principal, .. } => principal,
        }
    }
}

#[derive(Debug)]
pub struct Events {
    sender: broadcast::Sender<Change>,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND) }
    }
}

impl Events {
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.sender.subscribe()
    }

    pub(crate) fn started(&self, execution: &Execution) {
        self.tell(Change::Started { execution: execution.id, principal: execution.principal.clone() });
    }

    pub(crate) fn ended(&self, execution: &Execution, ending: &Ending) {
        self.tell(Change::Ended {
            execution: execution.id,
            principal: execution.principal.clone(),
            outcome: ending.word(),
            exit_code: ending.result().map(|result| result.exit_code),
            failure: ending.failure(),
        });
    }

    fn tell(&self, change: Change) {
        match self.sender.send(change) {
            // An error: nobody listens.
            Ok(_) | Err(_) => {}
        }
    }
}
