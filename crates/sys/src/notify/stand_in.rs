//! A short-lived copy of the calling thread that steps into another process's namespaces, root, directory,
//! ids and Landlock rules, and binds a socket or removes a name there. The kernel keeps the name of a socket as it was given,
//! and shows it to `getsockname` and to the receivers of datagrams: it must be the name that was asked for,
//! so it must be looked up where it was asked for. A thread can't go there: a user namespace takes only whole
//! processes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::AtFlags;

use super::thread::restrict;
use crate::checked;

/// Where to step before binding.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub user_namespace: Option<BorrowedFd<'a>>,
    pub mount_namespace: Option<BorrowedFd<'a>>,
    /// Changed to with `chroot`; none where it is the root of the mount namespace already.
    pub root: Option<BorrowedFd<'a>>,
    pub directory: BorrowedFd<'a>,
    pub umask: u32,
    /// Whom to become for good; the caller's saved ids are root's.
    pub ids: Option<(u32, u32)>,
    pub ruleset: Option<BorrowedFd<'a>>,
}

/// What the copy exits with when it did not get as far as the bind. Errors of the kernel are smaller.
const NOT_THERE: i32 = 255;

/// Binds from inside `place`. The descriptor is the copy's: it becomes readable when the copy has ended,
/// and its exit status is the error of the bind, 0, or 255 where the place was out of reach.
pub fn bind_elsewhere(socket: BorrowedFd<'_>, address: &[u8], place: &Place<'_>) -> io::Result<OwnedFd> {
    let length = libc::socklen_t::try_from(address.len()).map_err(io::Error::other)?;
    elsewhere(place, || {
        // SAFETY: the kernel reads `length` bytes of `address` and checks what they mean.
        let answer = unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), length) };
        checked(libc::c_long::from(answer)).map(drop)
    })
}

/// Removes a name from a directory if it still means that device and number; answers as [`bind_elsewhere`].
/// From inside `place` too: if the name comes to mean another file, it goes by the rights of whoever made it so.
pub fn remove_elsewhere(
    directory: BorrowedFd<'_>,
    name: &CStr,
    file: (u64, u64),
    place: &Place<'_>,
) -> io::Result<OwnedFd> {
    elsewhere(place, || {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (found.st_dev, found.st_ino) != file {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
    })
}

/// Runs `act` in the copy. It must make system calls only.
fn elsewhere(place: &Place<'_>, act: impl FnOnce() -> io::Result<()>) -> io::Result<OwnedFd> {
    let parent = rustix::process::getpid();
    let mut pidfd: i32 = -1;
    // No exit signal: nobody but the holder of the pidfd is told, or may reap it.
    let flags = libc::CLONE_PIDFD | libc::CLONE_FILES;
    // SAFETY: as fork: the copy has its own memory and stack, and makes system calls only, so that locks
    // which other threads held at this moment don't matter.
    let pid =
        checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, &raw mut pidfd, 0_usize, 0_usize) })?;
    if pid == 0 {
        let status = match step(place).and_then(|()| stay_with(parent)) {
            Err(_) => NOT_THERE,
            Ok(()) => match act() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            },
        };
        loop {
            // SAFETY: ends the copy only; the loop is for the type.
            unsafe { libc::syscall(libc::SYS_exit_group, status) };
        }
    }
    // SAFETY: clone succeeded, so it wrote a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// Ends the copy with the thread that made it. After every change of ids: those take it back.
fn stay_with(parent: rustix::process::Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// The copy, alone in its memory. Capabilities that the steps need go before the last of them.
fn step(place: &Place<'_>) -> io::Result<()> {
    if place.ids.is_some() {
        let (keep, root) = (libc::uid_t::MAX, 0);
        // SAFETY: numbers only. The system call: libc's function is for all threads of a process.
        checked(unsafe { libc::syscall(libc::SYS_setresuid, keep, root, keep) })?;
    }
    for (namespace, kind) in
        [(place.user_namespace, libc::CLONE_NEWUSER), (place.mount_namespace, libc::CLONE_NEWNS)]
    {
        if let Some(namespace) = namespace {
            // SAFETY: numbers only.
            checked(libc::c_long::from(unsafe { libc::setns(namespace.as_raw_fd(), kind) }))?;
        }
    }
    if let Some(root) = place.root {
        rustix::process::fchdir(root)?;
        rustix::process::chroot(c".")?;
    }
    rustix::process::fchdir(place.directory)?;
    if let Some((uid, gid)) = place.ids {
        // SAFETY: an empty list.
        checked(unsafe { libc::syscall(libc::SYS_setgroups, 0_usize, std::ptr::null::<u32>()) })?;
        // SAFETY: numbers only.
        checked(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
        // SAFETY: numbers only.
        checked(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })?;
    }
    let none = rustix::thread::CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    if let Some(ruleset) = place.ruleset {
        rustix::thread::set_no_new_privs(true)?;
        restrict(ruleset)?;
    }
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(place.umask & 0o777));
    Ok(())
}
