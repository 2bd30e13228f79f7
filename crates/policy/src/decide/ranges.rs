//! Addresses that a name must not lead to: the host itself, its neighbours, its cloud's metadata. A name is
//! whatever its owner's DNS says, so these open only to a person who wrote the address down.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::target::holds;

/// Why an address is closed, as the end of a sentence: "is …".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedRange(pub &'static str);

const V4: [(Ipv4Addr, u8, &str); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an unspecified address, which means this host"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address shared behind a provider's NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's own service, which guests reach by this address"),
    (Ipv4Addr::new(169, 254, 169, 254), 32, "the cloud's metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "reserved for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "reserved for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "reserved for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "reserved for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(255, 255, 255, 255), 32, "the broadcast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

const V6: [(Ipv6Addr, u8, &str); 16] = [
    (Ipv6Addr::UNSPECIFIED, 128, "the unspecified address, which means this host"),
    (Ipv6Addr::LOCALHOST, 128, "the loopback address"),
    (Ipv6Addr::UNSPECIFIED, 96, "an IPv4-compatible address"),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, "a translated IPv4 address"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "a local NAT64 address"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "a discard address"),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, "reserved for benchmarks"),
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 27, "an identifier, not an address"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "reserved for documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "reserved for documentation"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "a segment routing identifier"),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, "the cloud's metadata service"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a site-local address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
];

/// The closed range that an address lies in, by itself or by the IPv4 address inside it.
pub fn closed_range(address: IpAddr) -> Option<ClosedRange> {
    match address.to_canonical() {
        IpAddr::V4(v4) => closed_v4(v4),
        IpAddr::V6(v6) => closed_v6(v6).or_else(|| embedded(v6).into_iter().flatten().find_map(closed_v4)),
    }
}

fn closed_v4(address: Ipv4Addr) -> Option<ClosedRange> {
    let row = V4.iter().find(|(net, prefix, _)| holds(IpAddr::V4(*net), *prefix, IpAddr::V4(address)));
    row.map(|(_, _, why)| ClosedRange(why))
}

fn closed_v6(address: Ipv6Addr) -> Option<ClosedRange> {
    let row = V6.iter().find(|(net, prefix, _)| holds(IpAddr::V6(*net), *prefix, IpAddr::V6(address)));
    row.map(|(_, _, why)| ClosedRange(why)).or_else(|| is_isatap(address).then_some(ISATAP))
}

const ISATAP: ClosedRange = ClosedRange("an ISATAP address, which leads to an IPv4 address of a site");

/// Below any prefix: `0:5efe` and an IPv4 address, with or without the bits for "universal" and "group".
fn is_isatap(address: Ipv6Addr) -> bool {
    let [_, _, _, _, flags, mark, _, _] = address.segments();
    flags & !0x0300 == 0 && mark == 0x5efe
}

/// The IPv4 addresses that a translator would take out of this one: NAT64's, 6to4's, and Teredo's server and
/// client (which is stored inverted).
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    match (a, b) {
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => [v4(g, h), None],
        (0x2002, _) => [v4(b, c), None],
        (0x2001, 0) => [v4(c, d), v4(!g, !h)],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_and_open() {
        for closed in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.1.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:0:808:808::f5ff:fffe",
            "fd00:ec2::254",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "100::1",
            "::ffff:0:127.0.0.1",
        ] {
            assert!(closed_range(closed.parse().expect(closed)).is_some(), "{closed}");
        }
        for open in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.0.0.1",
            "128.0.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.0.1",
            "198.17.0.1",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "2001:0:808:808::f7f7:f7f7",
            "2001:4860::8888",
        ] {
            assert_eq!(closed_range(open.parse().expect(open)), None, "{open}");
        }
        let why = |text: &str| closed_range(text.parse().expect(text)).expect(text).0;
        assert!(why("169.254.169.254").contains("metadata") && why("fd00:ec2::254").contains("metadata"));
    }

    #[test]
    fn a_clouds_own_address_and_isatap() {
        let closed = |text: &str| closed_range(text.parse().expect(text)).is_some();
        for text in [
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "2606:4700::5efe:10.0.0.1",
            "2606:4700::200:5efe:10.0.0.1",
            "2606:4700:1:2:0:5efe:808:808",
        ] {
            assert!(closed(text), "{text}");
        }
        for text in
            ["168.63.129.15", "168.63.129.17", "2606:4700::400:5efe:808:808", "2606:4700::5eff:808:808"]
        {
            assert!(!closed(text), "{text}");
        }
    }
}
