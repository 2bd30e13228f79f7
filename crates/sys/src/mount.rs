//! Id-mapped mounts.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::checked;

/// Shows the files of a detached mount tree through the id map of a user namespace: what the map
/// calls inside is what the disk has, what it calls outside is who processes are.
pub fn map_owner(tree: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(user_namespace.as_raw_fd()).map_err(io::Error::other)?,
    };
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
