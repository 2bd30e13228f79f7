//! The halves of a link. A Unix socket tells whoever waits to write each time that the other side has read something,
//! and the runtime's own type always waits for both: we would be woken for every message that an executor takes. So
//! the reading half waits for bytes alone, and the writing half only while there is no room.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Blocking;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use tokio::io::AsyncWrite;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// What reads nothing but bytes, and waits for nothing else; of a pipe or a socket is the same to it.
pub(super) type Reading = pipe::Receiver;

/// `socket` does not block. Within the runtime.
pub(super) fn halves(socket: OwnedFd) -> io::Result<(Reading, Writing)> {
    let writing = Writing { socket: socket.try_clone()?, full: None };
    Ok((Reading::from_owned_fd_unchecked(socket)?, writing))
}

#[derive(Debug)]
pub(super) struct Writing {
    socket: OwnedFd,
    /// The same, waited for, while it takes nothing.
    full: Option<UnixStream>,
}

impl Writing {
    fn try_write(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            done => Some(done.map_err(io::Error::from)),
        }
    }
}

impl AsyncWrite for Writing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(done) = self.try_write(bytes) {
            self.full = None;
            return Poll::Ready(done);
        }
        let Self { socket, full } = &mut *self;
        let full = match full {
            Some(full) => full,
            // A descriptor of its own: one can't be waited for twice.
            None => full.insert(UnixStream::from_std(Blocking::from(socket.try_clone()?))?),
        };
        let done = ready!(Pin::new(full).poll_write(context, bytes));
        self.full = None;
        Poll::Ready(done)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(&self.socket, Shutdown::Write)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    fn pair() -> ((Reading, Writing), (Reading, Writing)) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, two) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        (halves(one).unwrap(), halves(two).unwrap())
    }

    #[tokio::test]
    async fn much_goes_through_whoever_is_slower() {
        let ((_here, mut writing), (mut reading, _there)) = pair();
        let sent: Vec<u8> = (0..4 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
        let all = sent.clone();
        let writes = tokio::spawn(async move {
            writing.write_all(&all).await.unwrap();
            writing.shutdown().await.unwrap();
            writing.full.is_none()
        });
        let mut got = Vec::new();
        let mut piece = vec![0; 100_000];
        loop {
            match reading.read(&mut piece).await.unwrap() {
                0 => break,
                read => got.extend_from_slice(&piece[..read]),
            }
            tokio::task::yield_now().await;
        }
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        assert!(writes.await.unwrap(), "nobody waits for room any more");
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_is_an_error_and_ends_a_wait() {
        let ((_here, mut writing), there) = pair();
        let full = timeout(Duration::from_millis(50), writing.write_all(&vec![0; 4 << 20])).await;
        assert!(full.is_err(), "there was room");
        let gone = tokio::spawn(async move { writing.write_all(&vec![0; 4 << 20]).await });
        tokio::task::yield_now().await;
        drop(there);
        assert_eq!(gone.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
