//! The second socketpair of an executor: a file for each execution, in one packet with its id; an id alone for one that
//! nothing is to become of.

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

/// Packets with an end, which the runtime has no type for; it only waits for room, where there is none.
#[derive(Debug)]
pub(super) struct Donations {
    socket: OwnedFd,
}

impl Donations {
    /// `socket` does not block.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    pub(super) async fn send(&self, execution: &str, file: Option<OwnedFd>) -> io::Result<()> {
        let file = file.as_ref();
        match send(&self.socket, execution, file) {
            Err(Errno::AGAIN) => {}
            sent => return Ok(sent?),
        }
        // Only now: whoever waits for room is told each time that the executor takes a packet.
        let full = UnixDatagram::from_std(self.socket.try_clone()?.into())?;
        let sent = full.async_io(Interest::WRITABLE, || Ok(send(&self.socket, execution, file)?));
        tokio::time::timeout(PATIENCE, sent).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn send(socket: &OwnedFd, execution: &str, file: Option<&OwnedFd>) -> Result<(), Errno> {
    let fds: Vec<_> = file.map(AsFd::as_fd).into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::NOBUFS);
    }
    let packet = [IoSlice::new(execution.as_bytes())];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &packet, &mut ancillary, flags).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    #[tokio::test]
    async fn who_finds_no_room_waits_for_it() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let file = || OwnedFd::from(tempfile::tempfile().unwrap());
        let (donations, given) = (Donations::new(ours), file());
        let mut waiting = 0;
        while send(&donations.socket, "before", Some(&given)).is_ok() {
            waiting += 1;
        }
        let sent = tokio::spawn(async move { donations.send("after", Some(file())).await });
        tokio::task::yield_now().await;
        assert!(!sent.is_finished());
        let mut taken = [0; 16];
        let mut packets = 0;
        while packets <= waiting {
            match recv(&theirs, &mut taken, RecvFlags::DONTWAIT) {
                Ok(_) => packets += 1,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        sent.await.unwrap().unwrap();
        assert_eq!(&taken[..5], b"after");
    }
}
