//! Our own words, as clean as the command's: a result and a refusal may quote the command.

use stockade_proto::{Bytes, ExecutionResult, Outcome};
use stockade_redact::Redactor;

use crate::Abort;

pub fn text(redactor: &Redactor, text: &str) -> String {
    String::from_utf8_lossy(&redactor.redact(text.as_bytes())).into_owned()
}

/// The command as the report quotes it.
pub fn command(redactor: &Redactor, result: &mut ExecutionResult) {
    for argument in &mut result.command {
        *argument = Bytes::from(redactor.redact(argument.as_slice()).into_owned());
    }
}

/// All of it but the command.
pub fn result(redactor: &Redactor, mut result: ExecutionResult) -> ExecutionResult {
    match &mut result.outcome {
        Outcome::LaunchFailed { message, .. } | Outcome::Lost { message } => {
            *message = text(redactor, message);
        }
        Outcome::Exited { .. }
        | Outcome::Signaled { .. }
        | Outcome::TimedOut
        | Outcome::Cancelled { .. }
        | Outcome::OomKilled
        | Outcome::Limit { .. } => {}
    }
    for fault in &mut result.cleanup_faults {
        *fault = text(redactor, fault);
    }
    for blocked in &mut result.blocked {
        blocked.target = Bytes::from(redactor.redact(blocked.target.as_slice()).into_owned());
        for words in [&mut blocked.reason, &mut blocked.guidance] {
            *words = text(redactor, words);
        }
    }
    for traffic in &mut result.traffic {
        traffic.host = text(redactor, &traffic.host);
    }
    for unreached in &mut result.unreached {
        for words in [&mut unreached.host, &mut unreached.reason] {
            *words = text(redactor, words);
        }
    }
    result
}

pub fn abort(redactor: &Redactor, abort: Abort) -> Abort {
    match abort {
        Abort::Refusal(mut refusal) => {
            refusal.message = text(redactor, &refusal.message);
            Abort::Refusal(refusal)
        }
        Abort::Fault(mut fault) => {
            fault.message = text(redactor, &fault.message);
            Abort::Fault(fault)
        }
        // Quotes a profile, which holds no value of the command line.
        Abort::Profile(error) => Abort::Profile(error),
    }
}
