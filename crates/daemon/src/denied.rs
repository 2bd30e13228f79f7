//! What a caller is told when there is no execution: our "no", or our failure, and when to try again.

use std::time::Duration;

use stockade_proto::link::NotRun;
use stockade_proto::{Code, Fault, Refusal};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub why: NotRun,
    pub retry_after: Option<Duration>,
    /// Of a write: so many bytes were taken before.
    pub written: Option<usize>,
}

impl Denied {
    pub fn refuse(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: NotRun::Refusal(Refusal::new(code, message, remedy)), retry_after: None, written: None }
    }

    pub fn fault(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: NotRun::Fault(Fault::new(code, message, remedy)), retry_after: None, written: None }
    }

    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The same answer for one that is not there and one that is somebody else's.
    pub fn unknown() -> Self {
        Self::refuse(
            Code::ExecutionUnknown,
            "no execution of that id is on record for you",
            "Check the id; `stockade ps` lists yours. Old ones are removed by the retention settings.",
        )
    }

    pub fn stopping() -> Self {
        Self::refuse(Code::Draining, "the service is stopping", "Try again when it is back.")
            .after(Duration::from_secs(5))
    }

    pub fn code(&self) -> Code {
        match &self.why {
            NotRun::Refusal(refusal) => refusal.code,
            NotRun::Fault(fault) => fault.code,
        }
    }

    pub fn message(&self) -> &str {
        match &self.why {
            NotRun::Refusal(refusal) => &refusal.message,
            NotRun::Fault(fault) => &fault.message,
        }
    }

    pub fn remedy(&self) -> &str {
        match &self.why {
            NotRun::Refusal(refusal) => &refusal.remedy,
            NotRun::Fault(fault) => &fault.remedy,
        }
    }
}

impl From<NotRun> for Denied {
    fn from(why: NotRun) -> Self {
        Self { why, retry_after: None, written: None }
    }
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        NotRun::Refusal(refusal).into()
    }
}
