//! The new root, step by step: system paths, devices, proc, scratch, home, toolchains, extra paths, the
//! workspace, and the guards over it. Order matters: a later step stands on what an earlier one made.
//! It decides nothing about layers. Next: `landlock` derives its rules from this list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use stockade_proto::{Bind, Bytes, Identity, Mount, MountKind};

use crate::git::GitFacts;
use crate::profile::View;
use crate::report::{HostReport, Match, NAME_FILES, Object, SystemPath};

pub(crate) struct Layout<'r> {
    pub(crate) report: &'r HostReport,
    pub(crate) identity: Identity,
    pub(crate) view: View,
    pub(crate) home: &'r Bytes,
    mounts: Vec<Mount>,
}

const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// What an ordinary user could read of the host through a fresh procfs, or what is dangerous if a kernel's
/// own check fails. Each costs a mount: what only host root can open anyway is left out.
const PROC_MASKS: [(&str, bool, &str); 9] = [
    ("/proc/kcore", false, "the kernel's memory"),
    ("/proc/sysrq-trigger", false, "kills or reboots the host"),
    ("/proc/keys", false, "names of the caller's keys"),
    ("/proc/key-users", false, "who has keys"),
    ("/proc/kallsyms", false, "kernel addresses"),
    ("/proc/cmdline", false, "boot parameters, sometimes secrets"),
    ("/proc/acpi", true, "the host's hardware"),
    ("/proc/scsi", true, "the host's disks"),
    ("/proc/fs", true, "the host's file systems"),
];

/// Where a home can't be an empty directory of its own.
const NO_HOME: [&str; 14] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/nix", "/proc", "/sys",
    "/dev", "/boot",
];

/// The home inside the sandbox: the caller's path, or `/tmp` where that path is the system's own.
pub(crate) fn sandbox_home(home: &Bytes) -> Bytes {
    let path = home.as_path();
    let taken = path == Path::new("/") || NO_HOME.iter().any(|system| path.starts_with(system));
    if taken || !path.is_absolute() { Bytes::from("/tmp") } else { home.clone() }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guard {
    Pin,
    Protect,
    Mask { is_dir: bool },
}

impl<'r> Layout<'r> {
    pub(crate) const fn new(report: &'r HostReport, identity: Identity, view: View, home: &'r Bytes) -> Self {
        Self { report, identity, view, home, mounts: Vec::new() }
    }

    /// What stands before the survey has looked at the workspace and the toolchains.
    pub(crate) fn ground(mut self) -> Vec<Mount> {
        self.system();
        self.devices();
        self.proc();
        self.mounts
    }

    /// The whole root, on top of its ground.
    pub(crate) fn build(mut self, ground: Vec<Mount>) -> Vec<Mount> {
        let first = ground.len();
        self.mounts = ground;
        self.scratch();
        self.toolchains();
        self.shared();
        self.leave_out_hidden(first);
        self.guards();
        self.mounts
    }

    /// A private directory at whose very place something of the host's is shown: nobody would see it.
    fn leave_out_hidden(&mut self, first: usize) {
        let binds = self.mounts.iter().filter(|mount| matches!(mount.kind, MountKind::Bind(_)));
        let shown: Vec<Bytes> = binds.map(|mount| mount.target.clone()).collect();
        let mut at = 0;
        self.mounts.retain(|mount| {
            at += 1;
            let hidden = matches!(mount.kind, MountKind::Scratch { .. }) && shown.contains(&mount.target);
            at <= first || !hidden
        });
    }

    fn is_writable(&self) -> bool {
        self.view == View::WorkspaceRw
    }

    fn add(&mut self, target: impl Into<Bytes>, kind: MountKind, reason: impl Into<Cow<'static, str>>) {
        self.mounts.push(Mount { target: target.into(), kind, reason: reason.into() });
    }

    fn bind(
        &mut self,
        object: &Object,
        writable: bool,
        owner_mapped: bool,
        reason: impl Into<Cow<'static, str>>,
    ) {
        let bind = Bind { source: object.source(), writable, owner_mapped };
        self.add(object.path.clone(), MountKind::Bind(bind), reason);
    }

    fn system(&mut self) {
        for path in &self.report.system {
            match path {
                SystemPath::Directory(object) => {
                    self.bind(object, false, false, "programs and their settings")
                }
                SystemPath::Symlink { path, to } => {
                    self.add(path.clone(), MountKind::Symlink { to: to.clone() }, "as on the host");
                }
            }
        }
    }

    fn devices(&mut self) {
        self.add("/dev", MountKind::Dir { mode: 0o755 }, "devices that hold no state of the host");
        for device in DEVICES {
            self.add(device, MountKind::Device, "every program expects it");
        }
        for (link, to) in DEVICE_LINKS {
            self.add(link, MountKind::Symlink { to: Bytes::from(to) }, "every shell expects it");
        }
        self.add("/dev/pts", MountKind::DevPts, "terminals of its own");
        self.add("/dev/ptmx", MountKind::Symlink { to: Bytes::from("pts/ptmx") }, "terminals of its own");
        self.add("/dev/shm", MountKind::Scratch { mode: 0o1777 }, "shared memory of its own");
    }

    fn proc(&mut self) {
        self.add("/proc", MountKind::Proc, "its own processes only");
        for (path, is_dir, reason) in PROC_MASKS {
            self.add(path, MountKind::Mask { is_dir, optional: true }, reason);
        }
        self.add("/proc/sys", MountKind::Protect { optional: true }, "kernel settings can't be changed");
        self.add("/sys", MountKind::Dir { mode: 0o555 }, "empty: the host's hardware is not shown");
    }

    fn scratch(&mut self) {
        self.add("/tmp", MountKind::Scratch { mode: 0o1777 }, "private, gone afterwards");
        self.add("/var", MountKind::Dir { mode: 0o755 }, "the host's state is not shown");
        let below_var_tmp = |path: &Bytes| path.as_path().starts_with("/var/tmp");
        let shared = self.report.extras.iter().filter_map(|extra| extra.object.as_ref());
        let shown = self.report.shown.iter().map(|shown| &shown.object);
        // A bind below a symlink would land in /tmp.
        let used =
            shared.chain(shown).chain([&self.report.workspace]).any(|object| below_var_tmp(&object.path));
        if used || below_var_tmp(self.home) {
            self.add("/var/tmp", MountKind::Scratch { mode: 0o1777 }, "private, gone afterwards");
        } else {
            self.add("/var/tmp", MountKind::Symlink { to: Bytes::from("/tmp") }, "private, gone afterwards");
        }
        self.add("/run", MountKind::Dir { mode: 0o755 }, "sockets of the host's services are not shown");
        if self.home.as_slice() != b"/tmp" {
            self.add(self.home.clone(), MountKind::Scratch { mode: 0o700 }, "an empty home, gone afterwards");
        }
    }

    fn toolchains(&mut self) {
        let report = self.report;
        for path in &report.scratch {
            // In a home that is private it is so too.
            let in_home = path.as_path().starts_with(self.home.as_path());
            let kind =
                if in_home { MountKind::Dir { mode: 0o755 } } else { MountKind::Scratch { mode: 0o755 } };
            self.add(path.clone(), kind, "a toolchain writes its locks here");
        }
        let mut shown = report.shown.iter().collect::<Vec<_>>();
        shown.sort_by(|a, b| a.object.path.cmp(&b.object.path));
        for entry in shown {
            let mapped = self.identity.is_mapped() && entry.object.uid == self.identity.uid;
            self.bind(&entry.object, false, mapped, entry.reason.clone());
            for credential in &entry.credentials {
                let kind = MountKind::Mask { is_dir: credential.is_dir, optional: false };
                self.add(credential.path.clone(), kind, "holds credentials");
            }
        }
        if let Some(contents) = report.git_identity.to_config() {
            let target = self.home.as_path().join(".gitconfig");
            let kind = MountKind::File { mode: 0o644, contents: Bytes::from(contents) };
            self.add(target, kind, "who commits, and nothing else of the caller's git settings");
        }
    }

    /// Extra paths, a worktree's repository and the workspace, each with whether it can be written and why it is there.
    fn shares(&self) -> Vec<(&'r Object, bool, &'static str)> {
        let report = self.report;
        let writable = self.is_writable();
        let mut shared: Vec<(&Object, bool, &'static str)> =
            vec![(&report.workspace, writable, "the workspace")];
        for extra in &report.extras {
            let Some(object) = extra.object.as_ref().filter(|_| !extra.needed.bound_only) else { continue };
            let reason =
                if extra.needed.writable { "writable in the profile" } else { "readable in the profile" };
            shared.push((object, extra.needed.writable, reason));
        }
        if let GitFacts::Worktree { common, .. } = &report.git
            && !common.path.as_path().starts_with(report.workspace.path.as_path())
        {
            shared.push((common, writable, "the repository of this worktree"));
        }
        shared
    }

    /// Parents first.
    fn shared(&mut self) {
        let mut shared = self.shares();
        shared.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        let mapped = self.identity.is_mapped();
        for (object, writable, reason) in shared {
            self.bind(object, writable, mapped, reason);
        }
    }

    /// Masks, protections and pins in one list, parents first: a pin laid over a directory later than the
    /// mask below it would hide the mask.
    fn guards(&mut self) {
        let report = self.report;
        let mut guards: BTreeMap<Bytes, (Guard, &'static str)> = BTreeMap::new();
        for Match { path, is_dir } in &report.deny {
            raise(&mut guards, path.clone(), Guard::Mask { is_dir: *is_dir }, "denied by the profile");
        }
        for path in &report.deny_in_place {
            self.pin_above(&mut guards, path);
        }
        if self.is_writable() {
            for path in report
                .deny_write
                .iter()
                .map(|found| &found.path)
                .chain(report.absent.iter().map(|held| &held.path))
            {
                self.pin_above(&mut guards, path);
                raise(&mut guards, path.clone(), Guard::Protect, "deny-write in the profile");
            }
            if report.guard_git {
                self.git(&mut guards);
            }
        }
        let mut held: BTreeMap<Bytes, Guard> = BTreeMap::new();
        for (path, (guard, reason)) in guards {
            // Below a mask nothing exists to stand on; below a protected directory nothing needs protecting.
            let above = path.as_path().ancestors().skip(1);
            if above.filter_map(|above| held.get(&Bytes::from(above))).any(|above| guard <= *above) {
                continue;
            }
            if guard != Guard::Pin {
                held.insert(path.clone(), guard);
            }
            let kind = match guard {
                Guard::Pin => MountKind::Pin,
                Guard::Protect => MountKind::Protect { optional: false },
                Guard::Mask { is_dir } => MountKind::Mask { is_dir, optional: false },
            };
            self.add(path, kind, reason);
        }
    }

    /// A renamed parent would take the protected path with it and leave its name free for a forgery.
    fn pin_above(&self, guards: &mut BTreeMap<Bytes, (Guard, &'static str)>, path: &Bytes) {
        // The outermost mount that holds it, of those that can be written: elsewhere nothing can be moved.
        let writable = self.shares().into_iter().filter(|(_, writable, _)| *writable);
        let roots = writable.map(|(object, ..)| object.path.as_path());
        let holds = roots.filter(|root| path.as_path().starts_with(root));
        let Some(root) = holds.min_by_key(|root| root.as_os_str().len()) else { return };
        for parent in path.as_path().ancestors().skip(1).take_while(|parent| *parent != root) {
            raise(guards, Bytes::from(parent), Guard::Pin, "holds a protected path in its place");
        }
    }

    fn git(&self, guards: &mut BTreeMap<Bytes, (Guard, &'static str)>) {
        let dot_git = Bytes::from(self.report.workspace.path.as_path().join(".git"));
        match &self.report.git {
            GitFacts::Absent => {}
            GitFacts::Directory => raise(guards, dot_git, Guard::Pin, "holds a protected path in its place"),
            GitFacts::Unverified { .. } => raise(guards, dot_git, Guard::Protect, "names the repository"),
            GitFacts::Worktree { gitdir, .. } => {
                raise(guards, dot_git, Guard::Protect, "names the repository");
                for name in ["commondir", "gitdir"] {
                    let path = Bytes::from(gitdir.path.as_path().join(name));
                    self.pin_above(guards, &path);
                    raise(guards, path, Guard::Protect, "names the repository");
                }
            }
        }
    }
}

/// Under an allowlist, over what the root shows of the host. A file that the profile itself names stays.
pub(crate) fn name_files(report: &HostReport, root: &[Mount]) -> Vec<Mount> {
    let shown = |path: &Bytes| {
        let binds = root.iter().filter(|mount| matches!(mount.kind, MountKind::Bind(_)));
        let mut above = binds.filter(|mount| path.as_path().starts_with(mount.target.as_path())).peekable();
        above.peek().is_some() && above.all(|mount| mount.target != *path)
    };
    let known = NAME_FILES.iter().map(|(path, contents)| (Bytes::from(*path), *contents));
    known
        .filter(|(path, _)| report.name_files.contains(path) && shown(path))
        .map(|(target, contents)| Mount {
            target,
            kind: MountKind::Cover { contents: Bytes::from(contents) },
            reason: Cow::Borrowed("this host's names don't count under an allowlist"),
        })
        .collect()
}

fn raise(
    guards: &mut BTreeMap<Bytes, (Guard, &'static str)>,
    path: Bytes,
    guard: Guard,
    reason: &'static str,
) {
    let slot = guards.entry(path).or_insert((guard, reason));
    if guard > slot.0 {
        *slot = (guard, reason);
    }
}
