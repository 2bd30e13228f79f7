//! How a child ended, and what it and its reaped descendants used.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::checked;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Killed(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rusage {
    pub user: Duration,
    pub system: Duration,
    /// The largest resident set of one process.
    pub max_rss_bytes: u64,
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Reaps the child behind a pidfd; `None` while it lives.
pub fn wait_pidfd(pidfd: BorrowedFd<'_>) -> io::Result<Option<(Ended, Rusage)>> {
    let mut siginfo = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut rusage = MaybeUninit::<libc::rusage>::zeroed();
    // The system call, not libc's function: only the former has the fifth argument. __WALL: of children that end
    // without a signal, too.
    // SAFETY: the kernel fills one of each struct.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_raw_fd(),
            siginfo.as_mut_ptr(),
            libc::WEXITED | libc::WNOHANG | libc::__WALL,
            rusage.as_mut_ptr(),
        )
    };
    checked(answer)?;
    // SAFETY: zeroed at first; every bit pattern is valid.
    let siginfo = unsafe { siginfo.assume_init() };
    // SAFETY: as above.
    let rusage = unsafe { rusage.assume_init() };
    // SAFETY: a child's record, or all zero.
    if unsafe { siginfo.si_pid() } == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let status = unsafe { siginfo.si_status() };
    let ended =
        if siginfo.si_code == libc::CLD_EXITED { Ended::Exited(status) } else { Ended::Killed(status) };
    let usage = Rusage {
        user: duration(rusage.ru_utime),
        system: duration(rusage.ru_stime),
        max_rss_bytes: u64::try_from(rusage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    };
    Ok(Some((ended, usage)))
}
