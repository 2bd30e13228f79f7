//! bind(socket, address, length). A path is bound by a copy of the supervisor that stands where the caller
//! stands (`stockade_sys::notify::bind_elsewhere`): the kernel keeps the name as it is given, so it must be
//! given as it was asked for, and the file must be made by the caller's user, under its umask and its rules.
//!
//! The kernel looks the path up again there. A swapped link can move the new file to another directory that
//! the command may write to anyway; the socket is then withdrawn, and the call fails.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use stockade_proto::SocketOperation;
use stockade_sys::notify::{self, Place};
use stockade_sys::{Ended, wait_pidfd};

use crate::address::{self, Named, STORAGE};
use crate::call::{Call, Owner, Subject, errno};
use crate::decide::Address;
use crate::diag;
use crate::family::Family;
use crate::own::Bound;
use crate::process::Process;
use crate::queued;
use crate::resolve::{self, Object};
use crate::status::Status;

/// A file system that takes longer to make one file is not answering.
const DEADLINE: Duration = Duration::from_secs(10);
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How [`notify::bind_elsewhere`] says that the copy did not get there.
const NOT_THERE: i32 = 255;

pub(crate) fn bind(call: &Call<'_>) -> Result<i64, Errno> {
    let (process, socket) = call.socket()?;
    let mut storage = [0; STORAGE];
    let length = call.address(call.arg(1), address::length(call.arg(2))?, &mut storage)?;
    let raw = storage.get(..length).unwrap_or_default();
    let as_is = || call.wait(|| notify::bind(socket.as_fd(), raw));
    let family = Family::of(&socket)?;
    if family != Family::Unix {
        family.may_bind(call, &socket, raw)?;
        call.check()?;
        return as_is().map(|()| 0);
    }
    match address::parse(raw)? {
        Named::Path(path) => bind_path(call, &process, &socket, (raw, path)),
        Named::Unspecified => Err(Errno::INVAL),
        Named::Abstract(name) => bind_abstract(call, &process, &socket, (raw, name)),
        // The kernel chooses an abstract name.
        Named::Unnamed => bind_abstract(call, &process, &socket, (raw, b"")),
    }
    .map(|()| 0)
}

fn bind_abstract(
    call: &Call<'_>,
    process: &Process,
    socket: &OwnedFd,
    (raw, name): (&[u8], &[u8]),
) -> Result<(), Errno> {
    let subject = Subject { operation: SocketOperation::Bind, address: Address::Abstract(name), own: false };
    // A name that is only taken because we hold its last datagram is free.
    queued::locked(call.ground).let_go_of_datagrams();
    call.decided(process, &subject, |_| {
        call.wait(|| notify::bind(socket.as_fd(), raw))?;
        let (bound, length) = notify::local_name(socket.as_fd()).map_err(|error| errno(&error))?;
        if let Ok(Named::Abstract(name)) = address::parse(bound.get(..length).unwrap_or_default()) {
            call.ground.own().add_name(name);
        }
        Ok(())
    })
}

fn bind_path(
    call: &Call<'_>,
    process: &Process,
    socket: &OwnedFd,
    (raw, asked): (&[u8], &[u8]),
) -> Result<(), Errno> {
    let (directory, name) = resolve::parent(call, process, asked).inspect_err(|errno| {
        if *errno == Errno::ACCESS {
            call.refuse(SocketOperation::Bind, asked, "the path can't be followed for this process");
        }
    })?;
    let mut path = directory.path.clone();
    if path != b"/" {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    let address = Address::Path { path: &path, dev: directory.id.dev, ino: directory.id.ino };
    let subject = Subject { operation: SocketOperation::Bind, address, own: false };
    call.decided(process, &subject, |_| {
        if has_name(socket)? {
            return Err(Errno::INVAL);
        }
        let begun = begun();
        let stood = stand_in(call, process, |place| notify::bind_elsewhere(socket.as_fd(), raw, place));
        if stood.is_err() && !has_name(socket)? {
            return stood;
        }
        let expected = Expected { directory: &directory, name, asked, begun };
        let landed = landed(call, process, socket, &expected);
        match (stood, landed) {
            (Ok(()), Ok(Some(object))) if object.path == path => remember(call, socket, object),
            (stood, landed) => {
                let errno = stood.err().or(landed.as_ref().err().copied()).unwrap_or(Errno::ACCESS);
                withdraw(call, process, socket, landed.ok().flatten().as_ref());
                Err(errno)
            }
        }
    })
}

/// Whether the socket is bound. One that was killed for being late may have done its work before.
fn has_name(socket: &OwnedFd) -> Result<bool, Errno> {
    let (name, length) = notify::local_name(socket.as_fd()).map_err(|error| errno(&error))?;
    Ok(!matches!(address::parse(name.get(..length).unwrap_or_default()), Ok(Named::Unnamed)))
}

/// The time now, as files are born by it.
fn begun() -> (i64, u32) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn remember(call: &Call<'_>, socket: &OwnedFd, object: Object) -> Result<(), Errno> {
    let cookie = rustix::net::sockopt::socket_cookie(socket)?;
    let (name, length) = notify::local_name(socket.as_fd()).map_err(|error| errno(&error))?;
    let name = name.get(..length).unwrap_or_default().to_vec();
    let bound = Bound { file: object.id, path: object.path.clone(), name };
    call.ground.own().add_file(cookie, bound, object.into_fd());
    Ok(())
}

/// Makes a socket that is bound where nobody decided it may be of no use: nothing reaches it any more, and its
/// name goes if it can be found. It is not remembered, so it can't listen either.
fn withdraw(call: &Call<'_>, process: &Process, socket: &OwnedFd, landed: Option<&Object>) {
    if rustix::net::shutdown(socket, rustix::net::Shutdown::Both).is_err() {
        // ENOTCONN is said after it is done.
    }
    let Some(object) = landed else { return };
    let removed = resolve::parent(call, process, &object.path).and_then(|(directory, name)| {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let file = (object.id.dev, object.id.ino);
        stand_in(call, process, |place| notify::remove_elsewhere(directory.as_fd(), &name, file, place))
    });
    if removed.is_err() {
        // It was moved again, or may not be removed: a dead name stays.
    }
}

/// Performs where the caller stands.
fn stand_in(
    call: &Call<'_>,
    process: &Process,
    act: impl FnOnce(&Place<'_>) -> io::Result<OwnedFd>,
) -> Result<(), Errno> {
    let (proc, tid) = (call.ground.proc.as_fd(), call.note.tid);
    let umask = Status::read(proc, tid)?.umask;
    let user = other_namespace(proc, tid, "user")?;
    let mount = other_namespace(proc, tid, "mnt")?;
    let root = process.root(proc)?;
    let directory = process.directory(proc)?;
    let ids = call.ground.identity.map(crate::identity::Identity::ids);
    // Where nothing allows a change of root it must be ours already.
    let same_root = user.is_none() && mount.is_none() && ids.is_none() && is_our_root(root)?;
    let place = Place {
        user_namespace: user.as_ref().filter(|_| ids.is_none()).map(AsFd::as_fd),
        mount_namespace: mount.as_ref().map(AsFd::as_fd),
        root: (!same_root).then_some(root),
        directory: directory.as_fd(),
        umask,
        ids,
        ruleset: call.ground.landlock.as_ref().map(AsFd::as_fd),
    };
    call.check()?;
    let copy = act(&place).map_err(|error| errno(&error))?;
    outcome(call, &copy)
}

/// The caller's namespace of that kind, if it is not the supervisor's.
fn other_namespace(proc: BorrowedFd<'_>, tid: u32, kind: &str) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let theirs = rustix::fs::openat(proc, format!("{tid}/ns/{kind}"), flags, Mode::empty())?;
    let ours = rustix::fs::openat(proc, format!("thread-self/ns/{kind}"), flags, Mode::empty())?;
    Ok((rustix::fs::fstat(&theirs)?.st_ino != rustix::fs::fstat(&ours)?.st_ino).then_some(theirs))
}

fn is_our_root(root: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (theirs, ours) = (rustix::fs::fstat(root)?, rustix::fs::stat(c"/")?);
    Ok((theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino))
}

/// Waits for the copy and reaps it; a late one is killed.
fn outcome(call: &Call<'_>, copy: &OwnedFd) -> Result<(), Errno> {
    let deadline = Instant::now() + DEADLINE;
    let mut given_up = None;
    loop {
        let mut fds = [PollFd::new(copy, PollFlags::IN)];
        match poll(&mut fds, Some(&STEP)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => break,
            Err(errno) => return Err(errno),
        }
        let late = (Instant::now() > deadline).then_some(Errno::TIMEDOUT);
        if let Some(errno) = call.post.reason().map(crate::post::Reason::errno).or(late) {
            given_up.get_or_insert(errno);
            if pidfd_send_signal(copy, Signal::KILL).is_err() {
                // It ended by itself.
            }
        }
    }
    let ended = wait_pidfd(copy.as_fd()).map_err(|error| errno(&error))?;
    if let Some((_, used)) = ended {
        call.ground.charge.add(used.user + used.system);
    }
    match (ended.map(|(ended, _)| ended), given_up) {
        (Some(Ended::Exited(0)), _) => Ok(()),
        (_, Some(errno)) => Err(errno),
        (None | Some(Ended::Killed(_) | Ended::Exited(NOT_THERE)), None) => Err(Errno::ACCESS),
        (Some(Ended::Exited(number)), None) => Err(Errno::from_raw_os_error(number)),
    }
}

/// Where a new file was decided to be.
struct Expected<'a> {
    directory: &'a Object,
    name: &'a [u8],
    /// As the caller wrote it.
    asked: &'a [u8],
    /// A time before the bind.
    begun: (i64, u32),
}

/// The file that the socket is bound to, by the word of the socket itself. None where it can't be found: then
/// whatever has the name is not this socket.
fn landed(
    call: &Call<'_>,
    process: &Process,
    socket: &OwnedFd,
    expected: &Expected<'_>,
) -> Result<Option<Object>, Errno> {
    match call.at_once_as(Owner::Other, || notify::bound_file(socket.as_fd())) {
        Ok(file) => return Object::of(call, file).map(Some),
        // In a network that is not the sandbox's own; there the numbers are told to everyone.
        Err(Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let told = diag::file_of(socket)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let here = rustix::fs::openat(expected.directory.as_fd(), expected.name, flags, Mode::empty())
        .and_then(|file| Object::of(call, file));
    let is_it = |object: &Object| told.is(call, object, expected.begun);
    if let Ok(object) = here
        && is_it(&object)
    {
        return Ok(Some(object));
    }
    Ok(resolve::object(call, process, expected.asked).ok().filter(is_it))
}
