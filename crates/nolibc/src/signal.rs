//! Signals, and waiting for them beside a socket.

use crate::call::{call, int, nr};
use crate::{Errno, Fd};

const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
const SET_SIZE: usize = 8;
const SIGCHLD: u32 = 17;
const SFD_CLOEXEC_NONBLOCK: usize = 0o2_000_000 | 0o4_000;

fn mask(how: usize, set: u64) -> Result<(), Errno> {
    // SAFETY: the set is one word, only read; the old set is not asked for.
    let changed = unsafe { call(nr::RT_SIGPROCMASK, [how, &raw const set as usize, 0, SET_SIZE, 0, 0]) };
    changed.map(drop)
}

pub fn block_all() -> Result<(), Errno> {
    mask(SIG_BLOCK, u64::MAX)
}

pub fn unblock_all() -> Result<(), Errno> {
    mask(SIG_SETMASK, 0)
}

/// Back to the default action for these signals (bit 0 is signal 1): ignored ones would be inherited through
/// `execve`, handled ones are not.
pub fn reset(signals: u64) -> Result<(), Errno> {
    let default = [0_u64; 4];
    for signal in (1..=64_usize).filter(|signal| signals >> (signal - 1) & 1 == 1) {
        // SAFETY: a zeroed `struct sigaction` is SIG_DFL; the kernel only reads it.
        unsafe { call(nr::RT_SIGACTION, [signal, default.as_ptr() as usize, 0, SET_SIZE, 0, 0]) }?;
    }
    Ok(())
}

/// Children are ours to wait for: where a caller wanted nothing to do with its own, that was inherited.
pub fn heed_children() -> Result<(), Errno> {
    reset(1 << (SIGCHLD - 1))
}

/// Readable when a child ended.
pub fn signal_fd() -> Result<Fd, Errno> {
    let set = 1_u64 << (SIGCHLD - 1);
    let arguments = [usize::MAX, &raw const set as usize, SET_SIZE, SFD_CLOEXEC_NONBLOCK, 0, 0];
    // SAFETY: the set is one word, only read.
    let made = unsafe { call(nr::SIGNALFD4, arguments) };
    Fd::from_result(made?)
}

pub fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: two numbers.
    let sent = unsafe { call(nr::KILL, [int(pid), int(signal), 0, 0, 0, 0]) };
    sent.map(drop)
}

/// Every process of this PID namespace but ourselves. Only where the namespace is our own.
pub fn kill_every(signal: i32) -> Result<(), Errno> {
    kill(-1, signal)
}

#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

/// Waits until one of two descriptors is readable or at its end, and says which.
pub fn poll_two(first: &Fd, second: &Fd) -> Result<(bool, bool), Errno> {
    const POLLIN: i16 = 1;
    let mut fds = [
        PollFd { fd: first.number(), events: POLLIN, revents: 0 },
        PollFd { fd: second.number(), events: POLLIN, revents: 0 },
    ];
    loop {
        // SAFETY: two whole structs, which the kernel reads and writes; no timeout, no signal mask.
        match unsafe { call(nr::PPOLL, [fds.as_mut_ptr() as usize, 2, 0, 0, 0, 0]) } {
            Ok(_) => return Ok((fds[0].revents != 0, fds[1].revents != 0)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sleeps for so many milliseconds, below a thousand.
pub fn pause(milliseconds: u32) -> Result<(), Errno> {
    let mut time = [0_i64, i64::from(milliseconds % 1000) * 1_000_000];
    // SAFETY: no descriptors; a `timespec` is two such numbers, read and written by the kernel.
    match unsafe { call(nr::PPOLL, [0, 0, time.as_mut_ptr() as usize, 0, 0, 0]) } {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
