//! The plan of one execution: complete, printable, no choice left in it. `stockade-policy` has the
//! only constructor; nothing after it reads policy text.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Bytes, EgressPlan, Layer, Layers, Publish, SocketPlan};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// No walls: the caller's own view, with limits, timeouts, streams and a built environment.
    Host,
    Sandbox,
}

/// argv as it goes to `execve`; `argv[0]` is looked up on the plan's own PATH inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgvCommand {
    pub argv: Vec<Bytes>,
}

/// Whose ids the command has. Inside the sandbox it sees `uid`:`gid`; outside it is
/// `host_uid`:`host_gid`, which is never 0 for a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub host_uid: u32,
    pub host_gid: u32,
}

impl Identity {
    /// Host root is impersonated by another uid, so files must be shown through an id-mapped mount.
    pub const fn is_mapped(&self) -> bool {
        self.uid != self.host_uid || self.gid != self.host_gid
    }
}

/// The host object a bind shows. `dev`/`ino` pin it: if another object stands at the path when the
/// sandbox is built, the launch fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Absolute, without symlinks or `..`.
    pub path: Bytes,
    pub dev: u64,
    pub ino: u64,
    pub is_dir: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub source: Source,
    pub writable: bool,
    /// Show files of the identity's `uid` as its own (id-mapped mount). Only for host root.
    pub owner_mapped: bool,
}

/// One step of building the new root, applied in order. Targets are absolute paths in the sandbox;
/// missing parents are made (0755) by the step itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum MountKind {
    /// A directory of the root itself.
    Dir {
        mode: u32,
    },
    /// A file of the root itself with these contents.
    File {
        mode: u32,
        contents: Bytes,
    },
    /// A symlink of the root itself.
    Symlink {
        to: Bytes,
    },
    /// An empty writable directory that lives and dies with the execution. All of them share one
    /// tmpfs of `Limits::scratch_bytes`.
    Scratch {
        mode: u32,
    },
    Bind(Bind),
    /// A fresh procfs of the PID namespace.
    Proc,
    /// A fresh devpts, with `/dev/ptmx`.
    DevPts,
    /// The host's device node of the same path.
    Device,
    /// An unreadable, unwritable object over what is at `target`. `optional`: skip if nothing is there.
    Mask {
        is_dir: bool,
        optional: bool,
    },
    /// A read-only file with these contents over the file at `target`.
    Cover {
        contents: Bytes,
    },
    /// What is at `target` again, read-only, and impossible to rename or remove. `optional` as above.
    Protect {
        optional: bool,
    },
    /// What is at `target` again, unchanged, but impossible to rename or remove.
    Pin,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub target: Bytes,
    #[serde(flatten)]
    pub kind: MountKind,
    /// Why it is there, for `--explain`.
    pub reason: Cow<'static, str>,
}

impl Mount {
    pub fn bind(&self) -> Option<&Bind> {
        match &self.kind {
            MountKind::Bind(bind) => Some(bind),
            MountKind::Dir { .. }
            | MountKind::File { .. }
            | MountKind::Symlink { .. }
            | MountKind::Scratch { .. }
            | MountKind::Proc
            | MountKind::DevPts
            | MountKind::Device
            | MountKind::Mask { .. }
            | MountKind::Cover { .. }
            | MountKind::Protect { .. }
            | MountKind::Pin => None,
        }
    }
}

/// Access classes of Landlock rules. What each means in bits for a given ABI is one table in the executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// List directories only.
    List,
    /// Read, list and execute.
    Read,
    /// Everything: workspaces and scratch.
    Write,
    /// Read, write and ioctl existing nodes: devices, terminals.
    Device,
    /// Read everything, write existing files (`/proc/self/...`).
    Proc,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRule {
    /// A path in the sandbox (or on the host where there is no filesystem layer).
    pub path: Bytes,
    pub access: Access,
    /// Rights of directories mean nothing for other things, and the kernel takes none for them.
    pub is_dir: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockPlan {
    pub rules: Vec<LandlockRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// An empty network namespace; loopback inside it is up.
    Deny,
    /// The same namespace, with a way out to these hosts only.
    Allowlist(EgressPlan),
    /// The host's network. A value a person wrote.
    Inherit,
}

/// Limits of the whole execution tree. `None` is "no limit", which a person wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    /// Thousandths of a core: 1000 is one core.
    pub cpu_millicores: Option<u64>,
    pub cpu_seconds: Option<u64>,
    pub processes: Option<u64>,
    pub open_files: Option<u64>,
    pub file_size_bytes: Option<u64>,
    pub wall_ms: Option<u64>,
    pub output_bytes: Option<u64>,
    /// Size of the tmpfs behind `/tmp`, the home and `/dev/shm`.
    pub scratch_bytes: u64,
    /// Between the polite signal and the kill.
    pub grace_ms: u64,
}

impl Limits {
    /// The kernel holds all of them but the wall clock.
    pub fn is_same_but_for_the_deadline(&self, other: &Self) -> bool {
        Self { wall_ms: other.wall_ms, ..self.clone() } == *other
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stdin {
    Null,
    Piped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stdio {
    pub stdin: Stdin,
}

/// A name in the workspace that must be held although nothing is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placeholder {
    /// On the host.
    pub path: Bytes,
    pub kind: PlaceholderKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceholderKind {
    EmptyDirectory,
    EmptyFile,
    /// git's `commondir` that leads to the repository itself: as if it were not there.
    GitCommondir,
}

impl PlaceholderKind {
    /// What a file placeholder holds.
    pub const fn contents(self) -> Option<&'static [u8]> {
        match self {
            Self::EmptyDirectory => None,
            Self::EmptyFile => Some(b""),
            Self::GitCommondir => Some(b".\n"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub profile: String,
    pub mode: Mode,
    pub command: ArgvCommand,
    /// Absolute, in the sandbox.
    pub cwd: Bytes,
    pub env: Vec<(Bytes, Bytes)>,
    pub identity: Identity,
    pub hostname: String,
    /// The new root, in order. Empty where there is no filesystem layer.
    pub mounts: Vec<Mount>,
    /// The workspace's host path.
    pub workspace: Bytes,
    /// What the executor makes (and removes afterwards if it is unchanged) so that a `Protect` has
    /// something to stand on.
    pub placeholders: Vec<Placeholder>,
    pub landlock: Option<LandlockPlan>,
    pub network: Network,
    /// Listeners of the network namespace that the host's loopback reaches.
    pub publish: Vec<Publish>,
    /// None where the layer `sockets` is off.
    pub sockets: Option<SocketPlan>,
    /// The name of the filter in `resources/seccomp`, or none.
    pub seccomp: Option<String>,
    pub limits: Limits,
    /// `Off` here means: will not be applied.
    pub layers: Layers,
    /// Layers that a person wrote `prefer` for and that the host can't give, with the reason; `Off` above.
    pub unavailable: Vec<(Layer, String)>,
    pub stdio: Stdio,
    /// Sentences a person should see before the command runs.
    pub warnings: Vec<String>,
}
