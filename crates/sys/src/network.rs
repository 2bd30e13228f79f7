//! A network namespace that nobody is in yet.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::checked;

/// `struct ifreq` for the flags of `lo`.
#[repr(C)]
struct Flags {
    name: [u8; 16],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// With its loopback up. Owned by the caller's user namespace, over which the caller needs power.
pub fn new_network_namespace() -> io::Result<OwnedFd> {
    // A thread of its own: it leaves the caller's namespace and never comes back.
    std::thread::scope(|scope| {
        let made = std::thread::Builder::new().name("network".to_owned()).spawn_scoped(scope, make)?;
        made.join().unwrap_or_else(|_| Err(io::Error::other("its thread ended early")))
    })
}

fn make() -> io::Result<OwnedFd> {
    // SAFETY: takes flags only; memory and descriptors stay as they are.
    checked(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWNET) }))?;
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let mut request = Flags { name: [0; 16], flags: 0, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    request.flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    // SAFETY: the kernel reads the 40 bytes of `request`, which is that large.
    checked(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}
