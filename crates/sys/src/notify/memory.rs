//! Another process's memory, copied. By thread id: what was read means something only once
//! [`super::still_waits`] has said afterwards that the thread is still the one that asked.

use std::io;

use crate::checked;

/// The kernel takes no more vectors in one call (UIO_MAXIOV).
const VECTORS_MAX: usize = 1024;

fn fault() -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

/// Copies `into.len()` bytes from `address`, all of them or none.
pub fn read_memory_all(tid: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    if into.is_empty() {
        return Ok(());
    }
    if read_memory(tid, address, into)? == into.len() { Ok(()) } else { Err(fault()) }
}

/// Copies as far as memory is mapped.
pub fn read_memory(tid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let length = into.len();
    copy(tid, &[vector(address, length)?], into)
}

/// Copies the pieces one after the other, as far as they are mapped and as `into` has room.
pub fn read_memory_vectors(tid: u32, from: &[(u64, usize)], into: &mut [u8]) -> io::Result<usize> {
    let mut room = into.len();
    let mut remote = Vec::with_capacity(from.len().min(VECTORS_MAX));
    for (address, length) in from.iter().take(VECTORS_MAX) {
        let length = (*length).min(room);
        remote.push(vector(*address, length)?);
        room -= length;
    }
    let wanted = into.len() - room;
    copy(tid, &remote, into.get_mut(..wanted).unwrap_or_default())
}

fn vector(address: u64, length: usize) -> io::Result<libc::iovec> {
    let address = usize::try_from(address).map_err(io::Error::other)?;
    Ok(libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: length })
}

fn copy(tid: u32, remote: &[libc::iovec], into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes, all of `into`; the remote addresses are another
    // process's and are checked by the kernel.
    let copied = checked(unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            tid,
            std::ptr::from_ref(&local),
            1_usize,
            remote.as_ptr(),
            remote.len(),
            0_usize,
        )
    })?;
    usize::try_from(copied).map_err(io::Error::other)
}
