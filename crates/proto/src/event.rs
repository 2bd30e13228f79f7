//! What the live walls saw: one event per decision, and the result's list of what was blocked.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Decision, Layer, SocketOperation};

/// One decision, as a line of `--events`. `type` names the kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Event {
    UnixSocketOp(UnixSocketOp),
    NetworkOp(NetworkOp),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixSocketOp {
    pub execution: String,
    pub operation: SocketOperation,
    /// The resolved path, or the abstract name without its NUL; as asked for where nothing was resolved.
    pub path: Bytes,
    #[serde(rename = "abstract")]
    pub is_abstract: bool,
    pub decision: Decision,
    /// The rule that decided; none is the default denial.
    pub rule: Option<String>,
    /// Why it was denied before any rule was asked, or what the kernel answered to an allowed call.
    pub detail: Option<String>,
    /// Thread id and command name of who asked, as the host sees them.
    pub pid: u32,
    pub comm: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// A name was asked for.
    Resolve,
    /// A TCP connection was made, or refused.
    Connect,
    /// A datagram was sent to where none may go.
    Send,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkOp {
    pub execution: String,
    pub operation: NetworkKind,
    /// The name, or the address where no name was asked for.
    pub host: String,
    pub port: Option<u16>,
    /// Where the connection really went.
    pub address: Option<String>,
    pub decision: Decision,
    pub rule: Option<String>,
    /// Why it was denied, or how an allowed connection failed.
    pub detail: Option<String>,
}

/// One thing that a wall refused, however often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blocked {
    /// The wall; none where several are counted together.
    pub layer: Option<Layer>,
    /// `connect`, `bind`, `resolve`, …
    pub operation: String,
    /// A path, `@name`, `host` or `host:port`.
    pub target: Bytes,
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// The lines to add to a profile, if a person wants it allowed.
    pub guidance: String,
    pub count: u64,
}

/// A target that is allowed, and that nothing came of: no wall refused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unreached {
    pub host: String,
    pub port: u16,
    /// What the host's resolver or the network said last.
    pub reason: String,
    pub count: u64,
}

/// Bytes per host, both directions, as the sandbox sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostTraffic {
    pub host: String,
    pub port: u16,
    pub connections: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}
