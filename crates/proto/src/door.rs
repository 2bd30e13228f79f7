//! What callers of the service say and hear, at `/v1` and on the Unix socket alike. Unknown fields are refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::link::NotRun;
use crate::{Bytes, Enforcement, ExecutionResult};

mod methods;
mod stage;

pub use methods::{Field, Kind, Method, Needs, Pace, Presence};
pub use stage::{
    AgentConfig, COMMAND_AGENT, CancelStage, StageCancelled, StageContext, StageFailure, StageLimits,
    StageOutput, StageProgress, StageResult, StageStep, StartStage,
};

/// Names of the Unix-socket door; [`Method`] is the table of those that can be called.
pub mod method {
    pub const HEALTH: &str = "healthCheck";
    pub const START_STAGE: &str = "startStage";
    pub const CANCEL_STAGE: &str = "cancelStage";
    pub const START: &str = "execution/start";
    pub const GET: &str = "execution/get";
    pub const LIST: &str = "execution/list";
    pub const READ: &str = "execution/read";
    pub const WRITE: &str = "execution/write";
    pub const STOP: &str = "execution/stop";
    pub const WAIT: &str = "execution/wait";
    pub const SUBSCRIBE: &str = "events/subscribe";
    pub const UNSUBSCRIBE: &str = "events/unsubscribe";
    /// A notification to a subscriber; its params are one change.
    pub const EVENT: &str = "events/event";
    /// The last notification to a subscriber that did not keep up.
    pub const CUT: &str = "events/cut";
    /// A notification while an agent stage runs.
    pub const PROGRESS: &str = "stageProgress";
}

/// Errors of the Unix-socket door besides those of JSON-RPC itself. `data` is a [`Problem`], or a [`StageFailure`].
pub mod error {
    /// Too much at once, or stopping: `data.retry_after_ms` says when to try again.
    pub const BUSY: i64 = -32000;
    pub const NOT_PERMITTED: i64 = -32001;
    /// Nothing of that id is on record for this caller.
    pub const UNKNOWN: i64 = -32003;
    pub const ENDED: i64 = -32004;
    /// Our "no" to a request that is well formed.
    pub const REFUSED: i64 = -32005;
    /// Our failure.
    pub const FAULT: i64 = -32006;
    /// The executor died or can't be reached.
    pub const EXECUTOR_LOST: i64 = -32007;
    /// A stage began and failed: `data.code` says how.
    pub const STAGE_FAILED: i64 = -32008;
}

/// Asks for an execution. Exactly one of `command` and `shell`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("anyOf" = [{ "required": ["command"] }, { "required": ["shell"] }])))]
#[serde(deny_unknown_fields, default)]
pub struct Start {
    /// A program and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub command: Option<Vec<Bytes>>,
    /// One string for the profile's shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<Bytes>,
    /// The service's own default, if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The directory that the command may change; the service's own default, if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Bytes>,
    /// Where the command starts, inside the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Bytes>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether stdin will be written to; closed otherwise.
    pub stdin: bool,
    /// The same caller with the same key means the same execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    Queued,
    Running,
    Ended,
}

/// One execution, as its record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Execution {
    pub id: String,
    pub principal: String,
    pub door: String,
    pub profile: String,
    pub command: String,
    pub workspace: String,
    pub state: State,
    pub created_ms: i64,
    pub started_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Of a failure that is not the command's own.
    pub code: Option<String>,
    pub class: Option<String>,
    /// When it has ended; not in lists.
    pub ending: Option<Ending>,
}

/// How it ended: what the command did, or why there was none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    Result(Box<ExecutionResult>),
    NotRun(NotRun),
}

/// Names one execution: by its id, or on the Unix socket also by the caller's own name of an agent stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    pub id: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    pub state: Option<State>,
    /// The `next` of the page before.
    pub after: Option<String>,
    pub limit: Option<u32>,
}

/// Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Page {
    pub executions: Vec<Execution>,
    /// None for the last page.
    pub next: Option<String>,
}

/// Asks for output behind a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    pub id: String,
    /// The `next` of the answer before; 0 for the start.
    #[serde(default)]
    pub after: u64,
    /// Bytes, about; the service has a limit of its own.
    #[serde(default)]
    pub limit: Option<u32>,
    /// How long to wait where there is nothing yet.
    #[serde(default)]
    pub wait_ms: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Output {
    pub chunks: Vec<Chunk>,
    /// For `after` of the next question.
    pub next: u64,
    pub rest: Rest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    pub sequence: u64,
    pub stream: Stream,
    /// Milliseconds since the start.
    pub millis: u64,
    pub bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
    /// A decision of a live wall, as JSON.
    Event,
}

/// What is behind the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Rest {
    /// More, at once.
    More,
    /// Nothing yet.
    Open,
    /// Nothing, ever.
    Ended,
    /// What can't be read.
    Damaged,
}

/// For a command's stdin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    pub id: String,
    #[serde(default)]
    pub bytes: Bytes,
    /// Nothing follows.
    #[serde(default)]
    pub end: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    pub id: String,
    /// The service has a limit of its own; an execution that still runs then is answered as it is.
    #[serde(default)]
    pub within_ms: Option<u64>,
}

/// No params.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// One subscription of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    pub subscription: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// `ok`, `draining`, `no-executor`, or `no-records`: then nothing can be recorded, and so nothing is run.
    pub status: String,
    pub version: String,
    pub layers: Vec<crate::link::LayerState>,
    pub running: usize,
    pub waiting: usize,
    pub capacity: usize,
}

/// An error's body at `/v1`, and the `data` of a JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    pub code: String,
    /// One sentence.
    pub error: String,
    /// What to do next.
    pub remedy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Of a write that was not taken whole: so many of its bytes were. Go on behind them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// What of the layers was enforced, for a failure that came late enough to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enforcement: Vec<Enforcement>,
}

/// What may be shown of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SecretName {
    pub name: String,
    pub created_ms: i64,
    pub updated_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SecretNames {
    pub secrets: Vec<SecretName>,
}
