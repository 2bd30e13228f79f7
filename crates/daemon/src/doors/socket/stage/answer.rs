//! A stage's one answer: its result, or an error whose data has the code and class that stage workers know, and
//! whatever was written until then.

use std::time::Duration;

use serde_json::Value;
use stockade_proto::door::{StageFailure, StageOutput, StageResult, error};
use stockade_proto::{Cancel, ExecutionResult, Outcome, Usage};
use stockade_rpc::Error;
use stockade_store::ExecutionId;

use crate::denied::Denied;
use crate::doors::socket::errors;
use crate::doors::words;
use crate::ending::{EXECUTOR_LOST, Ending, Failure, PAYLOAD_INVALID};

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) stage_id: String,
    pub(super) execution: ExecutionId,
    pub(super) output: StageOutput,
    /// Of stdout and stderr, in progress.
    pub(super) told_bytes: u64,
}

/// What a person reads about a failure.
struct Said {
    error: String,
    remedy: String,
}

impl Answer {
    /// Without an ending it was lost with an earlier daemon.
    pub(super) fn of(self, ending: Option<&Ending>) -> Result<Value, Error> {
        match ending {
            Some(Ending::Result(result)) => match ending.and_then(Ending::failure) {
                None => errors::answer(&self.result(result)),
                Some(failure) => Err(self.failed(failure, result)),
            },
            Some(Ending::NotRun(why)) => {
                let denied = Denied::from(why.clone());
                let output = self.output;
                Err(not_run(&denied, Some(self.stage_id), Some(self.execution.to_string()), output))
            }
            None => Err(self.lost()),
        }
    }

    fn result(self, result: &ExecutionResult) -> StageResult {
        let written = result.stdout.bytes.saturating_add(result.stderr.bytes);
        StageResult {
            stage_id: self.stage_id,
            execution: Some(self.execution.to_string()),
            output: self.output,
            exit_ok: result.outcome == Outcome::Exited { code: 0 },
            exit_code: result.exit_code,
            outcome: result.outcome.clone(),
            token_count: 0,
            wall_seconds: Duration::from_millis(result.usage.wall_ms).as_secs_f64(),
            memory_peak_bytes: result.usage.memory_peak_bytes,
            cpu_throttled_ms: 0,
            blocked: result.blocked.clone(),
            usage: result.usage,
            enforcement: result.enforcement.clone(),
            progress_dropped_bytes: written.saturating_sub(self.told_bytes),
        }
    }

    fn failed(self, failure: Failure, result: &ExecutionResult) -> Error {
        let Said { error: sentence, remedy } = said(&result.outcome);
        let number = if failure == EXECUTOR_LOST { error::EXECUTOR_LOST } else { error::STAGE_FAILED };
        let data = StageFailure {
            outcome: Some(result.outcome.clone()),
            exit_code: Some(result.exit_code),
            usage: Some(result.usage),
            blocked: result.blocked.clone(),
            enforcement: result.enforcement.clone(),
            stage_id: Some(self.stage_id),
            execution: Some(self.execution.to_string()),
            output: self.output,
            ..bare(failure, &sentence, remedy)
        };
        errors::with(Error::new(number, sentence), &data)
    }

    fn lost(self) -> Error {
        let sentence = "the service or its executor died while this ran";
        let data = StageFailure {
            stage_id: Some(self.stage_id),
            execution: Some(self.execution.to_string()),
            output: self.output,
            ..bare(EXECUTOR_LOST, sentence, "Start it again, under another `stage_id`.".to_owned())
        };
        errors::with(Error::new(error::EXECUTOR_LOST, sentence), &data)
    }
}

fn bare(failure: Failure, error: &str, remedy: String) -> StageFailure {
    StageFailure {
        code: failure.code.to_owned(),
        class: failure.class.to_owned(),
        error: error.to_owned(),
        remedy,
        reason: None,
        retry_after_ms: None,
        field: None,
        stage_id: None,
        execution: None,
        output: StageOutput::default(),
        outcome: None,
        exit_code: None,
        usage: None,
        blocked: Vec::new(),
        enforcement: Vec::new(),
    }
}

/// It did not begin.
pub(super) fn refused(stage_id: Option<&str>, denied: &Denied) -> Error {
    not_run(denied, stage_id.map(ToOwned::to_owned), None, StageOutput::default())
}

fn not_run(
    denied: &Denied,
    stage_id: Option<String>,
    execution: Option<String>,
    output: StageOutput,
) -> Error {
    let problem = words::problem(denied);
    let failure = Ending::NotRun(denied.why.clone()).failure().unwrap_or(EXECUTOR_LOST);
    let data = StageFailure {
        reason: Some(problem.code),
        retry_after_ms: problem.retry_after_ms,
        stage_id,
        execution,
        output,
        ..bare(failure, denied.message(), problem.remedy)
    };
    errors::with(Error::new(errors::number(&denied.why), denied.message()), &data)
}

/// The payload is wrong: `error` has the field's name.
pub(super) fn invalid(stage_id: Option<&str>, error: Error) -> Error {
    let data = error.data.as_ref();
    let text =
        |name: &str| data.and_then(|data| data.get(name)).and_then(Value::as_str).map(ToOwned::to_owned);
    let remedy = text("remedy").unwrap_or_else(|| "Change that field of the payload.".to_owned());
    let data = StageFailure {
        field: text("field"),
        reason: text("code"),
        stage_id: stage_id.map(ToOwned::to_owned),
        ..bare(PAYLOAD_INVALID, &error.message, remedy)
    };
    errors::with(Error::new(error.code, error.message), &data)
}

/// There was no execution yet.
pub(super) fn cancelled_unbegun(stage_id: Option<String>) -> Result<Value, Error> {
    let outcome = Outcome::Cancelled { by: Cancel::Terminate };
    errors::answer(&StageResult {
        stage_id: stage_id.unwrap_or_default(),
        execution: None,
        output: StageOutput::default(),
        exit_ok: false,
        exit_code: outcome.exit_code(),
        outcome,
        token_count: 0,
        wall_seconds: 0.0,
        memory_peak_bytes: 0,
        cpu_throttled_ms: 0,
        blocked: Vec::new(),
        usage: Usage::default(),
        enforcement: Vec::new(),
        progress_dropped_bytes: 0,
    })
}

fn said(outcome: &Outcome) -> Said {
    let (error, remedy) = match outcome {
        Outcome::Exited { code } => (
            format!("the command failed with code {code} after a wall had refused it a host"),
            "`blocked` says which one, and how to allow it.",
        ),
        Outcome::Signaled { signal } => {
            (format!("the command was ended by signal {signal}"), "`stderr` may say why.")
        }
        Outcome::TimedOut => {
            ("the stage ran out of time".to_owned(), "Give it more with `limits.timeout_ms`, or less to do.")
        }
        Outcome::OomKilled => (
            "the stage ran out of memory".to_owned(),
            "Raise `limits.memory` of its profile, or make it use less.",
        ),
        Outcome::Limit { which } => {
            (format!("the stage went beyond its limit of {which}"), "Raise it in the profile's `limits`.")
        }
        Outcome::LaunchFailed { stage, message, .. } => (
            format!("the command could not be started ({stage}): {message}"),
            "Check the command, or run `stockade doctor` on the host.",
        ),
        Outcome::Lost { message } => {
            (format!("the executor lost it: {message}"), "Start it again, under another `stage_id`.")
        }
        Outcome::Cancelled { by: Cancel::Hangup } => (
            "whoever asked for the stage went away, and it was ended".to_owned(),
            "Keep the connection open until the answer comes.",
        ),
        Outcome::Cancelled { by: Cancel::Interrupt | Cancel::Terminate } => {
            ("the stage was cancelled".to_owned(), "Start it again, under another `stage_id`.")
        }
    };
    Said { error, remedy: remedy.to_owned() }
}
