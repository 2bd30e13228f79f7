//! From a path as a program wrote it to the object that it means in that program's root and directory. The
//! object is held open from here on: what is decided and what is reached are one, whatever its names become.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::address::{DecimalBytes, Own as OwnAddress};
use crate::call::Call;
use crate::own::FileId;
use crate::process::Process;

const PATH_MAX: usize = 4096;
/// A lookup without symbolic links.
const PLAIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_SYMLINKS);
const DELETED: &[u8] = b" (deleted)";
const S_IFMT: u16 = 0o170_000;
const S_IFSOCK: u16 = 0o140_000;

#[derive(Debug)]
pub(crate) struct Object {
    fd: OwnedFd,
    pub(crate) id: FileId,
    /// Seconds and nanoseconds; none where the file system does not keep it.
    pub(crate) born: Option<(i64, u32)>,
    pub(crate) is_socket: bool,
    /// In the view of the mount namespace that it was found in: the sandbox's.
    pub(crate) path: Vec<u8>,
}

impl Object {
    /// An address that means this object and no other.
    pub(crate) fn address(&self) -> OwnAddress {
        OwnAddress::of_descriptor(self.fd.as_raw_fd())
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// What a path descriptor is.
    pub(crate) fn of(call: &Call<'_>, fd: OwnedFd) -> Result<Self, Errno> {
        let path = path_of(call, fd.as_fd())?;
        Self::named(fd, path)
    }

    fn named(fd: OwnedFd, path: Vec<u8>) -> Result<Self, Errno> {
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::BTIME;
        let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, wanted)?;
        let kept = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = kept.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
        let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        let is_socket = stat.stx_mode & S_IFMT == S_IFSOCK;
        Ok(Self { fd, id: FileId { dev, ino: stat.stx_ino }, born, is_socket, path })
    }
}

/// The existing object that `path` means.
pub(crate) fn object(call: &Call<'_>, process: &Process, path: &[u8]) -> Result<Object, Errno> {
    if is_canonical(path)
        && let Ok(fd) = look_up(call, process.root(call.ground.proc.as_fd())?, path, (OFlags::PATH, PLAIN))
    {
        return Object::named(fd, path.to_vec());
    }
    let found = Object::of(call, open(call, process, path, OFlags::PATH)?)?;
    if found.path.ends_with(DELETED) && !is_really_named(call, process, &found) {
        // Its last name went while we looked: the kernel would have found nothing a moment later.
        return Err(Errno::NOENT);
    }
    Ok(found)
}

/// Whether the path, if no symbolic link is on it, is the object's own: the usual case, and one that need not
/// ask the kernel for the name again.
fn is_canonical(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    path.len() > 1 && parts.next() == Some(b"") && parts.all(|part| !matches!(part, b"" | b"." | b".."))
}

/// The directory that a new name would be made in, and the name. A trailing slash stays the kernel's to judge.
pub(crate) fn parent<'p>(
    call: &Call<'_>,
    process: &Process,
    path: &'p [u8],
) -> Result<(Object, &'p [u8]), Errno> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let trimmed = path.get(..end).unwrap_or_default();
    let start = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (directory, name) = trimmed.split_at(start);
    if matches!(name, b"" | b"." | b"..") {
        // They exist always, and bind says of what exists that it is in use.
        return Err(Errno::ADDRINUSE);
    }
    let directory = if directory.is_empty() { b"." } else { directory };
    let found = Object::of(call, open(call, process, directory, OFlags::PATH | OFlags::DIRECTORY)?)?;
    if found.path.ends_with(DELETED) && !is_really_named(call, process, &found) {
        return Err(Errno::NOENT);
    }
    Ok((found, name))
}

/// The kernel marks a path without a name in the same way in which a file may be named.
fn is_really_named(call: &Call<'_>, process: &Process, found: &Object) -> bool {
    open(call, process, &found.path, OFlags::PATH)
        .and_then(|fd| rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO))
        .is_ok_and(|stat| {
            stat.stx_ino == found.id.ino
                && rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor) == found.id.dev
        })
}

fn open(call: &Call<'_>, process: &Process, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let root = process.root(call.ground.proc.as_fd())?;
    if path.first() == Some(&b'/') {
        return look_up(call, root, path, (flags, ResolveFlags::IN_ROOT));
    }
    let directory = process.directory(call.ground.proc.as_fd())?;
    match look_up(call, directory.as_fd(), path, (flags, ResolveFlags::BENEATH)) {
        // `..` or a symbolic link leads out of it: then from the root, by the directory's name.
        Err(Errno::XDEV) => {}
        found => return found,
    }
    let mut whole = path_of(call, directory.as_fd())?;
    whole.push(b'/');
    whole.extend_from_slice(path);
    call.pay();
    look_up(call, root, &whole, (flags, ResolveFlags::IN_ROOT))
}

fn look_up(
    call: &Call<'_>,
    from: BorrowedFd<'_>,
    path: &[u8],
    (flags, how): (OFlags, ResolveFlags),
) -> Result<OwnedFd, Errno> {
    match look_up_settled(call, from, path, (flags, how | ResolveFlags::NO_MAGICLINKS)) {
        Err(Errno::LOOP) => {
            call.pay();
            // The kernel has one word for too many links and for a magic one. Without the ban it has two, and still
            // does not follow a magic link out of a scope.
            match look_up_settled(call, from, path, (flags, how)) {
                Err(Errno::LOOP) => Err(Errno::LOOP),
                Ok(_) | Err(_) => call.go_on().and(Err(Errno::ACCESS)),
            }
        }
        other => other,
    }
}

/// Within a scope, the kernel gives up on a path with `..` when anything was renamed or mounted meanwhile, anywhere on the
/// machine. Without one it does not, so neither does this, as long as the call is waited for. Links of links can make
/// one lookup take milliseconds: none but the first goes unpaid.
fn look_up_settled(
    call: &Call<'_>,
    from: BorrowedFd<'_>,
    path: &[u8],
    (flags, how): (OFlags, ResolveFlags),
) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::fs::openat2(from, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {
                call.pay();
                call.go_on()?;
            }
            other => return other,
        }
    }
}

fn path_of(call: &Call<'_>, fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let digits = DecimalBytes::of(fd.as_raw_fd().unsigned_abs());
    let mut buffer = [MaybeUninit::uninit(); PATH_MAX];
    let own = call.ground.descriptors.as_fd();
    let (path, _) = rustix::fs::readlinkat_raw(own, digits.as_slice(), &mut buffer)?;
    Ok(path.to_vec())
}
