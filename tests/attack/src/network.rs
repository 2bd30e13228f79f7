//! Ways out over sockets: the host's loopback, its abstract and pathname sockets, odd families.

use std::io::Read as _;
use std::mem::{offset_of, size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd as _, OwnedFd};

use crate::Op;
use crate::verdict::{Scene, Step, Stop, argument, check, errno, held, number, unable};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("socket", socket),
    ("tcp", tcp),
    ("mptcp", mptcp),
    ("udp", udp),
    ("fastopen", fastopen),
    ("abstract", abstract_stream),
    ("abstract-dgram", abstract_dgram),
    ("unix", unix_stream),
    ("unix-dgram", unix_dgram),
    ("pair-sendto", pair_sendto),
    ("vsock", vsock),
    ("netlink", netlink),
];

/// How long to wait for an answer of a listener that is already there.
const ANSWER_MS: i32 = 20_000;

/// FAMILY TYPE PROTOCOL as numbers; the upper half of each word is set on request (`wide`), which the
/// kernel cuts off and a careless filter does not.
fn socket(_: &mut Scene, arguments: &[String]) -> Step {
    let family = number(arguments, 0, "family")?;
    let kind = number(arguments, 1, "type")?;
    let protocol = number(arguments, 2, "protocol")?;
    let high = if arguments.get(3).is_some_and(|word| word == "wide") { 0x1_0000_0000 } else { 0 };
    check("socket", unsafe { libc::syscall(libc::SYS_socket, family | high, kind | high, protocol | high) })
        .map(drop)
}

fn open(step: &str, family: i32, kind: i32, protocol: i32) -> Result<i32, Stop> {
    check(step, i64::from(unsafe { libc::socket(family, kind, protocol) })).map(|fd| fd as i32)
}

union Address {
    storage: libc::sockaddr_storage,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

fn inet(arguments: &[String]) -> Result<(Address, u32, i32), Stop> {
    let word = argument(arguments, 0, "address")?;
    let Ok(address) = word.parse::<SocketAddr>() else { return unable(format!("not an address: {word}")) };
    let mut raw = Address { storage: unsafe { zeroed() } };
    Ok(match address {
        SocketAddr::V4(v4) => {
            raw.v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            (raw, size_of::<libc::sockaddr_in>() as u32, libc::AF_INET)
        }
        SocketAddr::V6(v6) => {
            raw.v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: 0,
            };
            (raw, size_of::<libc::sockaddr_in6>() as u32, libc::AF_INET6)
        }
    })
}

fn answer(scene: &mut Scene, fd: i32) -> Step {
    let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    if check("poll", i64::from(unsafe { libc::poll(&raw mut wait, 1, ANSWER_MS) }))? == 0 {
        return held("no-answer", libc::ETIMEDOUT);
    }
    let mut bytes = [0u8; 256];
    let got = check("recv", unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) } as i64)?;
    scene.loot = String::from_utf8_lossy(&bytes[..got as usize]).into_owned();
    Ok(())
}

fn stream(scene: &mut Scene, arguments: &[String], protocol: i32) -> Step {
    let (address, length, family) = inet(arguments)?;
    let fd = open("socket", family, libc::SOCK_STREAM, protocol)?;
    check("connect", i64::from(unsafe { libc::connect(fd, (&raw const address).cast(), length) }))?;
    answer(scene, fd)
}

fn tcp(scene: &mut Scene, arguments: &[String]) -> Step {
    stream(scene, arguments, 0)
}

fn mptcp(scene: &mut Scene, arguments: &[String]) -> Step {
    const IPPROTO_MPTCP: i32 = 262;
    stream(scene, arguments, IPPROTO_MPTCP)
}

/// A connect that is a send: Landlock's TCP rules do not see it.
fn fastopen(scene: &mut Scene, arguments: &[String]) -> Step {
    let (address, length, family) = inet(arguments)?;
    let fd = open("socket", family, libc::SOCK_STREAM, 0)?;
    let sent = unsafe {
        libc::sendto(fd, b"hi".as_ptr().cast(), 2, libc::MSG_FASTOPEN, (&raw const address).cast(), length)
    };
    check("sendto", sent as i64)?;
    answer(scene, fd)
}

fn udp(scene: &mut Scene, arguments: &[String]) -> Step {
    let (address, length, family) = inet(arguments)?;
    let fd = open("socket", family, libc::SOCK_DGRAM, 0)?;
    check("connect", i64::from(unsafe { libc::connect(fd, (&raw const address).cast(), length) }))?;
    check("send", unsafe { libc::send(fd, b"hi".as_ptr().cast(), 2, 0) } as i64)?;
    answer(scene, fd)
}

fn unix_address(name: &str, is_abstract: bool) -> (libc::sockaddr_un, u32) {
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let skip = usize::from(is_abstract);
    for (slot, byte) in address.sun_path[skip..].iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    let used = offset_of!(libc::sockaddr_un, sun_path) + skip + name.len().min(107);
    (address, used as u32)
}

fn local_stream(scene: &mut Scene, name: &str, is_abstract: bool) -> Step {
    let (address, length) = unix_address(name, is_abstract);
    let fd = open("socket", libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    check("connect", i64::from(unsafe { libc::connect(fd, (&raw const address).cast(), length) }))?;
    let mut file = unsafe { std::fs::File::from(OwnedFd::from_raw_fd(fd)) };
    let mut bytes = [0u8; 256];
    match file.read(&mut bytes) {
        Ok(got) => scene.loot = String::from_utf8_lossy(&bytes[..got]).into_owned(),
        Err(error) => return held("read", error.raw_os_error().unwrap_or(0)),
    }
    Ok(())
}

fn send_to(fd: i32, name: &str, is_abstract: bool) -> Step {
    let (address, length) = unix_address(name, is_abstract);
    let sent =
        unsafe { libc::sendto(fd, b"pwned".as_ptr().cast(), 5, 0, (&raw const address).cast(), length) };
    check("sendto", sent as i64).map(drop)
}

fn abstract_stream(scene: &mut Scene, arguments: &[String]) -> Step {
    local_stream(scene, argument(arguments, 0, "name")?, true)
}

fn abstract_dgram(_: &mut Scene, arguments: &[String]) -> Step {
    send_to(open("socket", libc::AF_UNIX, libc::SOCK_DGRAM, 0)?, argument(arguments, 0, "name")?, true)
}

fn unix_stream(scene: &mut Scene, arguments: &[String]) -> Step {
    local_stream(scene, argument(arguments, 0, "path")?, false)
}

fn unix_dgram(_: &mut Scene, arguments: &[String]) -> Step {
    send_to(open("socket", libc::AF_UNIX, libc::SOCK_DGRAM, 0)?, argument(arguments, 0, "path")?, false)
}

/// One end of a datagram pair can address anybody: no socket(2), no connect(2).
fn pair_sendto(_: &mut Scene, arguments: &[String]) -> Step {
    let mut pair = [0i32; 2];
    let answer = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, pair.as_mut_ptr()) };
    check("socketpair", i64::from(answer))?;
    let name = argument(arguments, 0, "name")?;
    match name.strip_prefix('@') {
        Some(name) => send_to(pair[0], name, true),
        None => send_to(pair[0], name, false),
    }
}

fn vsock(_: &mut Scene, _: &[String]) -> Step {
    let fd = open("socket", libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    let mut address: libc::sockaddr_vm = unsafe { zeroed() };
    address.svm_family = libc::AF_VSOCK as u16;
    address.svm_cid = 2;
    address.svm_port = 1;
    let length = size_of::<libc::sockaddr_vm>() as u32;
    let answer = unsafe { libc::connect(fd, (&raw const address).cast(), length) };
    // Any answer but a refusal of the call itself means that a packet left for the hypervisor.
    if answer < 0 && matches!(errno(), libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT) {
        return held("connect", errno());
    }
    Ok(())
}

/// Asks the kernel's routing table for its links.
fn netlink(scene: &mut Scene, _: &[String]) -> Step {
    let fd = open("socket", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let mut request = [0u8; 20];
    request[..4].copy_from_slice(&20u32.to_ne_bytes());
    request[4..6].copy_from_slice(&18u16.to_ne_bytes());
    request[6..8].copy_from_slice(&0x301u16.to_ne_bytes());
    check("send", unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) } as i64)?;
    answer(scene, fd)?;
    scene.loot = String::from("links told");
    Ok(())
}
