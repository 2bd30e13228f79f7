//! What can go wrong with a group, in words a person can act on. `Unavailable` is a fact about the host
//! and becomes a `Refusal`; every other `CgroupError` is a failure of one operation on one file.

use std::io;
use std::path::PathBuf;

use super::layout::Controller;

/// The host can't give these limits. `Display` says why, `remedy` what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("no cgroup filesystem is mounted")]
    NoCgroups,
    #[error("no cgroup hierarchy below {} offers the {controller} controller", .at.display())]
    NoController { controller: Controller, at: PathBuf },
    #[error("the cgroup {} is not delegated to this user", .own.display())]
    NotDelegated { own: PathBuf },
    #[error("the cgroup {} holds other processes, so controllers can't be enabled in it", .group.display())]
    Shared { group: PathBuf },
    #[error("the cgroup filesystem at {} is mounted read-only", .mount.display())]
    ReadOnly { mount: PathBuf },
    #[error("the cgroup of this process, {path}, is not below any cgroup mount it can see")]
    Unreachable { path: String },
    #[error("the cgroup {} can't be written by this user", .path.display())]
    NotWritable { path: PathBuf },
}

impl Unavailable {
    /// Whether a cgroup from systemd's user manager would do.
    pub fn a_scope_helps(&self) -> bool {
        match self {
            Self::NotDelegated { .. } | Self::NotWritable { .. } | Self::Shared { .. } => true,
            Self::NoCgroups
            | Self::NoController { .. }
            | Self::ReadOnly { .. }
            | Self::Unreachable { .. } => false,
        }
    }

    pub fn remedy(&self) -> String {
        match self {
            Self::NoCgroups => "mount it: mount -t cgroup2 none /sys/fs/cgroup".into(),
            Self::NoController { controller: Controller::Memory, .. } => {
                "boot with cgroup_enable=memory, or, as an ordinary user, have root run: systemctl edit \
                 user@.service, with [Service] Delegate=cpu memory pids"
                    .into()
            }
            Self::NoController { controller, .. } => format!(
                "enable {controller} in the kernel, or, as an ordinary user, have root run: systemctl edit \
                 user@.service, with [Service] Delegate=cpu memory pids, and log in again"
            ),
            Self::NotDelegated { .. } | Self::NotWritable { .. } => {
                "start it in a delegated scope: systemd-run --user --scope -p Delegate=yes -- stockade ... \
                 (needs a user session: XDG_RUNTIME_DIR set, or loginctl enable-linger), or run it as root"
                    .into()
            }
            Self::Shared { .. } => {
                "give it a cgroup of its own: systemd-run --user --scope -p Delegate=yes -- stockade ..., or \
                 Delegate=yes with DelegateSubgroup=supervisor in the service"
                    .into()
            }
            Self::ReadOnly { mount } => format!(
                "mount it writable: mount -o remount,rw {}, or start the container with its cgroups writable",
                mount.display()
            ),
            Self::Unreachable { .. } => {
                "mount the cgroup filesystem inside this cgroup namespace: mount -t cgroup2 none /sys/fs/cgroup"
                    .into()
            }
        }
    }
}

/// One variant per operation, carrying the file. `Display` never repeats its source.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("can't read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("can't open the cgroup {}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("can't create the cgroup {}", .path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("can't write {value:?} to {}", .path.display())]
    Write { path: PathBuf, value: String, source: io::Error },
    #[error("the kernel does not accept the limit {value:?} in {}: {accepted}", .path.display())]
    LimitRejected { path: PathBuf, value: String, accepted: &'static str },
    #[error("the limit of {millicores} thousandths of a core is beyond what can be written")]
    CpuTooLarge { millicores: u64 },
    #[error("{} does not exist, so swap can't be capped, and this host has swap in use", .path.display())]
    SwapUncapped { path: PathBuf },
    #[error("can't open {} to enter the cgroup", .path.display())]
    Door { path: PathBuf, source: io::Error },
    #[error("can't ask for out-of-memory events of {}", .path.display())]
    OomEvents { path: PathBuf, source: io::Error },
    #[error("can't kill the processes of {}", .path.display())]
    Kill { path: PathBuf, source: io::Error },
    #[error("processes keep appearing in {} faster than they can be killed", .path.display())]
    KillOutrun { path: PathBuf },
    #[error("can't wait for {} to become empty", .path.display())]
    Wait { path: PathBuf, source: io::Error },
    #[error("processes were left in {} after they were killed", .path.display())]
    StillPopulated { path: PathBuf },
    #[error("can't remove the cgroup {}", .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("{} does not read as the kernel documents it", .path.display())]
    Malformed { path: PathBuf },
    #[error("/proc belongs to another PID namespace than this process")]
    ForeignProc,
}

impl CgroupError {
    pub fn remedy(&self) -> String {
        match self {
            Self::Unavailable(unavailable) => unavailable.remedy(),
            Self::LimitRejected { .. } | Self::CpuTooLarge { .. } => "change the limit in the profile".into(),
            Self::SwapUncapped { .. } => "boot with swapaccount=1, or turn swap off: swapoff -a".into(),
            Self::ForeignProc => "mount this PID namespace's own /proc".into(),
            Self::Make { path, source } if source.raw_os_error() == Some(EAGAIN) => format!(
                "raise cgroup.max.descendants or cgroup.max.depth above {}, or remove unused groups there",
                path.display()
            ),
            Self::Make { source, .. } | Self::Write { source, .. } | Self::Door { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                "run as root, or in a delegated scope: systemd-run --user --scope -p Delegate=yes -- ..."
                    .into()
            }
            Self::Make { .. }
            | Self::Open { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Door { .. }
            | Self::OomEvents { .. }
            | Self::Malformed { .. } => "run `stockade doctor` to see which limits this host enforces".into(),
            Self::Kill { path, .. }
            | Self::KillOutrun { path }
            | Self::Wait { path, .. }
            | Self::StillPopulated { path } => {
                format!("see what is left: cat {}/cgroup.procs; then kill those processes", path.display())
            }
            Self::Remove { path, .. } => format!("once it is empty: rmdir {}", path.display()),
        }
    }
}

/// `mkdir` answers EAGAIN at `cgroup.max.descendants` and `cgroup.max.depth`.
const EAGAIN: i32 = 11;
