//! What the command did, and what it used.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::code::exit;
use crate::{Blocked, Bytes, Enforcement, HostTraffic, PublishedPort, Unreached};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    CpuSeconds,
    Processes,
    FileSize,
    OutputBytes,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CpuSeconds => "cpu-seconds",
            Self::Processes => "processes",
            Self::FileSize => "file-size",
            Self::OutputBytes => "output-bytes",
        })
    }
}

/// Who asked for the end: the signal that `stockade run` received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cancel {
    Interrupt,
    Terminate,
    Hangup,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    Exited { code: u8 },
    Signaled { signal: u8 },
    TimedOut,
    Cancelled { by: Cancel },
    OomKilled,
    Limit { which: LimitKind },
    LaunchFailed { stage: String, errno: i32, message: String },
    Lost { message: String },
}

/// Linux errno values that the exit table tells apart.
const ENOENT: i32 = 2;

/// The last stage: the command's own `execve`. Everything before it is ours.
pub(crate) const EXEC_STAGE: &str = "exec";

impl Outcome {
    /// The one table from outcome to exit code; `docs/exit-codes.md` is checked against it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exited { code } => *code,
            Self::Signaled { signal } => signal.saturating_add(128),
            Self::TimedOut => exit::TIMED_OUT,
            Self::Cancelled { by: Cancel::Interrupt } => 130,
            Self::Cancelled { by: Cancel::Terminate } => 143,
            Self::Cancelled { by: Cancel::Hangup } => 129,
            Self::OomKilled => exit::OOM_KILLED,
            Self::Limit { .. } => exit::LIMIT,
            Self::LaunchFailed { stage, errno: ENOENT, .. } if stage == EXEC_STAGE => exit::NOT_FOUND,
            Self::LaunchFailed { stage, .. } if stage == EXEC_STAGE => exit::NOT_EXECUTABLE,
            Self::LaunchFailed { .. } => exit::FAULT,
            Self::Lost { .. } => exit::LOST,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamTotals {
    /// Bytes the command wrote, counted before redaction and past any cap.
    pub bytes: u64,
    /// Bytes that were not passed on because of the output limit.
    pub dropped: u64,
    /// Secrets that were replaced.
    pub redactions: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    pub wall_ms: u64,
    pub cpu_user_ms: u64,
    /// With what the supervisor of sockets and the relay of the network used on the command's behalf.
    pub cpu_system_ms: u64,
    pub memory_peak_bytes: u64,
}

/// Everything there is to say about one execution; `--json` prints exactly this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionResult {
    pub execution: String,
    pub profile: String,
    pub command: Vec<Bytes>,
    pub outcome: Outcome,
    pub exit_code: u8,
    pub usage: Usage,
    pub stdout: StreamTotals,
    pub stderr: StreamTotals,
    pub truncated: bool,
    /// Processes that were still alive when the command ended, and were killed with the sandbox.
    pub leaked_descendants: u32,
    /// Limits that the kernel counted a hit on, whatever the outcome.
    pub limits_hit: Vec<LimitKind>,
    pub enforcement: Vec<Enforcement>,
    /// What the live walls refused.
    pub blocked: Vec<Blocked>,
    /// What went through the allowlist, per host and port.
    pub traffic: Vec<HostTraffic>,
    /// What the allowlist lets through and the host did not reach.
    #[serde(default)]
    pub unreached: Vec<Unreached>,
    /// Ports inside that the host's loopback reached while it ran.
    pub published: Vec<PublishedPort>,
    /// Failures of our own clean-up. They stand beside the outcome, never in its place.
    pub cleanup_faults: Vec<String>,
}
