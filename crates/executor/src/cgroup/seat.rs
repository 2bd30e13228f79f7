//! Where on the v2 hierarchy groups may stand: a delegated unit, a cgroup of our own, or, for root,
//! `stockade/` at the top. v2 allows no processes beside children with controllers, so taking a seat
//! may move this process (and no other but the seed that it began with) into a `supervisor` child.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::dir::Dir;
use super::error::{CgroupError, Unavailable};
use super::layout::Controller;

/// The child a supervising process sits in; the name systemd's `DelegateSubgroup=` examples use.
const SUPERVISOR: &str = "supervisor";
/// Root's groups on a host where nothing was delegated.
pub(super) const TOP: &str = "stockade";
/// `scope_reexec_argv` puts scopes in this slice, so that a sweep finds those of dead executors.
pub(super) const SLICE: &str = "stockade.slice";
/// Enabled one by one where they exist; an execution fails only for one it needs.
const CONTROLLERS: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct V2Mount {
    pub(super) point: PathBuf,
    pub(super) own: Option<PathBuf>,
    /// As `/proc/self/cgroup` spells it.
    pub(super) path: PathBuf,
    pub(super) writable: bool,
}

impl V2Mount {
    pub(super) fn own(&self) -> Result<&Path, Unavailable> {
        if !self.writable {
            return Err(Unavailable::ReadOnly { mount: self.point.clone() });
        }
        self.own.as_deref().ok_or_else(|| Unavailable::Unreachable { path: self.path.display().to_string() })
    }

    /// The groups above `own` in which a seat can be: up to the unit we are in, or all without systemd.
    pub(super) fn reach<'a>(&'a self, own: &'a Path) -> impl Iterator<Item = &'a Path> {
        let mut beyond = false;
        own.ancestors().take_while(|path| path.starts_with(&self.point)).take_while(move |path| {
            let within = !beyond;
            beyond |= is_unit(path);
            within
        })
    }

    /// A group without controllers may stand in our own cgroup, whoever else is in there.
    pub(super) fn belt(&self, euid: u32) -> Result<&Path, Unavailable> {
        let own = self.own()?;
        if euid == 0 || owned(own, euid) {
            Ok(own)
        } else {
            Err(Unavailable::NotDelegated { own: own.to_path_buf() })
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seat {
    /// Groups stand directly in `base`.
    Delegated { base: PathBuf, first: First },
    /// Groups stand in `stockade/` below the real root of the hierarchy.
    Top { mount: PathBuf },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Nothing,
    /// We are the only ones in `base` and must leave it.
    Move,
}

/// This process, and the seed of a sandbox that was started before it knew of any group (`stockade_sys::ahead`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Us {
    pub(super) pid: u32,
    pub(super) seed: Option<u32>,
}

impl Seat {
    pub(super) fn choose(mount: &V2Mount, euid: u32, us: Us) -> Result<Self, Unavailable> {
        let own = mount.own()?;
        let within = |path: &&Path| path.starts_with(&mount.point);
        let unit = own.ancestors().take_while(within).find(|path| is_unit(path));
        let mut shared = None;
        let mut consider = |base: &Path| match occupants(base, us) {
            Occupants::None => Some(Self::Delegated { base: base.to_path_buf(), first: First::Nothing }),
            Occupants::OnlyUs => Some(Self::Delegated { base: base.to_path_buf(), first: First::Move }),
            Occupants::Others => {
                shared.get_or_insert(Unavailable::Shared { group: base.to_path_buf() });
                None
            }
        };
        let root = is_root_of_hierarchy(&mount.point);

        // Only the nearest unit's mark speaks of us: one further up was given to somebody else, a user
        // manager for instance, which may switch controllers off again.
        let delegated = unit.filter(|unit| !is_slice(unit) && owned(unit, euid) && marked(unit));
        if let Some(seat) = delegated.and_then(&mut consider) {
            return Ok(seat);
        }
        // What an earlier start of ours, or `DelegateSubgroup=`, left: we sit in BASE/supervisor.
        let above = own.parent().filter(within).filter(|_| own.ends_with(SUPERVISOR));
        if let Some(seat) = above
            .filter(|base| owned(base, euid) && *base != mount.point)
            .filter(|base| matches!(occupants(base, us), Occupants::None))
            .and_then(&mut consider)
        {
            return Ok(seat);
        }
        if euid == 0 && root {
            return Ok(Self::Top { mount: mount.point.clone() });
        }
        let alone = Some(own).filter(|own| owned(own, euid) && !is_root_of_hierarchy(own));
        if let Some(seat) = alone.and_then(&mut consider) {
            return Ok(seat);
        }
        // Without systemd, any empty group above us that is ours will do.
        if unit.is_none() {
            let ours = |base: &&Path| owned(base, euid) && !is_root_of_hierarchy(base);
            for base in own.ancestors().skip(1).take_while(within).take_while(ours) {
                if let Some(seat) = consider(base) {
                    return Ok(seat);
                }
            }
        }
        Err(shared.unwrap_or_else(|| Unavailable::NotDelegated { own: own.to_path_buf() }))
    }

    /// Controllers that a group here could have, by what the seat's own files say.
    pub(super) fn offers(&self) -> Result<Vec<Controller>, CgroupError> {
        let path = self.base().join("cgroup.controllers");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(parse_controllers(&text)),
            Err(source) => Err(CgroupError::Read { path, source }),
        }
    }

    pub(super) fn base(&self) -> &Path {
        match self {
            Self::Delegated { base, .. } => base,
            Self::Top { mount } => mount,
        }
    }

    /// Makes the seat ready for groups and says which controllers they will have.
    pub(super) fn take(&self, us: Us) -> Result<(Dir, Vec<Controller>), CgroupError> {
        let base = Dir::open(self.base())?;
        match self {
            Self::Delegated { first, .. } => {
                if *first == First::Move {
                    leave(&base, us)?;
                }
                let enabled = enable(&base)?;
                Ok((base, enabled))
            }
            Self::Top { .. } => {
                let top = match base.child(TOP) {
                    Ok(top) => top,
                    Err(_) => {
                        enable(&base)?;
                        make_if_missing(&base, TOP)?;
                        base.child(TOP)?
                    }
                };
                // Our own subtree_control also pins the controllers above: the kernel answers EBUSY to
                // anyone who would switch them off there.
                let mut enabled = enable(&top)?;
                if enabled.len() < CONTROLLERS.len() && enable(&base)?.len() > enabled.len() {
                    enabled = enable(&top)?;
                }
                Ok((top, enabled))
            }
        }
    }
}

fn make_if_missing(base: &Dir, name: &str) -> Result<(), CgroupError> {
    match base.make(name) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(CgroupError::Make { path: base.path().join(name), source })
        }
        _ => Ok(()),
    }
}

fn leave(base: &Dir, us: Us) -> Result<(), CgroupError> {
    make_if_missing(base, SUPERVISOR)?;
    // "0" is the writing process, with all its threads.
    let file = format!("{SUPERVISOR}/cgroup.procs");
    base.write(&file, "0").map_err(|source| CgroupError::Door { path: base.path().join(&file), source })?;
    match us.seed.map(|seed| base.write(&file, &seed.to_string())) {
        // One that is gone holds nothing up, and one that stays is said by what comes next.
        Some(Ok(()) | Err(_)) | None => Ok(()),
    }
}

/// Each controller on its own, so that one the kernel lacks does not take the others along. The answer
/// is what the kernel says afterwards, not what was asked.
fn enable(base: &Dir) -> Result<Vec<Controller>, CgroupError> {
    const FILE: &str = "cgroup.subtree_control";
    let read = || match base.read(FILE) {
        Ok(text) => Ok(parse_controllers(&text)),
        Err(source) => Err(CgroupError::Read { path: base.path().join(FILE), source }),
    };
    let before = read()?;
    let missing: Vec<_> = CONTROLLERS.into_iter().filter(|controller| !before.contains(controller)).collect();
    if missing.is_empty() {
        return Ok(before);
    }
    for controller in missing {
        match base.write(FILE, &format!("+{controller}")) {
            Ok(()) => {}
            // Processes arrived since we looked.
            Err(source) if source.kind() == std::io::ErrorKind::ResourceBusy => {
                return Err(Unavailable::Shared { group: base.path().to_path_buf() }.into());
            }
            // Not offered here (ENOENT, EINVAL) or not ours to enable (EACCES): the read below tells, and
            // whoever needs it is refused.
            Err(_) => {}
        }
    }
    read()
}

fn parse_controllers(text: &str) -> Vec<Controller> {
    text.split_ascii_whitespace().filter_map(|name| Controller::from_kernel_name(name.as_bytes())).collect()
}

enum Occupants {
    None,
    OnlyUs,
    Others,
}

/// A list that can't be read counts as occupied.
fn occupants(group: &Path, us: Us) -> Occupants {
    let Ok(text) = fs::read_to_string(group.join("cgroup.procs")) else { return Occupants::Others };
    let is_us = |line: &str| match line.trim().parse::<u32>() {
        Ok(pid) => pid == us.pid || Some(pid) == us.seed,
        Err(_) => false,
    };
    if text.is_empty() {
        Occupants::None
    } else if text.lines().all(is_us) {
        Occupants::OnlyUs
    } else {
        Occupants::Others
    }
}

/// Delegation is a change of owner of the directory and of the two files that move processes and
/// enable controllers. Ownership, not access(2): root may write everything, yet owns nothing of a
/// user's subtree, and there the user could lift root's limits.
fn owned(group: &Path, euid: u32) -> bool {
    const OWNER_WRITES: u32 = 0o200;
    ["", "cgroup.procs", "cgroup.subtree_control"].iter().all(|file| {
        let path = if file.is_empty() { group.to_path_buf() } else { group.join(file) };
        fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == euid && meta.mode() & OWNER_WRITES != 0)
    })
}

/// systemd's mark on a unit with `Delegate=`. Only root can read the `trusted.` one.
fn marked(group: &Path) -> bool {
    #[cfg(test)]
    if super::fake::marked(group) {
        return true;
    }
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0u8; 2];
        matches!(rustix::fs::getxattr(group, *name, &mut value[..]), Ok(1) if value[0] == b'1')
    })
}

fn is_unit(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "service" || kind == "scope" || kind == "slice")
}

fn is_slice(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "slice")
}

/// Every v2 group but the real root has `cgroup.events`; a container's or namespace's root is an
/// ordinary group with processes in it.
fn is_root_of_hierarchy(group: &Path) -> bool {
    group.join("cgroup.controllers").exists() && !group.join("cgroup.events").exists()
}
