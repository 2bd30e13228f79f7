//! The walls by name, what a profile asks of each, and what the kernel gave.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One wall. `ALL` is the order in which people see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// A new root in a mount namespace: what is not listed does not exist.
    Filesystem,
    /// Landlock over that root: what is not listed is refused.
    Landlock,
    /// User, PID, IPC, UTS and cgroup namespaces: nobody outside is visible.
    Process,
    /// A network namespace of its own.
    Network,
    /// The system call filter.
    Seccomp,
    /// A supervisor that decides each call on an AF_UNIX address, by way of the filter's notifications.
    Sockets,
    /// A cgroup with memory, CPU and process limits.
    Limits,
}

impl Layer {
    pub const ALL: [Self; 7] = [
        Self::Filesystem,
        Self::Landlock,
        Self::Process,
        Self::Network,
        Self::Seccomp,
        Self::Sockets,
        Self::Limits,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Landlock => "landlock",
            Self::Process => "process",
            Self::Network => "network",
            Self::Seccomp => "seccomp",
            Self::Sockets => "sockets",
            Self::Limits => "limits",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a person wrote for a layer. There is no fallback in code: only `prefer` and `off` let an
/// execution start without a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    Off,
    Prefer,
    Must,
}

/// A requirement per layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Layers {
    pub filesystem: Requirement,
    pub landlock: Requirement,
    pub process: Requirement,
    pub network: Requirement,
    pub seccomp: Requirement,
    pub sockets: Requirement,
    pub limits: Requirement,
}

impl Layers {
    pub const fn all(requirement: Requirement) -> Self {
        Self {
            filesystem: requirement,
            landlock: requirement,
            process: requirement,
            network: requirement,
            seccomp: requirement,
            sockets: requirement,
            limits: requirement,
        }
    }

    pub const fn get(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Filesystem => self.filesystem,
            Layer::Landlock => self.landlock,
            Layer::Process => self.process,
            Layer::Network => self.network,
            Layer::Seccomp => self.seccomp,
            Layer::Sockets => self.sockets,
            Layer::Limits => self.limits,
        }
    }

    pub const fn set(&mut self, layer: Layer, requirement: Requirement) {
        match layer {
            Layer::Filesystem => self.filesystem = requirement,
            Layer::Landlock => self.landlock = requirement,
            Layer::Process => self.process = requirement,
            Layer::Network => self.network = requirement,
            Layer::Seccomp => self.seccomp = requirement,
            Layer::Sockets => self.sockets = requirement,
            Layer::Limits => self.limits = requirement,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "EnforcementState"))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In force, and checked before the command's first instruction.
    Enforced,
    /// A person wrote `prefer` and the host can't do it.
    Missing,
    /// A person wrote `off`, or the profile's mode has no such wall.
    Off,
}

/// What was really in force for one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enforcement {
    pub layer: Layer,
    pub state: State,
    /// How: `landlock ABI 7`, `cgroup v1: memory, cpu, pids`, or why it is missing.
    pub detail: String,
}
