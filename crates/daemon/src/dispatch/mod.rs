//! The executor: one process, started by us, restarted when it dies, reached over the socketpair that it was born
//! with. An execution is one call on that link; a link that breaks has lost what it carried. Next: the executor.

mod donate;
mod process;
mod wire;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use stockade_proto::Code;
use stockade_proto::link::{self, Ended, Execute, Greeting, NotRun, Shutdown, Stop, Write, method};
use stockade_rpc::{Asked, CallError, Peer};
use tokio::sync::{Semaphore, watch};
use tracing::{error, warn};

use crate::denied::Denied;
use donate::Donations;
pub use process::Terms;
pub(crate) use process::keep;

/// For an executor that is being started again.
const WAIT_FOR_EXECUTOR: Duration = Duration::from_secs(5);
/// For short questions.
const ANSWER: Duration = Duration::from_secs(10);
/// Longer than the executor waits itself for a command that does not read.
const WRITE_ANSWER: Duration = Duration::from_secs(40);

/// Writes that wait for commands to read. Far fewer than calls may wait on the link: a stop always finds room there.
const WRITES: usize = 128;
/// From a link that is over to an executor that is.
const GONE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Dispatch {
    link: watch::Receiver<Option<Link>>,
    writes: Arc<Semaphore>,
}

/// An executor that has said hello.
#[derive(Debug, Clone)]
pub struct Link {
    peer: Peer,
    donations: Arc<Donations>,
    /// Set when its process has ended.
    gone: watch::Receiver<bool>,
    pub greeting: Arc<Greeting>,
}

fn lost(what: &str) -> Denied {
    Denied::fault(
        Code::ExecutorLost,
        what,
        "It is started again by itself; what ran is over. Try again, and see the service's log.",
    )
    .after(Duration::from_secs(1))
}

fn busy(what: &str) -> Denied {
    Denied::refuse(Code::TooBusy, what, "Try again in a moment.").after(Duration::from_secs(1))
}

impl Dispatch {
    pub(crate) fn new(link: watch::Receiver<Option<Link>>) -> Self {
        Self { link, writes: Arc::new(Semaphore::new(WRITES)) }
    }

    /// The executor that is there now, if one is.
    pub fn link(&self) -> Option<Link> {
        self.link.borrow().clone()
    }

    /// The one that is there, or comes within that time.
    pub(crate) async fn await_executor(&self, within: Duration) -> Option<Link> {
        let mut link = self.link.clone();
        let there = tokio::time::timeout(within, link.wait_for(Option::is_some)).await;
        there.ok().and_then(Result::ok).and_then(|there| there.clone())
    }

    async fn executor(&self) -> Result<Link, Denied> {
        self.await_executor(WAIT_FOR_EXECUTOR).await.ok_or_else(|| lost("there is no executor"))
    }

    /// The executor plans, and waits.
    pub async fn order(&self, execute: &Execute) -> Result<Ordered, Denied> {
        let link = self.executor().await?;
        let asked = link.peer.ask(method::EXECUTE, execute).await.map_err(not_run)?;
        Ok(Ordered { link, execution: execute.execution.clone(), asked })
    }

    /// One that has ended meanwhile needs no stop.
    pub async fn stop(&self, stop: Stop) -> Result<(), Denied> {
        match self.ask(method::STOP, &stop, ANSWER).await {
            Err(CallError::Answered(error)) if error.code == link::error::UNKNOWN_EXECUTION => Ok(()),
            other => other.map_err(not_run),
        }
    }

    pub async fn write(&self, write: Write) -> Result<(), Denied> {
        let Ok(_place) = self.writes.try_acquire() else {
            return Err(busy("too many writes wait for commands to read"));
        };
        let remedy = "Start it with stdin, write while it runs, and close it once.";
        match self.ask(method::WRITE, &write, WRITE_ANSWER).await {
            Err(CallError::Answered(error)) if error.code != stockade_rpc::BUSY => {
                Err(Denied::refuse(Code::ExecutionEnded, error.message, remedy))
            }
            Err(CallError::Answered(error)) => {
                let written = error.data.as_ref().and_then(|data| data.get("written")?.as_u64());
                let written = written.and_then(|written| usize::try_from(written).ok());
                Err(Denied { written, ..busy(&error.message) })
            }
            other => other.map_err(not_run),
        }
    }

    /// Ends the executor and all that runs.
    pub async fn shutdown(&self, within: Duration) {
        let timeout_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let asked = self.ask(method::SHUTDOWN, &Shutdown { timeout_ms }, within + ANSWER).await;
        match asked {
            // Whatever it answers, the link is closed next, and it ends with that.
            Ok(()) | Err(_) => {}
        }
    }

    async fn ask<P: Serialize + Sync>(
        &self,
        method: &str,
        params: &P,
        within: Duration,
    ) -> Result<(), CallError> {
        let link = self.link().ok_or(CallError::Closed)?;
        link.peer.call(method, params, within).await.map(drop)
    }
}

/// An order that an executor has, and does nothing about until it has the file for the output.
#[derive(Debug)]
#[must_use]
pub struct Ordered {
    link: Link,
    execution: String,
    asked: Asked,
}

impl Ordered {
    /// Nothing can become of it: that executor is gone.
    pub fn is_lost(&self) -> bool {
        self.link.peer.is_closed()
    }

    /// Lasts as long as the execution. `output` is handed over; whatever it writes goes there.
    pub async fn execute(self, output: File) -> Result<Ended, Denied> {
        let Self { link, execution, asked } = self;
        let handed = link.donations.send(&execution, Some(OwnedFd::from(output))).await;
        handed.map_err(|_| lost("the executor can't be reached"))?;
        let answer = match asked.answer().await {
            Ok(answer) => answer,
            Err(CallError::Closed) => {
                // Only then is the tree gone, and only then does nobody write to the output any more.
                let mut gone = link.gone.clone();
                drop(tokio::time::timeout(GONE, gone.wait_for(|gone| *gone)).await);
                return Err(not_run(CallError::Closed));
            }
            Err(other) => return Err(not_run(other)),
        };
        serde_json::from_str(answer.get()).map_err(|reason| {
            error!(execution, "the executor's answer can't be read: {reason}");
            lost("the executor's answer can't be read")
        })
    }

    /// Nothing is to become of it.
    pub async fn withdraw(self) {
        if let Err(error) = self.link.donations.send(&self.execution, None).await {
            warn!(execution = self.execution, "the executor keeps an order that is not on record: {error}");
        }
    }
}

fn not_run(error: CallError) -> Denied {
    match error {
        CallError::Answered(answer) if answer.code == link::error::NOT_RUN => {
            let why = answer.data.map(serde_json::from_value::<NotRun>);
            match why {
                Some(Ok(why)) => why.into(),
                Some(Err(_)) | None => lost("the executor's answer can't be read"),
            }
        }
        CallError::Answered(answer) if answer.code == stockade_rpc::BUSY => {
            busy("the executor has too much in hand")
        }
        CallError::Answered(answer) => {
            error!("the executor answered: {answer}");
            lost("the executor did not take the order")
        }
        CallError::Closed => lost("the executor died while this ran"),
        CallError::TimedOut { .. } => lost("the executor does not answer"),
        CallError::TooMany { .. } => busy("the executor has too much in hand"),
        CallError::TooLong { length, limit } => Denied::refuse(
            Code::RequestInvalid,
            format!("the request is {length} bytes long, and {limit} is the most"),
            "Shorten the command or its environment.",
        ),
        CallError::NotJson => lost("the order can't be written"),
    }
}
