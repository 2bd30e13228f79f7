//! Socket calls with an address of any bytes: what another process asked for, or what stands for it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::checked;

/// `struct sockaddr_storage`; the kernel refuses more.
const ADDRESS_MAX: usize = 128;

fn address_length(address: &[u8]) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(address.len()).map_err(io::Error::other)
}

pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let length = address_length(address)?;
    // SAFETY: the kernel reads `length` bytes of `address` and checks what they mean.
    let answer = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    checked(libc::c_long::from(answer)).map(drop)
}

pub fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let length = address_length(address)?;
    // SAFETY: the kernel reads `length` bytes of `address` and checks what they mean.
    let answer = unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    checked(libc::c_long::from(answer)).map(drop)
}

pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: numbers only.
    let answer = unsafe { libc::listen(socket.as_raw_fd(), backlog) };
    checked(libc::c_long::from(answer)).map(drop)
}

/// The address that a socket is bound to, and how many of its bytes count.
pub fn local_name(socket: BorrowedFd<'_>) -> io::Result<([u8; ADDRESS_MAX], usize)> {
    let mut name = [0; ADDRESS_MAX];
    let mut length = address_length(&name)?;
    // SAFETY: the kernel writes at most `length` bytes, and the length that it had.
    let answer = unsafe { libc::getsockname(socket.as_raw_fd(), name.as_mut_ptr().cast(), &raw mut length) };
    checked(libc::c_long::from(answer))?;
    Ok((name, usize::try_from(length).unwrap_or(0).min(ADDRESS_MAX)))
}

/// How much of what this socket sent nobody has read yet.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    checked(libc::c_long::from(answer))?;
    usize::try_from(count).map_err(io::Error::other)
}

/// A number that stands for the socket's network namespace, and for no other while the machine runs.
pub fn network_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie = 0_u64;
    let mut length = address_length(&cookie.to_ne_bytes())?;
    // SAFETY: the kernel writes one u64, and its length.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    checked(libc::c_long::from(answer)).map(|_| cookie)
}

/// What [`send`] sends.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub name: &'a [u8],
    pub bytes: &'a [u8],
    pub control: &'a [u8],
}

/// One `sendmsg`, never with a SIGPIPE for the caller.
pub fn send(socket: BorrowedFd<'_>, message: &Message<'_>, flags: i32) -> io::Result<usize> {
    let mut piece =
        libc::iovec { iov_base: message.bytes.as_ptr().cast_mut().cast(), iov_len: message.bytes.len() };
    // SAFETY: plain numbers and null pointers.
    let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
    if !message.name.is_empty() {
        head.msg_name = message.name.as_ptr().cast_mut().cast();
        head.msg_namelen = address_length(message.name)?;
    }
    head.msg_iov = &raw mut piece;
    head.msg_iovlen = 1;
    if !message.control.is_empty() {
        head.msg_control = message.control.as_ptr().cast_mut().cast();
        head.msg_controllen = message.control.len();
    }
    // SAFETY: name, bytes and control outlive the call, and the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const head, flags | libc::MSG_NOSIGNAL) };
    let sent = checked(sent as libc::c_long)?;
    usize::try_from(sent).map_err(io::Error::other)
}

/// The file that an AF_UNIX socket is bound to, as a path descriptor. Needs CAP_NET_ADMIN where the
/// socket's network namespace belongs.
pub fn bound_file(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SIOCUNIXFILE: libc::c_ulong = 0x89e0;
    // SAFETY: takes no argument.
    let fd = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCUNIXFILE, 0) };
    checked(libc::c_long::from(fd))?;
    // SAFETY: the kernel just made it and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
