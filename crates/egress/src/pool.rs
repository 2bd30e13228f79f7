//! Sockets inside the sandbox's network namespace, used again and again: nobody out here can make another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{connect_unspec, getpeername};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::shared::lock;

/// Nothing between here and the sandbox takes time but a full backlog.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the sandbox to take what was sent: it is in the kernel already, the program may read slowly.
const LAST_BYTES: Duration = Duration::from_secs(30);
/// Between two looks whether it has: the kernel tells nobody. Doubled up to the second.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));

/// What one connection into the sandbox needs: an unconnected TCP socket of each family from inside.
#[derive(Debug)]
pub struct Inside {
    pub four: OwnedFd,
    pub six: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct Pool {
    free: Mutex<Vec<Inside>>,
    slots: Arc<Semaphore>,
}

/// The sockets of one connection, to be given back.
#[derive(Debug)]
pub(crate) struct Slot {
    sockets: Inside,
    permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(sockets: Vec<Inside>) -> Self {
        let slots = Arc::new(Semaphore::new(sockets.len()));
        Self { free: Mutex::new(sockets), slots }
    }

    /// The next that is free. The caller sets the deadline.
    pub(crate) async fn take(&self) -> Option<Slot> {
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        let sockets = lock(&self.free).pop()?;
        Some(Slot { sockets, permit })
    }

    /// A connection that still lives on it is reset.
    pub(crate) fn give_back(&self, Slot { sockets, permit }: Slot) {
        match (connect_unspec(&sockets.four), connect_unspec(&sockets.six)) {
            (Ok(()), Ok(())) => {
                lock(&self.free).push(sockets);
                drop(permit);
            }
            // Sockets that can't be used again: there is one slot less.
            (Err(_), _) | (_, Err(_)) => permit.forget(),
        }
    }
}

impl Slot {
    /// Servers listen on either loopback address; IPv4 first, as most do.
    pub(crate) async fn connect(&self, port: u16) -> Option<TcpStream> {
        let Inside { four, six } = &self.sockets;
        let places = [(four, IpAddr::from(Ipv4Addr::LOCALHOST)), (six, IpAddr::from(Ipv6Addr::LOCALHOST))];
        for (socket, address) in places {
            let attempt = attempt(socket, SocketAddr::new(address, port));
            match timeout(PATIENCE, attempt).await {
                Ok(Ok(stream)) => return Some(stream),
                // So that a late answer meets nobody.
                Ok(Err(_)) | Err(_) => self.sever(),
            }
        }
        None
    }

    /// Ends what lives on its sockets, with a reset where the other has not ended it.
    pub(crate) fn sever(&self) {
        match (connect_unspec(&self.sockets.four), connect_unspec(&self.sockets.six)) {
            // Giving it back finds sockets that can't be used again.
            (Ok(()) | Err(_), Ok(()) | Err(_)) => {}
        }
    }

    /// Waits until a connection that both sides ended is gone, or its last bytes would be cut off: to
    /// disconnect is to forget what the other has not taken yet.
    pub(crate) async fn settle(&self) {
        let deadline = Instant::now() + LAST_BYTES;
        let (mut pause, longest) = LOOKS;
        while self.is_connected() && Instant::now() < deadline {
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// The kernel has no peer to name once the connection is closed, its end acknowledged.
    fn is_connected(&self) -> bool {
        [&self.sockets.four, &self.sockets.six].into_iter().any(|socket| getpeername(socket).is_ok())
    }
}

/// On a copy of the descriptor: the runtime closes what it was given.
async fn attempt(socket: &OwnedFd, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = std::net::TcpStream::from(socket.try_clone()?);
    socket.set_nonblocking(true)?;
    let stream = TcpSocket::from_std_stream(socket).connect(address).await?;
    // Where nobody listens, the kernel may choose the very port as ours and connect us to ourselves.
    if stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}
