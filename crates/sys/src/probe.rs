//! Calls that exist to be tried: each asks the kernel for one thing and says what it answered.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::checked;

/// `struct io_uring_params` of the kernel is 120 bytes.
const PARAMS_WORDS: usize = 30;

const KEYCTL_GET_KEYRING_ID: libc::c_long = 0;
const KEY_SPEC_SESSION_KEYRING: libc::c_long = -3;

/// A ring with room for one entry.
pub fn io_uring_setup() -> io::Result<OwnedFd> {
    let mut params = [0_u32; PARAMS_WORDS];
    // SAFETY: the kernel reads and writes the 120 bytes of `params`, which is that large.
    let fd = checked(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, params.as_mut_ptr()) })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just made it and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of the caller's session keyring.
pub fn session_keyring() -> io::Result<i64> {
    // SAFETY: numbers only.
    checked(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) })
}

/// Moves the calling process, which must have one thread, into a new user namespace. Its ids are unmapped
/// from here on.
pub fn unshare_user() -> io::Result<()> {
    // SAFETY: takes flags only; memory and descriptors stay as they are.
    checked(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWUSER) })).map(|_| ())
}

/// Whether a filter may have a listener whose received calls only a fatal signal interrupts (Linux 5.19).
pub fn has_patient_listeners() -> bool {
    const SET_MODE_FILTER: libc::c_ulong = 1;
    const NEW_LISTENER: libc::c_ulong = 1 << 3;
    const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
    let no_program = std::ptr::null::<libc::c_void>();
    // SAFETY: without a program nothing is installed: flags that the kernel knows are EFAULT, others EINVAL.
    let answer = checked(unsafe {
        libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE_RECV, no_program)
    });
    answer.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
}
