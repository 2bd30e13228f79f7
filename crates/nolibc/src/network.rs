//! A network namespace that catches every address: AnyIP routes by netlink, and listeners on all of them.
//! And sockets that someone outside will connect inside.

use crate::call::{call, nr};
use crate::{Errno, Fd};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const AF_NETLINK: usize = 16;
const SOCK_CLOEXEC: usize = 0o2_000_000;

/// A new network namespace numbers its devices from one, and the first is the loopback.
const LOOPBACK_INDEX: u32 = 1;

const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
/// REQUEST, ACK, EXCL, CREATE.
const NEW: u16 = 0x1 | 0x4 | 0x200 | 0x400;
const NLMSG_ERROR: u16 = 2;
const RTA_OIF: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const SCOPE_GLOBAL: u8 = 0;
const SCOPE_HOST: u8 = 254;

/// One request of at most one address: header, body, attributes.
struct Request {
    bytes: [u8; 96],
    length: usize,
}

impl Request {
    fn new(kind: u16) -> Self {
        let mut request = Self { bytes: [0; 96], length: 4 };
        request.put(&kind.to_ne_bytes());
        request.put(&NEW.to_ne_bytes());
        // Sequence and port: there is one request at a time.
        request.put(&[0; 8]);
        request
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// Values here are four or sixteen bytes long, so every attribute is aligned.
    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.put(&length.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(value);
    }

    fn finish(&mut self) -> &[u8] {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        &self.bytes[..self.length]
    }
}

/// `ip route add local DEFAULT dev lo`: every address of the family is ours.
fn local_route(family: u8) -> Request {
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_BOOT: u8 = 3;
    const TYPE_LOCAL: u8 = 2;
    let scope = if family == AF_INET { SCOPE_HOST } else { SCOPE_GLOBAL };
    let mut request = Request::new(RTM_NEWROUTE);
    request.put(&[family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, scope, TYPE_LOCAL]);
    request.put(&[0; 4]);
    request.attribute(RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes());
    request
}

fn address(family: u8, value: &[u8]) -> Request {
    let mut request = Request::new(RTM_NEWADDR);
    let prefix = if family == AF_INET { 32 } else { 128 };
    // IFA_F_NODAD: usable at once.
    request.put(&[family, prefix, 0x02, SCOPE_GLOBAL]);
    request.put(&LOOPBACK_INDEX.to_ne_bytes());
    request.attribute(IFA_LOCAL, value);
    request.attribute(IFA_ADDRESS, value);
    request
}

fn carry_out(socket: &Fd, mut request: Request) -> Result<(), Errno> {
    let bytes = request.finish();
    // SAFETY: the kernel reads `bytes`; no destination is the kernel itself.
    unsafe { call(nr::SENDTO, [socket.raw(), bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }?;
    let mut answer = [0_u8; 256];
    let arguments = [socket.raw(), answer.as_mut_ptr() as usize, answer.len(), 0, 0, 0];
    // SAFETY: the kernel fills at most `answer`.
    let length = unsafe { call(nr::RECVFROM, arguments) }?;
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let errno = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, errno) {
        (Some(NLMSG_ERROR), Some(0)) if length >= 20 => Ok(()),
        (Some(NLMSG_ERROR), Some(errno)) if length >= 20 => Err(Errno(-errno)),
        _ => Err(Errno::BADMSG),
    }
}

/// Makes every address of both families local. `four` and `six` are put on the loopback device besides: a
/// resolver that asks only for families with an address of their own would ask for none otherwise.
pub fn catch_every_address(four: [u8; 4], six: [u8; 16]) -> Result<(), Errno> {
    const SOCK_RAW: usize = 3;
    // SAFETY: three numbers.
    let socket = unsafe { call(nr::SOCKET, [AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0, 0, 0, 0]) };
    let socket = Fd::from_result(socket?)?;
    carry_out(&socket, address(AF_INET, &four))?;
    carry_out(&socket, address(AF_INET6, &six))?;
    carry_out(&socket, local_route(AF_INET))?;
    carry_out(&socket, local_route(AF_INET6))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Four,
    Six,
}

/// A TCP socket of this network namespace that is connected to nothing.
pub fn stream_socket(family: Family) -> Result<Fd, Errno> {
    const SOCK_STREAM: usize = 1;
    let family = match family {
        Family::Four => AF_INET,
        Family::Six => AF_INET6,
    };
    // SAFETY: three numbers.
    let socket = unsafe { call(nr::SOCKET, [usize::from(family), SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0, 0]) };
    Fd::from_result(socket?)
}

/// Answers questions about the sockets of this network namespace.
pub fn socket_diagnosis() -> Result<Fd, Errno> {
    const SOCK_RAW: usize = 3;
    const NETLINK_SOCK_DIAG: usize = 4;
    // SAFETY: three numbers.
    let socket =
        unsafe { call(nr::SOCKET, [AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG, 0, 0, 0]) };
    Fd::from_result(socket?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

/// A socket on `port` of every address, IPv4 through IPv6.
pub fn listen_everywhere(transport: Transport, port: u16) -> Result<Fd, Errno> {
    const SOL_SOCKET: usize = 1;
    const SO_REUSEADDR: usize = 2;
    const IPPROTO_IPV6: usize = 41;
    const IPV6_V6ONLY: usize = 26;
    /// The kernel lowers it to its own bound.
    const BACKLOG: usize = 4096;
    let kind = match transport {
        Transport::Tcp => 1,
        Transport::Udp => 2,
    };
    // SAFETY: three numbers.
    let socket = unsafe { call(nr::SOCKET, [usize::from(AF_INET6), kind | SOCK_CLOEXEC, 0, 0, 0, 0]) };
    let socket = Fd::from_result(socket?)?;
    for (level, option, value) in [(SOL_SOCKET, SO_REUSEADDR, 1_i32), (IPPROTO_IPV6, IPV6_V6ONLY, 0)] {
        let arguments = [socket.raw(), level, option, &raw const value as usize, size_of::<i32>(), 0];
        // SAFETY: the kernel reads one int.
        unsafe { call(nr::SETSOCKOPT, arguments) }?;
    }
    let mut name = [0_u8; 28];
    name[..2].copy_from_slice(&u16::from(AF_INET6).to_ne_bytes());
    name[2..4].copy_from_slice(&port.to_be_bytes());
    // SAFETY: a whole `struct sockaddr_in6`, only read.
    unsafe { call(nr::BIND, [socket.raw(), name.as_ptr() as usize, name.len(), 0, 0, 0]) }?;
    if transport == Transport::Tcp {
        // SAFETY: two numbers.
        unsafe { call(nr::LISTEN, [socket.raw(), BACKLOG, 0, 0, 0, 0]) }?;
    }
    Ok(socket)
}
