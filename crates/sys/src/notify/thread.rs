//! Single threads: ours, which must be interruptible and may act under other ids, and another process's.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::checked;

/// Nothing else here uses it, and its default is to be ignored: a stray one is harmless.
const INTERRUPT: libc::c_int = libc::SIGURG;

const PIDFD_THREAD: libc::c_uint = libc::O_EXCL.cast_unsigned();

extern "C" fn nothing(_: libc::c_int) {}

/// From here on [`interrupt`] makes a blocked call of a thread fail with EINTR, which is all that its
/// handler is for.
pub fn ready_for_interrupts() -> io::Result<()> {
    // SAFETY: plain numbers; no flags, so calls are not restarted, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = (nothing as extern "C" fn(libc::c_int)) as usize;
    // SAFETY: a whole struct; the handler touches nothing, so it may run anywhere.
    let answer = unsafe { libc::sigaction(INTERRUPT, &raw const action, std::ptr::null_mut()) };
    checked(libc::c_long::from(answer)).map(drop)
}

/// Lets the calling thread be interrupted, whatever mask it was started with.
pub fn accept_interrupts() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled above, and a valid signal number.
    unsafe { libc::sigaddset(set.as_mut_ptr(), INTERRUPT) };
    // SAFETY: a valid set, only read; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Interrupts a thread of this process. One that is not in a call yet misses it: repeat until it is heard.
pub fn interrupt(tid: u32) -> io::Result<()> {
    signal_thread(std::process::id(), tid, INTERRUPT)
}

/// Sends a signal to one thread of a process.
pub fn signal_thread(process: u32, tid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: numbers only; the kernel checks that the thread is that process's.
    checked(unsafe { libc::syscall(libc::SYS_tgkill, process, tid, signal) }).map(drop)
}

/// A descriptor of one thread (6.9 and later); before, `InvalidInput` unless it leads its process.
pub fn thread_pidfd(tid: u32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    let opened = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD) });
    let fd = match opened {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: numbers only.
            checked(unsafe { libc::syscall(libc::SYS_pidfd_open, tid, 0) })?
        }
        other => other?,
    };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just made it and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The ids that file permissions of the calling thread are checked with; its other ids stay.
pub fn set_file_ids(uid: u32, gid: u32) {
    // The calls answer with the id before, never with an error; whoever may not change it is left as is.
    // SAFETY: a number.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    // SAFETY: a number.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
}

/// Gives the calling thread a working directory of its own.
pub fn stand_in_directory(directory: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes flags only; memory and descriptors stay as they are.
    checked(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_FS) }))?;
    Ok(rustix::process::fchdir(directory)?)
}

/// Confines the calling thread, and what it starts from here on, by a Landlock ruleset.
pub(super) fn restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: two numbers.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) }).map(drop)
}
