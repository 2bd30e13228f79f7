//! The stub's two sockets. UDP replies leave from the address that was asked, whichever of the
//! sandbox's addresses that was; TCP carries the same messages behind a length.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::accept::{accept, reset};
use crate::charged;
use crate::dns::{self, Listing, QUERY_MOST};
use crate::shared::Shared;

/// Resolvers open one connection and close it again.
const CONNECTIONS: usize = 64;
const QUERIES_PER_CONNECTION: usize = 256;
/// For a query to come, and for a reply to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Room for IPV6_PKTINFO with its header, and more than that is never asked for.
const CONTROL: usize = 128;
/// After an error that isn't about one packet, so that it can't spin.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes a donated socket tell where each packet was sent to.
pub(crate) fn prepare(socket: OwnedFd) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    // IPv6 takes a source only if an interface has it, which the addresses of an AnyIP route are not.
    setsockopt(&socket, sockopt::IpFreebind, &true)?;
    UdpSocket::from_std(socket)
}

pub(crate) async fn udp(shared: Arc<Shared>, socket: UdpSocket) {
    let mut buffer = vec![0; QUERY_MOST];
    loop {
        match socket.async_io(Interest::READABLE, || receive(&socket, &mut buffer)).await {
            Ok(packet) => {
                let query = buffer.get(..packet.length).unwrap_or_default();
                if let Some(reply) = dns::answer(query, |name| find(&shared, name)) {
                    match send(&socket, &reply, &packet) {
                        // A full queue or a client that is gone: the client asks again, or doesn't.
                        Ok(_) | Err(_) => {}
                    }
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn find(shared: &Shared, name: &str) -> Listing {
    let Some(named) = shared.rules.name(name) else {
        shared.refused_name(name);
        return Listing::Unlisted;
    };
    match shared.hand_out(name, &named) {
        Some(handed) => Listing::Listed(handed),
        None => Listing::Full,
    }
}

struct Packet {
    length: usize,
    /// IPv4 in its mapped form: the socket is of both families.
    from: SockaddrStorage,
    /// Where it was sent to.
    to: Option<Ipv6Addr>,
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Packet> {
    let mut control = [0; CONTROL];
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let from = message.address.ok_or(io::ErrorKind::InvalidData)?;
    let to = message.cmsgs()?.find_map(|control| {
        let ControlMessageOwned::Ipv6PacketInfo(packet) = control else { return None };
        Some(Ipv6Addr::from(packet.ipi6_addr.s6_addr))
    });
    Ok(Packet { length: message.bytes, from, to })
}

fn send(socket: &UdpSocket, reply: &[u8], packet: &Packet) -> io::Result<usize> {
    let source = packet.to.map(|to| nix::libc::in6_pktinfo {
        ipi6_addr: nix::libc::in6_addr { s6_addr: to.octets() },
        ipi6_ifindex: 0,
    });
    let control: Vec<ControlMessage<'_>> = source.iter().map(ControlMessage::Ipv6PacketInfo).collect();
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    Ok(sendmsg(socket.as_raw_fd(), &[IoSlice::new(reply)], &control, flags, Some(&packet.from))?)
}

pub(crate) async fn tcp(shared: Arc<Shared>, listener: TcpListener) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = accept(&listener, |error| shared.cannot_accept(error)).await;
        match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => {
                let (shared, charge) = (Arc::clone(&shared), &shared.charge);
                charged::spawn(charge, async move {
                    converse(&shared, &stream).await;
                    drop(slot);
                });
            }
            Err(_) => reset(stream),
        }
    }
}

/// One connection's queries, one after the other, until it ends, breaks a rule or is idle for too long.
async fn converse(shared: &Shared, stream: &TcpStream) -> Option<()> {
    let mut buffer = vec![0; QUERY_MOST];
    for _ in 0..QUERIES_PER_CONNECTION {
        let mut length = [0; 2];
        fill(stream, &mut length).await?;
        let query = buffer.get_mut(..usize::from(u16::from_be_bytes(length)))?;
        fill(stream, query).await?;
        let reply = dns::answer(query, |name| find(shared, name))?;
        let length = u16::try_from(reply.len()).ok()?;
        drain(stream, &[&length.to_be_bytes()[..], &reply].concat()).await?;
    }
    Some(())
}

async fn fill(stream: &TcpStream, mut room: &mut [u8]) -> Option<()> {
    let deadline = Instant::now() + PATIENCE;
    while !room.is_empty() {
        timeout_at(deadline, stream.readable()).await.ok()?.ok()?;
        match stream.try_read(room) {
            Ok(0) => return None,
            Ok(count) => room = room.get_mut(count..)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    Some(())
}

async fn drain(stream: &TcpStream, mut bytes: &[u8]) -> Option<()> {
    let deadline = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        timeout_at(deadline, stream.writable()).await.ok()?.ok()?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    Some(())
}
