//! From a stage's payload to what it asks for. Here is the one place that knows which agents there are.

use stockade_proto::Request;
use stockade_proto::door::{COMMAND_AGENT, Start, StartStage};
use stockade_rpc::{Error, Params};

use super::answer;
use crate::config::Config;
use crate::doors::socket::errors::denied;
use crate::doors::socket::fields::{self, STAGE_ID_LIMIT};
use crate::doors::words;

/// A stage's name among the idempotency keys of its caller.
pub(in crate::doors::socket) fn key(stage_id: &str) -> String {
    format!("{}{stage_id}", words::STAGE_KEY)
}

#[derive(Debug)]
pub(super) struct Stage {
    /// The caller's own name for it.
    pub(super) id: Option<String>,
    pub(super) agent: Agent,
}

#[derive(Debug)]
pub(super) enum Agent {
    /// Its work is one execution.
    Command(Box<Request>),
}

/// Whatever is wrong with it is "payload invalid", and the field is named.
pub(super) fn read(params: &Params, config: &Config) -> Result<Stage, Error> {
    let payload: StartStage = fields::read(params).map_err(|error| answer::invalid(None, error))?;
    if let Some(id) = &payload.stage_id {
        fields::text("stage_id", id, STAGE_ID_LIMIT).map_err(|error| answer::invalid(None, error))?;
    }
    let id = payload.stage_id.clone();
    match agent(payload, config) {
        Ok(agent) => Ok(Stage { id, agent }),
        Err(error) => Err(answer::invalid(id.as_deref(), error)),
    }
}

fn agent(payload: StartStage, config: &Config) -> Result<Agent, Error> {
    let command = payload.command.is_some() || payload.shell.is_some();
    match payload.agent.as_deref() {
        Some(COMMAND_AGENT) => {}
        None if command => {}
        Some(_) | None => {
            return Err(Error::bad_params(
                "agent",
                "this service runs command agents only: give `command` or `shell`",
            ));
        }
    }
    fields::path("workspace_path", &payload.workspace_path)?;
    let limit = payload.limits.and_then(|limits| limits.timeout_ms);
    let usual = config.stage_timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let start = Start {
        command: payload.command,
        shell: payload.shell,
        profile: payload.profile,
        workspace: Some(payload.workspace_path),
        env: payload.env,
        timeout_ms: limit.or(usual),
        ..Start::default()
    };
    fields::start(&start)?;
    let (request, _) = words::request(config, start).map_err(|why| denied(&why))?;
    Ok(Agent::Command(Box::new(request)))
}
