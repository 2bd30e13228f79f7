//! Socket families that reach the hypervisor, the kernel's own tables, its crypto or the wire.

use stockade_escape_tests::{Sandbox, skip, wall, wall_of};
use stockade_proto::Layer;

/// family, type, protocol, name
const FAMILIES: [(i32, i32, i32, &str); 14] = [
    (2, 3, 1, "inet raw icmp"),
    (10, 3, 58, "inet6 raw icmp"),
    (17, 3, 0, "packet raw"),
    (17, 2, 0, "packet datagram"),
    (40, 1, 0, "vsock"),
    (16, 3, 9, "netlink audit"),
    (16, 3, 15, "netlink uevent"),
    (38, 5, 0, "alg"),
    (31, 3, 1, "bluetooth"),
    (29, 3, 1, "can"),
    (15, 2, 2, "key"),
    (30, 2, 0, "tipc"),
    (21, 5, 0, "rds"),
    (44, 3, 0, "xdp"),
];

#[test]
fn none_opens() {
    let sandbox = Sandbox::new();
    for (family, kind, protocol, name) in FAMILIES {
        let attack = format!("socket {family} {kind} {protocol}");
        let verdict = sandbox.attack(&attack);
        assert!(!verdict.is_won(), "{name}: {verdict:?}");
        // The kernel reads 32 bits of each argument: noise above them must not open a door.
        let verdict = sandbox.attack(&format!("{attack} wide"));
        assert!(!verdict.is_won(), "{name} with noise: {verdict:?}");
        if !sandbox.bare(&attack).is_won() {
            skip(&format!("{name} does not open on the bare host"));
        }
    }
}

#[test]
fn vsock_is_closed_by_the_filter() {
    // A network namespace does not hold AF_VSOCK back.
    wall_of(&[Layer::Seccomp], Sandbox::new, |_| String::from("vsock"));
}

#[test]
fn netlink_tells_nothing_of_the_host() {
    let sandbox = Sandbox::new();
    sandbox.bare("netlink").won();
    // Names of interfaces are what getifaddrs needs; a sandbox may see its own loopback, or nothing.
    let interfaces = sandbox.run(&["cat", "/proc/net/dev"]).stdout_text();
    let names: Vec<&str> =
        interfaces.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    assert!(names.iter().all(|name| *name == "lo"), "{names:?}");
}

#[test]
fn kernel_connector_and_diag_are_closed() {
    let sandbox = Sandbox::new();
    // NETLINK_SOCK_DIAG lists sockets, NETLINK_CONNECTOR process events, NETLINK_NETFILTER the firewall.
    for protocol in [4, 11, 12, 6] {
        wall(&sandbox, &format!("socket 16 3 {protocol}"));
    }
}
