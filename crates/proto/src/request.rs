//! What is asked for. Values only; the planner checks them.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Publish, Stdin};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    Argv(Vec<Bytes>),
    /// A string for a shell. What is left out comes from the profile; what is given must be in its allowlists.
    Shell {
        text: Bytes,
        program: Option<Bytes>,
        args: Option<Vec<Bytes>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variable {
    /// `--env NAME=VALUE`
    Set { name: Bytes, value: Bytes },
    /// `--env NAME`: the caller's value.
    Copy { name: Bytes },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub command: Command,
    pub workspace: Bytes,
    /// Relative ones start at the workspace.
    pub cwd: Option<Bytes>,
    pub env: Vec<Variable>,
    /// Overrides the profile's `limits.wall`.
    pub timeout_ms: Option<u64>,
    pub stdin: Stdin,
    /// Listeners inside that the host's loopback is to reach.
    pub publish: Vec<Publish>,
    pub profile: String,
}
