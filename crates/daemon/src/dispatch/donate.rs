//! The second socketpair of an executor: a file for each execution, in one packet with its id.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// An executor that takes no file for so long is no executor any more.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Donations {
    /// Packets with an end, which the runtime has no type for; it only waits for room here.
    socket: UnixDatagram,
}

impl Donations {
    /// `socket` does not block. Within the runtime.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixDatagram::from(socket);
        Ok(Self { socket: UnixDatagram::from_std(socket)? })
    }

    pub(super) async fn send(&self, execution: &str, file: OwnedFd) -> io::Result<()> {
        let sent = self.socket.async_io(Interest::WRITABLE, || send(&self.socket, execution, &file));
        tokio::time::timeout(PATIENCE, sent).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn send(socket: &UnixDatagram, execution: &str, file: &OwnedFd) -> io::Result<()> {
    let fds = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::NOBUFS.into());
    }
    let packet = [IoSlice::new(execution.as_bytes())];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &packet, &mut ancillary, flags).map(drop)?)
}
