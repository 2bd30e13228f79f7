//! Signals as something to read: no handler ever runs.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::checked;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
    Hangup,
    Quit,
    WindowChange,
}

const TABLE: [(Signal, libc::c_int); 5] = [
    (Signal::Interrupt, libc::SIGINT),
    (Signal::Terminate, libc::SIGTERM),
    (Signal::Hangup, libc::SIGHUP),
    (Signal::Quit, libc::SIGQUIT),
    (Signal::WindowChange, libc::SIGWINCH),
];

impl Signal {
    pub fn number(self) -> i32 {
        TABLE.iter().find(|(signal, _)| *signal == self).map_or(libc::SIGTERM, |(_, number)| *number)
    }
}

#[derive(Debug)]
pub struct SignalFd(OwnedFd);

fn set_of(numbers: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled above.
    let mut set = unsafe { set.assume_init() };
    for number in numbers {
        // SAFETY: a valid set and a valid signal number.
        unsafe { libc::sigaddset(&raw mut set, number) };
    }
    set
}

/// Blocks these signals for the calling thread and makes them readable. A signal that was ignored
/// when we were started (nohup) stays ignored.
pub fn mask_for_descriptor(signals: &[Signal]) -> io::Result<SignalFd> {
    let set = set_of(signals.iter().map(|signal| signal.number()));
    // SAFETY: a valid set, only read; the old mask is not asked for.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: a valid set, only read; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    checked(libc::c_long::from(fd))?;
    // SAFETY: the kernel just made it and nobody else has it.
    Ok(SignalFd(unsafe { OwnedFd::from_raw_fd(fd) }))
}

impl SignalFd {
    /// The next pending signal of the table, if any.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        let mut record = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most one record.
        let count = unsafe { libc::read(self.0.as_raw_fd(), record.as_mut_ptr().cast(), size) };
        match checked(count as libc::c_long) {
            Ok(_) => {
                // SAFETY: zeroed at first, then filled; every bit pattern is valid.
                let number = unsafe { record.assume_init() }.ssi_signo;
                let found = TABLE.iter().find(|(_, known)| u32::try_from(*known) == Ok(number));
                Ok(found.map(|(signal, _)| *signal))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Everything blocked until dropped: between `vfork` and `exec` a handler would run on shared memory.
pub(crate) struct AllBlocked(libc::sigset_t);

impl AllBlocked {
    pub(crate) fn new() -> io::Result<Self> {
        let mut all = set_of(std::iter::empty());
        // SAFETY: fills a valid set.
        unsafe { libc::sigfillset(&raw mut all) };
        let mut before = set_of(std::iter::empty());
        // SAFETY: two valid sets.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        if blocked == 0 { Ok(Self(before)) } else { Err(io::Error::from_raw_os_error(blocked)) }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: a valid set, only read. It can't fail with a valid `how`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}
