//! Names in the workspace that a protection needs to stand on while an execution lasts: an empty
//! `.stockade`, an empty `.git/hooks`, a `commondir` that leads nowhere else. They carry a mark in their
//! mode that no person sets, so that whoever leaves last, or the next execution after a killed one,
//! knows them and takes them away. Removing a name detaches the mounts on it in every namespace;
//! therefore everybody holds a shared lock on the names that their protections stand on, and only an
//! exclusive lock allows to remove one. Locks hold between users and die with their holder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use stockade_proto::{Bytes, Code, Fault, MountKind, PlaceholderKind, Plan};

use crate::Abort;
use crate::lingering::Lingering;

/// The mark: the sticky bit, and writable by nobody.
const DIRECTORY_MARK: u32 = 0o1555;
const FILE_MARK: u32 = 0o1444;

/// Another execution that leaves may take a name away between our look and our lock, and be kept from the processor
/// while it does: this is for one that never comes back.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// The locks of one execution, until it leaves.
#[derive(Debug)]
pub(crate) struct Holds<'a> {
    plan: &'a Plan,
    locks: Vec<(&'a Bytes, OwnedFd)>,
    /// Where they go that may stand a little longer.
    lingering: Option<Arc<Lingering>>,
}

impl<'a> Holds<'a> {
    /// Puts up what is missing, and locks all that the plan protects in the workspace.
    pub(crate) fn take(plan: &'a Plan, lingering: Option<Arc<Lingering>>) -> Result<Self, Abort> {
        let mut holds = Self { plan, locks: Vec::new(), lingering };
        for target in protected(plan) {
            let held = hold(plan, target).map_err(|error| {
                Fault::new(
                    Code::SpawnFailed,
                    format!("{target} could not be held for its protection: {error}"),
                    "Make the workspace writable for you, or create that name yourself.",
                )
            })?;
            holds.locks.extend(held.map(|lock| (target, lock)));
        }
        Ok(holds)
    }

    /// Takes away what nobody else stands on, and says what could not be.
    pub(crate) fn leave(mut self) -> Vec<String> {
        self.let_go()
    }

    fn let_go(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for (target, lock) in std::mem::take(&mut self.locks) {
            let kind = kind_of(self.plan, target);
            if is_marked(&lock, kind)
                && let Some(lingering) = &self.lingering
            {
                match lingering.leave(target.to_path_buf(), kind, lock) {
                    Ok(()) => continue,
                    Err(lock) => drop(lock),
                }
            } else {
                drop(lock);
            }
            if let Err(error) = take_away(target.as_path(), kind) {
                faults.push(format!("{target} could not be removed: {error}"));
            }
        }
        faults
    }
}

fn is_marked(lock: &OwnedFd, kind: PlaceholderKind) -> bool {
    rustix::fs::fstat(lock).is_ok_and(|stat| stat.st_mode & 0o7777 == mark_of(kind))
}

impl Drop for Holds<'_> {
    fn drop(&mut self) {
        // On the way out of a failure, which is what the caller hears about.
        drop(self.let_go());
    }
}

/// In the workspace, or in the repository that it is a worktree of. `/proc` is the sandbox's own.
fn protected(plan: &Plan) -> impl Iterator<Item = &Bytes> {
    plan.mounts
        .iter()
        .filter(|mount| matches!(mount.kind, MountKind::Protect { .. }))
        .map(|mount| &mount.target)
        .filter(|target| !target.as_path().starts_with("/proc"))
}

/// What a name is held with. One that was there when the plan was made may be another execution's.
fn kind_of(plan: &Plan, target: &Bytes) -> PlaceholderKind {
    let planned = plan.placeholders.iter().find(|placeholder| placeholder.path == *target);
    let by_name = || match target.as_path().file_name().and_then(|name| name.to_str()) {
        Some("commondir") => PlaceholderKind::GitCommondir,
        Some("config.worktree") => PlaceholderKind::EmptyFile,
        _ => PlaceholderKind::EmptyDirectory,
    };
    planned.map_or_else(by_name, |placeholder| placeholder.kind)
}

fn lock(path: &Path, operation: FlockOperation) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&fd, operation)?;
    // Removed while we waited for the lock: the name is somebody else's now.
    if rustix::fs::fstat(&fd)?.st_nlink == 0 { Err(Errno::NOENT) } else { Ok(fd) }
}

fn hold(plan: &Plan, target: &Bytes) -> io::Result<Option<OwnedFd>> {
    let path = target.as_path();
    let (deadline, mut nap) = (Instant::now() + PATIENCE, SHORTEST_NAP);
    loop {
        match lock(path, FlockOperation::NonBlockingLockShared) {
            Ok(fd) => return Ok(Some(fd)),
            Err(Errno::NOENT) => put(path, kind_of(plan, target))?,
            // Being taken away right now.
            Err(Errno::WOULDBLOCK) => {
                std::thread::sleep(nap);
                nap = (nap * 2).min(LONGEST_NAP);
            }
            // A person's own file that we may not read, or a socket: nobody takes that away.
            Err(Errno::ACCESS | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        if Instant::now() > deadline {
            return Err(io::Error::from(io::ErrorKind::ResourceBusy));
        }
    }
}

fn put(path: &Path, kind: PlaceholderKind) -> io::Result<()> {
    let made = match kind.contents() {
        None => fs::DirBuilder::new().mode(DIRECTORY_MARK).create(path),
        Some(contents) => {
            let file = File::options().create_new(true).write(true).mode(FILE_MARK).open(path);
            file.and_then(|mut file| file.write_all(contents))
        }
    };
    match made {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    }
    take_owner_of_parent(path)?;
    // Whatever the umask left of it.
    fs::set_permissions(path, fs::Permissions::from_mode(mark_of(kind)))
}

fn mark_of(kind: PlaceholderKind) -> u32 {
    if kind.contents().is_some() { FILE_MARK } else { DIRECTORY_MARK }
}

/// Root makes it, the workspace's owner has it.
fn take_owner_of_parent(path: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let metadata = fs::symlink_metadata(path.parent().unwrap_or(Path::new("/")))?;
    std::os::unix::fs::lchown(path, Some(metadata.uid()), Some(metadata.gid()))
}

/// Only what carries the mark and is still as it was made: anything else is a person's.
pub(crate) fn take_away(path: &Path, kind: PlaceholderKind) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if metadata.mode() & 0o7777 != mark_of(kind) {
        return Ok(());
    }
    // Gone, or a protection of another execution stands on it: then it stays.
    let Ok(_alone) = lock(path, FlockOperation::NonBlockingLockExclusive) else { return Ok(()) };
    let removed = match kind.contents() {
        None => fs::remove_dir(path),
        Some(contents) if fs::read(path)? == contents => fs::remove_file(path),
        Some(_) => Ok(()),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other,
    }
}
