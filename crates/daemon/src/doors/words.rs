//! From the words of `/v1` and the Unix socket to ours, and back. One translation for both doors.

use std::time::Duration;

use stockade_proto::door::{
    self, Chunk, Execution, Health, Output, Page, Problem, Rest, Start, State, Stream,
};
use stockade_proto::{Bytes, Code, Command, Request, Stdin, Variable};
use stockade_store::executions as stored;
use stockade_store::output as kept;

use crate::config::Config;
use crate::core::Core;
use crate::denied::Denied;
use crate::ending::Ending;

/// What the key of a stage begins with: `startStage` makes it of the stage's name.
pub const STAGE_KEY: &str = "stage:";

/// Bytes of one record of a list in memory: a command of 4096 characters as it was read, and as JSON.
pub const LISTED: usize = 32 << 10;

/// The service's defaults stand in for what is left out.
pub fn request(config: &Config, start: Start) -> Result<(Request, Option<String>), Denied> {
    let command = match (start.command, start.shell) {
        (Some(argv), None) => Command::Argv(argv),
        (None, Some(text)) => Command::Shell { text, program: None, args: None },
        (Some(_), Some(_)) | (None, None) => {
            return Err(Denied::refuse(
                Code::RequestInvalid,
                "give either `command` or `shell`",
                "`command` is an array of strings, `shell` one string for the profile's shell.",
            ));
        }
    };
    if start.idempotency_key.as_deref().is_some_and(|key| key.starts_with(STAGE_KEY)) {
        return Err(Denied::refuse(
            Code::RequestInvalid,
            "keys that begin with `stage:` are names of stages",
            "Begin the idempotency key with something else.",
        ));
    }
    let set = |(name, value): (String, Bytes)| Variable::Set { name: Bytes::from(name), value };
    let request = Request {
        command,
        workspace: start.workspace.unwrap_or_else(|| Bytes::from(config.workspaces.default.as_path())),
        cwd: start.cwd,
        env: start.env.into_iter().map(set).collect(),
        timeout_ms: start.timeout_ms,
        stdin: if start.stdin { Stdin::Piped } else { Stdin::Null },
        publish: Vec::new(),
        profile: start.profile.unwrap_or_else(|| config.profile.clone()),
    };
    Ok((request, start.idempotency_key))
}

pub fn execution(row: stored::Execution) -> Execution {
    let ending = Core::ending_of(&row).map(|ending| match ending {
        Ending::Result(result) => door::Ending::Result(result),
        Ending::NotRun(why) => door::Ending::NotRun(why),
    });
    Execution {
        id: row.id.to_string(),
        principal: row.principal,
        door: row.door,
        profile: row.profile,
        command: row.command,
        workspace: row.workspace,
        state: state(row.state),
        created_ms: row.created_ms,
        started_ms: row.started_ms,
        ended_ms: row.ended_ms,
        stdout_bytes: row.stdout_bytes,
        stderr_bytes: row.stderr_bytes,
        code: row.code,
        class: row.class,
        ending,
    }
}

pub fn page(page: stored::Page) -> Page {
    Page {
        executions: page.executions.into_iter().map(execution).collect(),
        next: page.next.map(|id| id.to_string()),
    }
}

const fn state(state: stored::State) -> State {
    match state {
        stored::State::Queued => State::Queued,
        stored::State::Running => State::Running,
        stored::State::Ended => State::Ended,
    }
}

pub const fn asked_state(state: State) -> stored::State {
    match state {
        State::Queued => stored::State::Queued,
        State::Running => stored::State::Running,
        State::Ended => stored::State::Ended,
    }
}

pub fn output(piece: kept::Piece) -> Output {
    let chunk = |chunk: kept::Chunk| {
        let stream = match chunk.stream {
            kept::Stream::Stdout => Stream::Stdout,
            kept::Stream::Stderr => Stream::Stderr,
            kept::Stream::Event => Stream::Event,
            // Told by `rest`.
            kept::Stream::End => return None,
        };
        let bytes = Bytes::from(chunk.bytes);
        Some(Chunk { sequence: chunk.sequence, stream, millis: chunk.millis, bytes })
    };
    Output {
        chunks: piece.chunks.into_iter().filter_map(chunk).collect(),
        next: piece.next.sequence,
        rest: match piece.rest {
            kept::Rest::More => Rest::More,
            kept::Rest::Open => Rest::Open,
            kept::Rest::Ended => Rest::Ended,
            kept::Rest::Damaged => Rest::Damaged,
        },
    }
}

pub fn problem(denied: &Denied) -> Problem {
    Problem {
        code: denied.code().id().to_owned(),
        error: denied.message().to_owned(),
        remedy: denied.remedy().to_owned(),
        retry_after_ms: denied.retry_after.map(millis),
        written: denied.written.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX)),
        enforcement: Vec::new(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub fn health(core: &Core) -> Health {
    let load = core.admission.load();
    let link = core.dispatch.link();
    let status = match (load.draining, &link) {
        (true, _) => "draining",
        (false, _) if core.record.is_failing() => "no-records",
        (false, None) => "no-executor",
        (false, Some(_)) => "ok",
    };
    Health {
        status: status.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        layers: link.map(|link| link.greeting.layers.clone()).unwrap_or_default(),
        running: load.running,
        waiting: load.waiting,
        capacity: load.capacity,
    }
}
