//! Accepting without end: a machine out of descriptors makes it pause, not spin, and nothing makes it stop.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

use crate::shared::Shared;
use crate::{charged, connection};

/// Out of descriptors or memory: connections wait in the kernel's queue until others have ended.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn listen(listener: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// `short` hears why nothing can be accepted for a while.
pub(crate) async fn accept(listener: &TcpListener, short: impl Fn(&io::Error)) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::CONNABORTED | Errno::INTR) => tokio::task::yield_now().await,
                Some(_) | None => {
                    short(&error);
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

/// Takes connections from one of the sandbox's listeners.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let stream = accept(&listener, |error| shared.cannot_accept(error)).await;
        let Some(destination) = destination(&stream) else {
            reset(stream);
            continue;
        };
        match Arc::clone(&shared.slots).try_acquire_owned() {
            Ok(slot) => {
                let (shared, charge) = (Arc::clone(&shared), &shared.charge);
                charged::spawn(charge, async move {
                    connection::serve(&shared, stream, destination).await;
                    drop(slot);
                });
            }
            Err(_) => {
                shared.too_many(destination);
                reset(stream);
            }
        }
    }
}

/// Where the program meant to go: every address is local to its namespace, so the accepted socket has it.
fn destination(stream: &TcpStream) -> Option<(IpAddr, u16)> {
    stream.local_addr().ok().map(|address: SocketAddr| (address.ip().to_canonical(), address.port()))
}

/// Ends a connection so that the peer sees it was not a normal end.
pub(crate) fn reset(stream: TcpStream) {
    match stream.set_zero_linger() {
        // The peer is gone already; closing is all that is left.
        Ok(()) | Err(_) => drop(stream),
    }
}
