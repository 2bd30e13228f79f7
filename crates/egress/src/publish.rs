//! The other way in: a listener on the host's loopback whose connections go to a port inside the sandbox.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::Inside;
use crate::accept::{accept, reset};
use crate::relay::{self, Ending, Side};
use crate::shared::Shared;

/// Nothing between here and the sandbox takes time but a full backlog.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, port: u16, inside: Inside) {
    loop {
        let client = accept(&shared, &listener).await;
        match Arc::clone(&shared.slots).try_acquire_owned() {
            Ok(slot) => {
                let (shared, inside) = (Arc::clone(&shared), Arc::clone(&inside));
                tokio::spawn(async move {
                    carry(&shared, client, port, inside).await;
                    drop(slot);
                });
            }
            Err(_) => reset(client),
        }
    }
}

async fn carry(shared: &Shared, client: TcpStream, port: u16, inside: Inside) {
    let Some(server) = connect(port, &inside).await else { return reset(client) };
    relay::prepare(&client);
    relay::prepare(&server);
    // Not egress: what a published port carries is in no host's row.
    let (moved, memory) = (AtomicU64::new(0), &shared.memory);
    let up = Side { from: &client, to: &server, moved: &moved, memory };
    let down = Side { from: &server, to: &client, moved: &moved, memory };
    match relay::plain(up, down).await {
        Ending::Clean => {}
        Ending::Broken | Ending::Refused(_) => {
            reset(client);
            reset(server);
        }
    }
}

/// Servers listen on either loopback address; IPv4 first, as most do. Each attempt takes a fresh socket.
async fn connect(port: u16, inside: &Inside) -> Option<TcpStream> {
    for address in [Ipv4Addr::LOCALHOST.to_ipv6_mapped(), Ipv6Addr::LOCALHOST] {
        let made = Arc::clone(inside);
        // The maker may have to ask someone inside.
        let socket = timeout(PATIENCE, tokio::task::spawn_blocking(move || made())).await.ok()?.ok()?.ok()?;
        let attempt = attempt(socket, SocketAddr::from((address, port)));
        if let Ok(Ok(stream)) = timeout(PATIENCE, attempt).await {
            return Some(stream);
        }
    }
    None
}

async fn attempt(socket: OwnedFd, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = std::net::TcpStream::from(socket);
    socket.set_nonblocking(true)?;
    TcpSocket::from_std_stream(socket).connect(address).await
}
