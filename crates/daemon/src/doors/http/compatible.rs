//! `GET /health` and `POST /execute`, as clients of the compatible server know them (HTTP-1 … HTTP-5). Unknown fields
//! are ignored here, as there. `tests/contract` lists each deliberate difference.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;
use stockade_proto::{Bytes, Code, Command, ExecutionResult, Outcome, Request, Stdin};
use stockade_store::Store;

use super::answer::{Asked, Door};
use super::captured::{self, Beside};
use super::reply::{JSON, Reply};
use super::trouble::compatible;
use crate::attached::Attached;
use crate::denied::Denied;
use crate::ending::Ending;
use crate::pipeline::{self, Ask, AttachedStart};
use crate::record::failed;

const TIMEOUT_LEAST: u32 = 1000;
const TIMEOUT_MOST: u32 = 300_000;
/// The compatible server's documentation does not say what it takes; this is what its range suggests.
const TIMEOUT_DEFAULT: u32 = 30_000;
/// The executor keeps the time; this is for one that does not come back from it.
const LONGEST_END: Duration = Duration::from_secs(120);

/// What a signal or the timeout gives there.
const KILLED: u8 = 1;

pub(super) fn health() -> Reply {
    Reply::text(StatusCode::OK, r#"{"status":"ok"}"#)
}

pub(super) async fn execute(door: &Arc<Door>, asked: Asked) -> Reply {
    let Asked { principal, body, .. } = asked;
    let wanted = match Wanted::read(&body) {
        Ok(wanted) => wanted,
        Err(wrong) => return Reply::text(StatusCode::BAD_REQUEST, wrong),
    };
    // It may wait for a place now, and others with it.
    drop(body);
    let ask = Ask { door: pipeline::Door::Http, principal, request: wanted.request(door), key: None };
    match pipeline::start_attached(&door.core, ask).await {
        Ok(AttachedStart::New(attached)) => carry_on(door, attached, wanted).await,
        // There is no key that could be known.
        Ok(AttachedStart::Known(id)) => compatible(&Denied::unknown(), Some(id)),
        Err(denied) => compatible(&denied, None),
    }
}

async fn carry_on(door: &Door, attached: Attached, wanted: Wanted) -> Reply {
    let execution = &attached.execution;
    let longest = Duration::from_millis(u64::from(wanted.timeout_ms)) + LONGEST_END;
    let Ok(ending) = tokio::time::timeout(longest, execution.ended()).await else {
        return compatible(&gone("the executor did not end the command in time"), Some(execution.id));
    };
    let result = match &*ending {
        Ending::Result(result) => result,
        Ending::NotRun(why) => {
            let denied = Denied::from(why.clone());
            let wait = denied.code().is_retryable().then_some(Duration::from_secs(1));
            return compatible(&Denied { retry_after: wait, ..denied }, Some(execution.id));
        }
    };
    let exit_code = match exit_code(&result.outcome) {
        Ok(exit_code) => exit_code,
        Err(denied) => return compatible(&denied, Some(execution.id)),
    };
    let duration = execution.dispatched.elapsed().as_millis();
    let beside = Beside {
        exit_code,
        success: result.outcome == Outcome::Exited { code: 0 },
        command: wanted.command,
        duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
        outcome: result.outcome.clone(),
        execution: execution.id.to_string(),
        blocked: result.blocked.clone(),
        truncated: result.truncated,
    };
    match reply(door, &attached, result, beside).await {
        Ok(reply) => reply.of(execution.id),
        Err(denied) => compatible(&denied, Some(execution.id)),
    }
}

async fn reply(
    door: &Door,
    attached: &Attached,
    result: &ExecutionResult,
    beside: Beside,
) -> Result<Reply, Denied> {
    let id = attached.execution.id;
    let expected = result.stdout.bytes.saturating_add(result.stderr.bytes);
    let expected = usize::try_from(expected).unwrap_or(usize::MAX);
    let permit = door.room_for_command(id, captured::most(result)).await?;
    let json = match attached.execution.short_output() {
        Some(whole) => captured::json_of(whole, beside, expected),
        None => {
            let read = move |store: &Store| {
                captured::json(store, id, beside, expected).map_err(|error| failed(&error))
            };
            door.core.record.blocking(read).await?
        }
    };
    Ok(Reply::bytes(StatusCode::OK, JSON, json).holding(permit))
}

/// A number, whatever happened; or our fault, where it did not run or nobody knows.
fn exit_code(outcome: &Outcome) -> Result<u8, Denied> {
    match outcome {
        Outcome::Exited { code } => Ok(*code),
        Outcome::Signaled { .. }
        | Outcome::TimedOut
        | Outcome::Cancelled { .. }
        | Outcome::OomKilled
        | Outcome::Limit { .. } => Ok(KILLED),
        Outcome::LaunchFailed { stage, .. } if stage == "exec" => Ok(outcome.exit_code()),
        Outcome::LaunchFailed { stage, message, .. } => Err(Denied::fault(
            Code::SetupFailed,
            format!("the sandbox could not be built, at {stage}: {message}"),
            "Run `stockade doctor` on the host.",
        )),
        Outcome::Lost { message } => Err(gone(message)),
    }
}

fn gone(message: &str) -> Denied {
    Denied::fault(Code::SuperviseFailed, message, "See the service's log; the record has what was written.")
}

/// What a body asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) command: String,
    pub(super) cwd: Option<String>,
    pub(super) timeout_ms: u32,
}

impl Wanted {
    /// In the order in which the compatible server looks, with its words.
    pub(super) fn read(body: &[u8]) -> Result<Self, &'static str> {
        let value: Value = serde_json::from_slice(body).map_err(|_| r#"{"error":"Invalid JSON body"}"#)?;
        if value.is_null() {
            return Err(r#"{"error":"Invalid JSON body"}"#);
        }
        let command = match value.get("command") {
            Some(Value::String(command)) if !command.is_empty() => command.clone(),
            Some(_) | None => return Err(r#"{"error":"Missing or invalid command"}"#),
        };
        let timeout_ms = match value.get("timeout") {
            None => TIMEOUT_DEFAULT,
            Some(timeout) => timeout_ms(timeout)
                .ok_or(r#"{"error":"timeout must be an integer between 1000 and 300000 ms"}"#)?,
        };
        let cwd = match value.get("cwd") {
            None | Some(Value::Null) => None,
            Some(Value::String(cwd)) => Some(cwd.clone()).filter(|cwd| !cwd.is_empty()),
            Some(_) => return Err(r#"{"error":"Missing or invalid cwd"}"#),
        };
        Ok(Self { command, cwd, timeout_ms })
    }

    fn request(&self, door: &Door) -> Request {
        let config = door.core.config();
        let workspaces = &config.workspaces;
        let cwd = self.cwd.as_ref().map(|cwd| workspaces.default.join(cwd));
        let cwd = cwd.as_deref().unwrap_or(&workspaces.default);
        Request {
            command: Command::Shell {
                text: Bytes::from(self.command.as_str()),
                program: Some(Bytes::from("/bin/bash")),
                args: Some(vec![Bytes::from("-c")]),
            },
            workspace: Bytes::from(workspaces.around(cwd)),
            cwd: Some(Bytes::from(AsRef::<Path>::as_ref(cwd))),
            env: Vec::new(),
            timeout_ms: Some(u64::from(self.timeout_ms)),
            stdin: Stdin::Null,
            publish: Vec::new(),
            profile: config.profile.clone(),
        }
    }
}

/// Whole is what JavaScript calls so: `1e3` and `1000.0` are 1000.
fn timeout_ms(value: &Value) -> Option<u32> {
    let number = value.as_f64()?;
    let range = f64::from(TIMEOUT_LEAST)..=f64::from(TIMEOUT_MOST);
    if number.fract() != 0.0 || !range.contains(&number) {
        return None;
    }
    // Whole and small: its digits are those of an integer.
    format!("{number:.0}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_proto::Cancel;

    const JSON_BODY: &str = r#"{"error":"Invalid JSON body"}"#;
    const COMMAND: &str = r#"{"error":"Missing or invalid command"}"#;
    const CWD: &str = r#"{"error":"Missing or invalid cwd"}"#;
    const TIMEOUT: &str = r#"{"error":"timeout must be an integer between 1000 and 300000 ms"}"#;

    #[test]
    fn wrong_bodies_get_the_exact_words() {
        let deep = format!(r#"{{"command":"x","more":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        let rows: &[(&[u8], &str)] = &[
            (b"", JSON_BODY),
            (b"null", JSON_BODY),
            (b"{", JSON_BODY),
            (b"{\"command\":\"a\xff\"}", JSON_BODY),
            (b"\xef\xbb\xbf{\"command\":\"a\"}", JSON_BODY),
            (b"{'command':'a'}", JSON_BODY),
            (b"{\"command\":\"a\",}", JSON_BODY),
            (b"{\"command\":NaN}", JSON_BODY),
            (b"{\"command\":\"\\ud800\"}", JSON_BODY),
            (deep.as_bytes(), JSON_BODY),
            (b"5", COMMAND),
            (b"[]", COMMAND),
            (b"\"ls\"", COMMAND),
            (b"{}", COMMAND),
            (b"{\"command\":\"\"}", COMMAND),
            (b"{\"command\":null}", COMMAND),
            (b"{\"command\":[\"ls\"]}", COMMAND),
            (b"{\"command\":5,\"timeout\":null}", COMMAND),
            (b"{\"command\":\"a\",\"command\":5}", COMMAND),
            (b"{\"command\":\"a\",\"cwd\":5}", CWD),
            (b"{\"command\":\"a\",\"cwd\":[\"/\"]}", CWD),
            (b"{\"command\":\"a\",\"cwd\":false}", CWD),
            (b"{\"command\":\"a\",\"timeout\":null}", TIMEOUT),
            (b"{\"command\":\"a\",\"cwd\":5,\"timeout\":1}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":0}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":-1000}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":999}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":300001}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":1000.5}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":1e300}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":99999999999999999999999}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":\"5000\"}", TIMEOUT),
            (b"{\"command\":\"a\",\"timeout\":true}", TIMEOUT),
        ];
        for (body, words) in rows {
            assert_eq!(Wanted::read(body), Err(*words), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn what_is_right_is_taken_as_it_is() {
        let read = |body: &str| Wanted::read(body.as_bytes()).unwrap();
        let plain = read(r#"{"command":"a","unknown":{"x":[1]}}"#);
        assert_eq!(plain, Wanted { command: "a".into(), cwd: None, timeout_ms: TIMEOUT_DEFAULT });
        assert_eq!(read(r#"{"command":"a","command":"b"}"#).command, "b");
        assert_eq!(read(r#"{"command":"a\u0000b"}"#).command, "a\0b");
        for cwd in [r#""""#, "null"] {
            assert_eq!(read(&format!(r#"{{"command":"a","cwd":{cwd}}}"#)).cwd, None);
        }
        for (timeout, is) in [("1000", 1000), ("300000", 300_000), ("1e3", 1000), ("1500.0", 1500)] {
            assert_eq!(read(&format!(r#"{{"command":"a","timeout":{timeout}}}"#)).timeout_ms, is);
        }
    }

    #[test]
    fn exit_codes_are_theirs() {
        let exec = |errno| Outcome::LaunchFailed { stage: "exec".into(), errno, message: String::new() };
        for (outcome, code) in [
            (Outcome::Exited { code: 7 }, 7),
            (Outcome::Signaled { signal: 9 }, 1),
            (Outcome::TimedOut, 1),
            (Outcome::OomKilled, 1),
            (Outcome::Cancelled { by: Cancel::Terminate }, 1),
            (exec(2), 127),
            (exec(13), 126),
        ] {
            assert_eq!(exit_code(&outcome).unwrap(), code, "{outcome:?}");
        }
        let setup = Outcome::LaunchFailed { stage: "root".into(), errno: 1, message: String::new() };
        assert_eq!(exit_code(&setup).unwrap_err().code(), Code::SetupFailed);
        let lost = Outcome::Lost { message: "x".into() };
        assert_eq!(exit_code(&lost).unwrap_err().code(), Code::SuperviseFailed);
    }
}
