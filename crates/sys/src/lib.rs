//! The safe face of the kernel for programs with a standard library: what rustix does not offer.
//! It knows no product word. The other crate that talks to the kernel is `stockade-nolibc`.

#![expect(
    unsafe_code,
    reason = "one of the two crates that talk to the kernel; the other is stockade-nolibc"
)]

pub mod ahead;
mod entry;
mod landlock;
mod lookup;
mod mount;
mod network;
pub mod notify;
mod patience;
mod probe;
mod signal;
mod spawn;
mod wait;

pub use entry::begin;
pub use landlock::landlock_abi;
pub use lookup::look_up_hosts_in_dns;
pub use mount::give_away;
pub use network::new_network_namespace;
pub use patience::be_patient;
pub use probe::{has_patient_listeners, io_uring_setup, session_keyring, unshare_user};
pub use signal::{Signal, SignalFd, mask_for_descriptor};
pub use spawn::{Child, Namespaces, Spawn, spawn};
pub use wait::{Ended, Rusage, wait_pidfd};

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// A descriptor that the caller says it was started with, if it is open and not our own.
pub fn borrow_inherited(number: RawFd) -> io::Result<BorrowedFd<'static>> {
    if ahead::has(number) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: asks for flags only; a number that is not open is an error.
    checked(libc::c_long::from(unsafe { libc::fcntl(number, libc::F_GETFD) }))?;
    // SAFETY: open just now, and nothing in this process closes descriptors that it did not make.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// The kernel's answer as Rust's errors have it.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
