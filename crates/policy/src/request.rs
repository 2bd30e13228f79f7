//! What is asked for, and who asks. Values only; `command` and `environment` check them.

use stockade_proto::{Bytes, Publish, Stdin};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Argv(Vec<Bytes>),
    /// A string for a shell. What is left out comes from the profile; what is given must be in its allowlists.
    Shell {
        text: Bytes,
        program: Option<Bytes>,
        args: Option<Vec<Bytes>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// `--env NAME=VALUE`
    Set { name: Bytes, value: Bytes },
    /// `--env NAME`: the caller's value.
    Copy { name: Bytes },
}

#[derive(Debug, Clone, PartialEq, Eq)]
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

/// The process that asks, as the kernel and its environment know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// From the passwd file.
    pub user: Option<Bytes>,
    /// Absolute; `/` where there is none.
    pub home: Bytes,
    pub env: Vec<(Bytes, Bytes)>,
}

impl Caller {
    pub fn variable(&self, name: &str) -> Option<&Bytes> {
        self.env.iter().find(|(known, _)| known.as_slice() == name.as_bytes()).map(|(_, value)| value)
    }
}
