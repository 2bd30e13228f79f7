//! Values that must never be shown, from `--secret-env` and `--secret-file`. They go into the
//! redactor and nowhere else: not into the plan, not into the command's environment.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use stockade_executor::Abort;
use stockade_proto::{Bytes, Code, ExecutionResult, Outcome, Refusal};
use stockade_redact::{MAX_SECRET, Redactor, Secret, SecretError};
use zeroize::Zeroizing;

fn refuse(source: &str, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        Code::SecretInvalid,
        format!("the secret {source} can't be redacted: {why}"),
        "Give a variable that is set, or a readable file, of at least 8 bytes.",
    )
}

/// `NAME=PATH`, or a path whose file name is the secret's name.
fn from_file(argument: &str) -> Result<Secret, Refusal> {
    let (name, path) = match argument.split_once('=') {
        Some((name, path)) => (name, path),
        None => (argument.rsplit('/').next().unwrap_or(argument), argument),
    };
    let file = File::open(path).map_err(|error| refuse(path, &error))?;
    let mut value = Zeroizing::new(Vec::new());
    file.take(MAX_SECRET as u64 + 1).read_to_end(&mut value).map_err(|error| refuse(path, &error))?;
    Secret::new(name, &value).map_err(|error| refuse(path, &error))
}

fn from_environment(name: &str) -> Result<Secret, Refusal> {
    let value = std::env::var_os(name).ok_or_else(|| refuse(name, &"no such variable"))?;
    Secret::new(name, value.as_bytes()).map_err(|error| refuse(name, &error))
}

pub(crate) fn redactor(variables: &[String], files: &[String]) -> Result<Redactor, Refusal> {
    let mut secrets = Vec::new();
    for name in variables {
        secrets.push(from_environment(name)?);
    }
    for file in files {
        secrets.push(from_file(file)?);
    }
    Redactor::new(&secrets, true).map_err(|error: SecretError| refuse("set", &error))
}

/// Our own words, as clean as the command's.
pub(crate) fn in_text(redactor: &Redactor, text: &str) -> String {
    String::from_utf8_lossy(&redactor.redact(text.as_bytes())).into_owned()
}

/// The command as the report quotes it.
pub(crate) fn in_command(redactor: &Redactor, result: &mut ExecutionResult) {
    for argument in &mut result.command {
        *argument = Bytes::from(redactor.redact(argument.as_slice()).into_owned());
    }
}

pub(crate) fn in_result(redactor: &Redactor, mut result: ExecutionResult) -> ExecutionResult {
    match &mut result.outcome {
        Outcome::LaunchFailed { message, .. } | Outcome::Lost { message } => {
            *message = in_text(redactor, message)
        }
        Outcome::Exited { .. }
        | Outcome::Signaled { .. }
        | Outcome::TimedOut
        | Outcome::Cancelled { .. }
        | Outcome::OomKilled
        | Outcome::Limit { .. } => {}
    }
    for fault in &mut result.cleanup_faults {
        *fault = in_text(redactor, fault);
    }
    for blocked in &mut result.blocked {
        blocked.target = Bytes::from(redactor.redact(blocked.target.as_slice()).into_owned());
        for text in [&mut blocked.reason, &mut blocked.guidance] {
            *text = in_text(redactor, text);
        }
    }
    for traffic in &mut result.traffic {
        traffic.host = in_text(redactor, &traffic.host);
    }
    result
}

pub(crate) fn in_abort(redactor: &Redactor, abort: Abort) -> Abort {
    match abort {
        Abort::Refusal(mut refusal) => {
            refusal.message = in_text(redactor, &refusal.message);
            Abort::Refusal(refusal)
        }
        Abort::Fault(mut fault) => {
            fault.message = in_text(redactor, &fault.message);
            Abort::Fault(fault)
        }
        // Quotes a profile, which holds no value of the command line.
        Abort::Profile(error) => Abort::Profile(error),
    }
}
