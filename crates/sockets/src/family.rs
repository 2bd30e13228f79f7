//! Families other than AF_UNIX: nothing about them is decided here, another wall confines them. But whoever made a
//! user namespace holds every capability in it, so for an ordinary user the supervisor is mighty in the
//! sandbox's network where the caller is not. This is the list of what is performed all the same: only what
//! needs no capability, so that the kernel's answer is the one that the caller itself would get.

use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, ipproto, sockopt};
use stockade_sys::notify;

use crate::call::Call;

/// Families that the filter lets a command open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Unix,
    /// AF_INET and AF_INET6.
    Inet,
    /// NETLINK_ROUTE.
    Netlink,
}

/// Ports below belong to root in a new network namespace, whatever the host's setting is.
const FIRST_FREE_PORT: u16 = 1024;

/// Options in a message that ask for nothing privileged: level and kind.
const HARMLESS: [(i32, i32); 7] = [
    (0, 1),    // IP_TOS
    (0, 2),    // IP_TTL
    (0, 8),    // IP_PKTINFO
    (17, 103), // UDP_SEGMENT
    (41, 50),  // IPV6_PKTINFO
    (41, 52),  // IPV6_HOPLIMIT
    (41, 67),  // IPV6_TCLASS
];

const AF_UNSPEC: u16 = 0;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const AF_NETLINK: u16 = 16;
/// `struct sockaddr_nl`: family, padding, port, groups.
const NETLINK_NAME: usize = 12;
/// RTNLGRP_IPV4_MROUTE_R and its like for IPv6: joined only with CAP_NET_ADMIN.
const GUARDED_GROUPS: u32 = 1 << 29 | 1 << 30;

const NLMSG_HEAD: usize = 16;
const NLMSG_MIN_TYPE: u16 = 16;
/// Of every four types of rtnetlink, which one only asks.
const KIND_GET: u16 = 2;
/// It names processes and descriptors, and those would be ours.
const RTM_GETNSID: u16 = 90;

impl Family {
    pub(crate) fn of(socket: &OwnedFd) -> Result<Self, Errno> {
        match sockopt::socket_domain(socket)? {
            AddressFamily::UNIX => Ok(Self::Unix),
            AddressFamily::INET | AddressFamily::INET6 => Ok(Self::Inet),
            AddressFamily::NETLINK if sockopt::socket_protocol(socket)?.is_none() => Ok(Self::Netlink),
            _ => Err(Errno::PERM),
        }
    }

    pub(crate) fn may_connect(self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Unix | Self::Inet => Ok(()),
            Self::Netlink if family(name) == Some(AF_UNSPEC) => Ok(()),
            Self::Netlink => kernel_only(name),
        }
    }

    pub(crate) fn may_bind(self, call: &Call<'_>, socket: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Unix => Ok(()),
            Self::Inet => may_have_port(call, socket, name),
            Self::Netlink if netlink_name(name)?.1 & GUARDED_GROUPS != 0 => Err(Errno::PERM),
            Self::Netlink => Ok(()),
        }
    }

    /// The name to send to. For the kernel there is none: only without one does it ask who opened the socket.
    pub(crate) fn destination(self, name: &[u8]) -> Result<&[u8], Errno> {
        match self {
            Self::Unix | Self::Inet => Ok(name),
            Self::Netlink if name.is_empty() => Ok(name),
            Self::Netlink => kernel_only(name).map(|()| &[][..]),
        }
    }

    pub(crate) fn may_send(self, bytes: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Unix | Self::Inet => Ok(()),
            Self::Netlink if only_asks(bytes) => Ok(()),
            Self::Netlink => Err(Errno::PERM),
        }
    }

    /// Whether a control message that is not AF_UNIX's own may go along.
    pub(crate) fn may_attach(self, level: i32, kind: i32) -> bool {
        match self {
            // The kernel passes over what is not of its own level.
            Self::Unix => true,
            Self::Inet => HARMLESS.contains(&(level, kind)),
            Self::Netlink => false,
        }
    }
}

/// In our own network namespace we hold no more than the caller, so there the kernel is asked.
fn may_have_port(call: &Call<'_>, socket: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let port = name.get(2..).and_then(|rest| rest.first_chunk()).map_or(0, |port| u16::from_be_bytes(*port));
    if port == 0 || port >= FIRST_FREE_PORT {
        return Ok(());
    }
    // The number of an echo socket is not a port.
    if matches!(sockopt::socket_protocol(socket)?, Some(ipproto::ICMP | ipproto::ICMPV6)) {
        return Ok(());
    }
    match notify::network_cookie(socket.as_fd()) {
        Ok(theirs) if Some(theirs) == call.ground.network => Ok(()),
        Ok(_) | Err(_) => Err(Errno::ACCESS),
    }
}

/// Where a name of AF_INET or AF_INET6 leads to, unless back into the sandbox: then none.
pub(crate) fn outward(name: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    let address = match family(name)? {
        AF_INET => std::net::Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?).into(),
        AF_INET6 => Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?).to_canonical(),
        _ => return None,
    };
    // To the unspecified address means to this host.
    (!address.is_loopback() && !address.is_unspecified()).then(|| SocketAddr::new(address, port))
}

fn family(name: &[u8]) -> Option<u16> {
    name.first_chunk().map(|family| u16::from_ne_bytes(*family))
}

/// Port and groups of a netlink name.
fn netlink_name(name: &[u8]) -> Result<(u32, u32), Errno> {
    let word =
        |at: usize| name.get(at..).and_then(|rest| rest.first_chunk()).map(|at| u32::from_ne_bytes(*at));
    match (family(name), word(4), word(8)) {
        (Some(AF_NETLINK), Some(port), Some(groups)) if name.len() >= NETLINK_NAME => Ok((port, groups)),
        _ => Err(Errno::INVAL),
    }
}

fn kernel_only(name: &[u8]) -> Result<(), Errno> {
    match netlink_name(name)? {
        (0, 0) => Ok(()),
        _ => Err(Errno::PERM),
    }
}

/// Whether no request among these, split as the kernel splits them, changes anything.
fn only_asks(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some([l0, l1, l2, l3, t0, t1, ..]) = rest.get(..NLMSG_HEAD) {
        let length = usize::try_from(u32::from_ne_bytes([*l0, *l1, *l2, *l3])).unwrap_or(usize::MAX);
        if length < NLMSG_HEAD || length > rest.len() {
            return true;
        }
        let kind = u16::from_ne_bytes([*t0, *t1]);
        if kind >= NLMSG_MIN_TYPE && (kind & 3 != KIND_GET || kind == RTM_GETNSID) {
            return false;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u32, groups: u32) -> Vec<u8> {
        [&16_u16.to_ne_bytes()[..], &[0; 2], &port.to_ne_bytes(), &groups.to_ne_bytes()].concat()
    }

    fn request(length: u32, kind: u16) -> Vec<u8> {
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat()
    }

    #[test]
    fn only_the_kernel_is_spoken_to() {
        let netlink = Family::Netlink;
        assert_eq!(netlink.destination(&name(0, 0)), Ok(&[][..]));
        assert_eq!(netlink.destination(b""), Ok(&[][..]));
        for (port, groups) in [(1, 0), (0, 1), (7, 7)] {
            assert_eq!(netlink.destination(&name(port, groups)), Err(Errno::PERM));
            assert_eq!(netlink.may_connect(&name(port, groups)), Err(Errno::PERM));
        }
        assert_eq!(netlink.may_connect(&[0, 0]), Ok(()), "AF_UNSPEC");
        let short = name(0, 0);
        assert_eq!(netlink.destination(&short[..11]), Err(Errno::INVAL));
        assert_eq!(netlink.destination(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Errno::INVAL));
    }

    #[test]
    fn requests_that_change_something_are_found() {
        let asks = |parts: &[Vec<u8>]| only_asks(&parts.concat());
        assert!(asks(&[]) && asks(&[request(16, 18)]) && asks(&[request(16, 22), request(16, 26)]));
        for kind in [16, 17, 19, 20, 24, 88, 89, RTM_GETNSID] {
            assert!(!asks(&[request(16, kind)]), "{kind}");
            assert!(!asks(&[request(16, 18), request(16, kind)]), "{kind} behind another");
        }
        assert!(asks(&[request(16, 3)]), "a word of the protocol itself");
        assert!(asks(&[request(17, 16)]), "cut off: the kernel reads no further either");
        let odd = [request(18, 18), vec![0; 4], request(16, 16)].concat();
        assert!(!only_asks(&odd), "lengths are rounded up");
    }

    #[test]
    fn only_what_leads_out_is_told() {
        let four = |address: [u8; 4]| [&2_u16.to_ne_bytes()[..], &[1, 187], &address, &[0; 8]].concat();
        let six = |address: &str| {
            let address: Ipv6Addr = address.parse().expect("an address");
            [&10_u16.to_ne_bytes()[..], &[1, 187], &[0; 4], &address.octets(), &[0; 4]].concat()
        };
        let to = |address: &str| address.parse::<SocketAddr>().ok();
        assert_eq!(outward(&four([192, 0, 2, 1])), to("192.0.2.1:443"));
        assert_eq!(outward(&six("2001:db8::1")), to("[2001:db8::1]:443"));
        assert_eq!(outward(&six("::ffff:192.0.2.1")), to("192.0.2.1:443"));
        for own in [four([127, 0, 0, 1]), four([0; 4]), six("::1"), six("::"), six("::ffff:127.1.2.3")] {
            assert_eq!(outward(&own), None, "{own:?}");
        }
        for broken in [&four([192, 0, 2, 1])[..7], &six("2001:db8::1")[..20], &[0; 16], &[1, 0, 65], &[]] {
            assert_eq!(outward(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn options_are_listed() {
        assert!(Family::Inet.may_attach(0, 8) && Family::Inet.may_attach(41, 50));
        // SO_MARK, IP_RETOPTS, IPV6_RTHDR, IPV6_HOPOPTS.
        for (level, kind) in [(1, 36), (0, 7), (41, 57), (41, 54)] {
            assert!(!Family::Inet.may_attach(level, kind));
        }
        assert!(!Family::Netlink.may_attach(0, 8));
    }
}
