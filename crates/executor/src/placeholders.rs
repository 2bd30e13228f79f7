//! Names in the workspace that a protection needs to stand on while an execution lasts: an empty
//! `.stockade`, an empty `.git/hooks`, a `commondir` that leads nowhere else. They carry a mark in their
//! mode that no person sets, so that whoever leaves last, or the next execution after a killed one,
//! knows them and takes them away. Removing a name detaches the mounts on it in every namespace;
//! therefore everybody holds a shared lock on the names that their protections stand on, and only an
//! exclusive lock allows to remove one. Locks hold between users and die with their holder.
//!
//! The directory that a name is in is opened once, through no symbolic link and below what the plan binds, whose device and inode
//! the plan knows: a workspace that another one is put in place of gets no name of ours.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use stockade_proto::{Bind, Bytes, Code, Fault, Mount, MountKind, PlaceholderKind, Plan};

use crate::Abort;
use crate::lingering::Lingering;

/// The mark: the sticky bit. A directory is its owner's to write to: what a person puts there makes it theirs.
const DIRECTORY_MARK: u32 = 0o1755;
const FILE_MARK: u32 = 0o1444;

/// Another execution that leaves may take a name away between our look and our lock, and be kept from the processor
/// while it does: this is for one that never comes back.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// The locks of one execution, until it leaves.
#[derive(Debug)]
pub(crate) struct Holds {
    held: Vec<Held>,
    /// Where they go that may stand a little longer.
    lingering: Option<Arc<Lingering>>,
}

/// A name that a protection stands on.
#[derive(Debug)]
pub(crate) struct Held {
    name: Name,
    lock: OwnedFd,
}

#[derive(Debug)]
struct Name {
    /// As the plan has it, for people.
    target: Bytes,
    directory: OwnedFd,
    name: OsString,
    kind: PlaceholderKind,
}

impl Holds {
    /// Puts up what is missing, and locks all that the plan protects in the workspace.
    pub(crate) fn take(plan: &Plan, lingering: Option<Arc<Lingering>>) -> Result<Self, Abort> {
        let mut holds = Self { held: Vec::new(), lingering };
        for target in protected(plan) {
            let held = Name::open(plan, target).and_then(Name::hold).map_err(|error| {
                Fault::new(
                    Code::SpawnFailed,
                    format!("{target} could not be held for its protection: {error}"),
                    "Make the workspace writable for you, or create that name yourself; if it was replaced just now, try again.",
                )
            })?;
            holds.held.extend(held);
        }
        Ok(holds)
    }

    /// Takes away what nobody else stands on, and says what could not be.
    pub(crate) fn leave(mut self) -> Vec<String> {
        self.let_go()
    }

    fn let_go(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for held in std::mem::take(&mut self.held) {
            let left = match self.lingering.as_ref().filter(|_| held.is_placeholder()) {
                Some(lingering) => lingering.leave(held),
                None => Err(held),
            };
            let Err(held) = left else { continue };
            let target = held.name.target.clone();
            if let Err(error) = held.end() {
                faults.push(format!("{target} could not be removed: {error}"));
            }
        }
        faults
    }
}

impl Drop for Holds {
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

/// The nearest bind above it: what is protected is what the sandbox shows.
fn bind_above<'p>(plan: &'p Plan, target: &Path) -> Option<&'p Bind> {
    let binds = plan.mounts.iter().filter_map(Mount::bind);
    let above = binds.filter(|bind| target != bind.source.path.as_path());
    let above = above.filter(|bind| target.starts_with(bind.source.path.as_path()));
    above.max_by_key(|bind| bind.source.path.len())
}

fn open_bound(bind: &Bind) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = bind.source.path.as_path();
    let directory = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let stat = rustix::fs::fstat(&directory)?;
    if (stat.st_dev, stat.st_ino) == (bind.source.dev, bind.source.ino) {
        Ok(directory)
    } else {
        Err(Errno::STALE)
    }
}

impl Name {
    fn open(plan: &Plan, target: &Bytes) -> io::Result<Self> {
        let path = target.as_path();
        let (bind, name) = bind_above(plan, path).zip(path.file_name()).ok_or(Errno::NOENT)?;
        let bound = open_bound(bind)?;
        let below = path.parent().and_then(|parent| parent.strip_prefix(bind.source.path.as_path()).ok());
        let directory = match below {
            Some(below) if below != Path::new("") => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
                rustix::fs::openat2(&bound, below, flags, Mode::empty(), resolve)?
            }
            Some(_) => bound,
            None => return Err(Errno::NOENT.into()),
        };
        let kind = kind_of(plan, target);
        Ok(Self { target: target.clone(), directory, name: name.to_owned(), kind })
    }

    fn name(&self) -> &OsStr {
        &self.name
    }

    /// None for what nobody takes away: a person's own file that we may not read, or a socket.
    fn hold(self) -> io::Result<Option<Held>> {
        let (deadline, mut nap) = (Instant::now() + PATIENCE, SHORTEST_NAP);
        loop {
            match self.lock(FlockOperation::NonBlockingLockShared) {
                Ok(lock) => return Ok(Some(Held { name: self, lock })),
                Err(Errno::NOENT) => self.put()?,
                // Being taken away right now.
                Err(Errno::WOULDBLOCK) => {
                    std::thread::sleep(nap);
                    nap = (nap * 2).min(LONGEST_NAP);
                }
                Err(Errno::ACCESS | Errno::NXIO) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            if Instant::now() > deadline {
                return Err(io::Error::from(io::ErrorKind::ResourceBusy));
            }
        }
    }

    fn open_itself(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(&self.directory, self.name(), flags, Mode::empty())
    }

    fn lock(&self, operation: FlockOperation) -> Result<OwnedFd, Errno> {
        let fd = self.open_itself()?;
        rustix::fs::flock(&fd, operation)?;
        // Removed while we waited for the lock: the name is somebody else's now.
        if rustix::fs::fstat(&fd)?.st_nlink == 0 { Err(Errno::NOENT) } else { Ok(fd) }
    }

    /// Whoever comes second finds it there. It stays whose it is made: nothing that has the name a moment later is given
    /// to anybody, and nothing is changed but what we have just made.
    fn put(&self) -> io::Result<()> {
        let mark = Mode::from_raw_mode(mark_of(self.kind));
        let made = match self.kind.contents() {
            None => {
                rustix::fs::mkdirat(&self.directory, self.name(), mark).and_then(|()| self.whole_mark(mark))
            }
            Some(contents) => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match rustix::fs::openat(&self.directory, self.name(), flags, mark) {
                    Ok(file) => {
                        // Whatever the umask left of it.
                        rustix::fs::fchmod(&file, mark)?;
                        return File::from(file).write_all(contents);
                    }
                    Err(errno) => Err(errno),
                }
            }
        };
        match made {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A strict umask takes a part of the mark away. Only from a directory of ours that has the rest of it: a command may have
    /// put another one in its place.
    fn whole_mark(&self, mark: Mode) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stat = rustix::fs::statat(&self.directory, self.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if is_marked(&stat, self.kind) {
            return Ok(());
        }
        let fd = rustix::fs::openat(&self.directory, self.name(), flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let bits = stat.st_mode & 0o7777;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 2;
        let rest = bits & !mark.as_raw_mode() == 0 && bits & 0o1700 == 0o1700;
        if ours && rest { rustix::fs::fchmod(&fd, mark) } else { Err(Errno::STALE) }
    }

    /// Only what carries the mark and is still as it was made: anything else is a person's.
    fn take_away(&self) -> io::Result<()> {
        let found = rustix::fs::statat(&self.directory, self.name(), AtFlags::SYMLINK_NOFOLLOW);
        if !found.is_ok_and(|stat| is_marked(&stat, self.kind)) {
            return Ok(());
        }
        // Gone, or a protection of another execution stands on it: then it stays.
        let Ok(alone) = self.lock(FlockOperation::NonBlockingLockExclusive) else { return Ok(()) };
        let remove = |flags| rustix::fs::unlinkat(&self.directory, self.name(), flags);
        let removed = match self.kind.contents() {
            None => remove(AtFlags::REMOVEDIR),
            Some(contents) => {
                let mut found = Vec::new();
                File::from(alone).take(contents.len() as u64 + 1).read_to_end(&mut found)?;
                if found == contents { remove(AtFlags::empty()) } else { Ok(()) }
            }
        };
        match removed {
            Ok(()) | Err(Errno::NOTEMPTY) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Held {
    fn is_placeholder(&self) -> bool {
        rustix::fs::fstat(self.lock.as_fd()).is_ok_and(|stat| is_marked(&stat, self.name.kind))
    }

    /// Whether both stand on the same thing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let number = |held: &Self| rustix::fs::fstat(&held.lock).map(|stat| (stat.st_dev, stat.st_ino));
        self.name.name == other.name.name && number(self).is_ok_and(|own| number(other) == Ok(own))
    }

    /// Lets go, and takes it away if nobody else stands on it.
    pub(crate) fn end(self) -> io::Result<()> {
        let Self { name, lock } = self;
        drop(lock);
        name.take_away()
    }
}

fn mark_of(kind: PlaceholderKind) -> u32 {
    if kind.contents().is_some() { FILE_MARK } else { DIRECTORY_MARK }
}

fn is_marked(stat: &Stat, kind: PlaceholderKind) -> bool {
    let wanted = if kind.contents().is_some() { FileType::RegularFile } else { FileType::Directory };
    stat.st_mode & 0o7777 == mark_of(kind) && FileType::from_raw_mode(stat.st_mode) == wanted
}
