//! Detached mount trees.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::checked;

/// Makes a detached tree fit to be given away. A copy of a shared mount is its peer: what is mounted
/// on it elsewhere would appear on the host too, so it becomes private. With a user namespace its files
/// are shown through that map: what the map calls inside is what the disk has, what it calls outside
/// is who processes are.
pub fn give_away(tree: BorrowedFd<'_>, owner_map: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let (attr_set, userns_fd) = match owner_map {
        Some(namespace) => {
            (libc::MOUNT_ATTR_IDMAP, u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other)?)
        }
        None => (0, 0),
    };
    let attr = libc::mount_attr { attr_set, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is an empty C string and `attr` a whole struct of the size given; both are only read.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    checked(answer).map(drop)
}
