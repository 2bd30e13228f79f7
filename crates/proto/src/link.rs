//! What the daemon and an executor say to each other: JSON-RPC 2.0, one message a line, over the socketpair that
//! the executor was born with. `hello` comes first. A call of `execute` lasts as long as the execution: its
//! answer is the result, and a link that breaks has lost every execution that was not answered.
//!
//! An execution is planned when `execute` comes, and runs when the file for its output does: over a second socketpair,
//! as one packet, the execution's id and one descriptor. The daemon has it on record by then. The id alone withdraws
//! the order.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Cancel, ExecutionResult, Fault, Layer, PublishedPort, Refusal, Request};

/// Both sides must have the same: they are installed together.
pub const VERSION: u32 = 3;

/// The descriptors that an executor is born with: its stdin and stdout, which also survive sudo.
pub const LINK_FD: i32 = 0;
pub const DONATIONS_FD: i32 = 1;

/// The longest text of an execution's id.
pub const ID_LIMIT: usize = 64;

/// Requests to the executor.
pub mod method {
    pub const HELLO: &str = "hello";
    pub const PING: &str = "ping";
    pub const EXECUTE: &str = "execute";
    pub const STOP: &str = "stop";
    pub const WRITE: &str = "write";
    pub const SHUTDOWN: &str = "shutdown";
    /// Other terms than those of hello, for executions that come from now on.
    pub const TERMS: &str = "terms";
    /// The executor's notification that the plan is made and its sandbox is being built. Of an execution that ends
    /// within moments, the same is in its answer.
    pub const STARTED: &str = "started";
}

/// JSON-RPC errors of the link that carry a meaning of their own.
pub mod error {
    /// `data` is a [`super::NotRun`].
    pub const NOT_RUN: i64 = -32010;
    /// No execution of that id runs here.
    pub const UNKNOWN_EXECUTION: i64 = -32011;
    /// The versions differ.
    pub const VERSION: i64 = -32012;
    /// The command's stdin takes no more, or never did.
    pub const STDIN_CLOSED: i64 = -32013;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub version: u32,
    pub terms: Terms,
}

/// What the service's configuration says about every execution. Told with `hello`, and again when it changes; it
/// holds for what begins then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// All that there are beside the built-in ones: an executor reads no file for them but a workspace's.
    pub profiles: Vec<ServiceProfile>,
    /// Whether a profile without walls (`mode = "host"`) is refused, whoever asks for it.
    pub walls_required: bool,
}

/// Whose profile it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Of the user that the service runs as.
    User,
    /// Of the system, or of the service's configuration.
    System,
}

/// A profile as the service read it when it started, or was last told to read its configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceProfile {
    pub name: String,
    pub owner: Owner,
    /// Where a person finds it, for messages.
    pub origin: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Greeting {
    pub version: u32,
    pub pid: u32,
    pub layers: Vec<LayerState>,
}

/// Whether this host can enforce a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerState {
    pub layer: Layer,
    /// Why not; nothing where it can.
    pub missing: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execute {
    pub execution: String,
    pub request: Request,
    /// What the request's workspace must be: a path may lead elsewhere by now.
    pub place: Place,
}

/// An object of the file system, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub dev: u64,
    pub ino: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    pub execution: String,
    /// Since then.
    pub ago_us: u64,
    pub published: Vec<PublishedPort>,
    pub warnings: Vec<String>,
}

/// The answer to [`Execute`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// None where the notification has told it.
    pub started: Option<Started>,
    pub result: ExecutionResult,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NotRun {
    Refusal(Refusal),
    Fault(Fault),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub execution: String,
    pub by: Cancel,
}

/// For the command's stdin. `end` closes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    pub execution: String,
    pub bytes: Bytes,
    pub end: bool,
}

/// Stops every execution and ends the executor, by force after `timeout_ms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    pub timeout_ms: u64,
}
