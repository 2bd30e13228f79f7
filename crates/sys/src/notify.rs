//! seccomp user notification: a call of another process waits until someone answers it. The notification
//! here; `memory` reads what its pointers point to, `socket` performs on descriptors with bytes as an address,
//! `thread` interrupts and disguises the performing thread, `stand_in` performs from inside the other's world.

mod memory;
mod socket;
mod stand_in;
mod thread;

pub use memory::{read_memory, read_memory_all, read_memory_vectors};
pub use socket::{Message, bind, bound_file, connect, listen, local_name, network_cookie, send, unread};
pub use stand_in::{Place, bind_elsewhere, remove_elsewhere};
pub use thread::{
    accept_interrupts, interrupt, ready_for_interrupts, set_file_ids, signal_thread, stand_in_directory,
    thread_pidfd,
};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::checked;

/// Each interruption takes a signal: more come only from someone who does nothing else.
const ASKED_MAX: usize = 1024;

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    pub id: u64,
    /// The thread, as the receiver's PID namespace numbers it.
    pub tid: u32,
    pub number: i32,
    pub arch: u32,
    /// Registers as they were: the kernel itself would look at the lower half of most of them only.
    pub args: [u64; 6],
}

/// Waits for the next call. `NotFound`: it ended before it could be told.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // SAFETY: plain numbers; the kernel wants it zeroed.
    let mut told: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills one struct of the size that the request number names.
    let answer = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, std::ptr::from_mut(&mut told))
    };
    checked(libc::c_long::from(answer))?;
    Ok(Notification {
        id: told.id,
        tid: told.pid,
        number: told.data.nr,
        arch: told.data.arch,
        args: told.data.args,
    })
}

/// Lets the waiting call return. `NotFound`: it no longer waits.
pub fn answer(listener: BorrowedFd<'_>, id: u64, result: Result<i64, i32>) -> io::Result<()> {
    let (val, error) = match result {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno),
    };
    respond(listener, libc::seccomp_notif_resp { id, val, error, flags: 0 })
}

/// Lets the waiting call run as if nobody had been asked, on whatever its arguments are by then. Here to
/// show in tests that this loses the race: a decision made on those arguments means nothing.
pub fn let_go(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    respond(listener, libc::seccomp_notif_resp { id, val: 0, error: 0, flags: 1 })
}

fn respond(listener: BorrowedFd<'_>, mut response: libc::seccomp_notif_resp) -> io::Result<()> {
    uninterrupted(|| {
        // SAFETY: a whole struct of the size that the request number names.
        let sent = unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                std::ptr::from_mut(&mut response),
            )
        };
        checked(libc::c_long::from(sent)).map(drop)
    })
}

/// The kernel waits for the filter's lock in a way that a signal ends, and the crew's threads are sent signals: that
/// says nothing of the call that waits.
fn uninterrupted(mut ask: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 1..ASKED_MAX {
        match ask() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
    ask()
}

/// Whether that call still waits, so that its thread id still means its thread.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    let asked = uninterrupted(|| {
        // SAFETY: reads one u64.
        let answer = unsafe {
            libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, std::ptr::from_ref(&id))
        };
        checked(libc::c_long::from(answer)).map(drop)
    });
    asked.is_ok()
}

/// Asks the kernel to switch between caller and answerer on one CPU (6.6 and later).
pub fn switch_on_one_cpu(listener: BorrowedFd<'_>) -> io::Result<()> {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: the argument is a number.
    let answer =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    checked(libc::c_long::from(answer)).map(drop)
}

/// Puts the calling thread, and what it starts from here on, behind a filter whose `notify` calls wait on
/// the descriptor returned. `program` is an array of `struct sock_filter`.
pub fn listen_to_myself(program: &[u8]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len() / 8).map_err(io::Error::other)?;
    let head = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the kernel reads `length` instructions, all inside `program`, and copies them.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&head))
    })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just made it and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel answers in turn, and how often it was asked.
    fn asked(answers: &[i32]) -> (Option<i32>, usize) {
        let mut count = 0;
        let result = uninterrupted(|| {
            let answer = answers.get(count).copied().unwrap_or(libc::EINTR);
            count += 1;
            if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
        });
        (result.err().and_then(|error| error.raw_os_error()), count)
    }

    #[test]
    fn a_signal_says_nothing_of_the_call_that_waits() {
        assert_eq!(asked(&[0]), (None, 1));
        assert_eq!(asked(&[libc::EINTR, libc::EINTR, 0]), (None, 3));
        assert_eq!(asked(&[libc::EINTR, libc::ENOENT, 0]), (Some(libc::ENOENT), 2));
        assert_eq!(asked(&[libc::ENOENT, 0]), (Some(libc::ENOENT), 1));
        assert_eq!(asked(&[]), (Some(libc::EINTR), ASKED_MAX));
    }
}
