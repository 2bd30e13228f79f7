//! Reaching a listener on the host's own loopback, by every transport that has one.

use stockade_escape_tests::{Listener, SECRET, Sandbox, skip, wall_of};
use stockade_proto::Layer;

#[track_caller]
fn unreachable(listener: Option<Listener>, transport: &str) {
    let Some(listener) = listener else {
        return skip(&format!("the host has no listener for {transport}"));
    };
    let sandbox = Sandbox::new();
    let attack = format!("{transport} {}", listener.at());
    let bare = sandbox.bare(&attack);
    if bare.is_won() {
        assert_eq!(bare.won(), SECRET);
    } else {
        skip(&format!("{transport} does not reach the listener on the bare host: {bare:?}"));
    }
    sandbox.attack(&attack).held();
}

#[test]
fn tcp() {
    unreachable(Listener::tcp("127.0.0.1:0"), "tcp");
}

#[test]
fn tcp_ipv6() {
    unreachable(Listener::tcp("[::1]:0"), "tcp");
}

#[test]
fn udp() {
    unreachable(Listener::udp("127.0.0.1:0"), "udp");
}

#[test]
fn udp_ipv6() {
    unreachable(Listener::udp("[::1]:0"), "udp");
}

#[test]
fn fast_open() {
    unreachable(Listener::tcp("127.0.0.1:0"), "fastopen");
}

#[test]
fn multipath_tcp() {
    unreachable(Listener::tcp("127.0.0.1:0"), "mptcp");
}

#[test]
fn the_network_namespace_is_what_stops_it() {
    for transport in ["tcp", "udp"] {
        let listener =
            if transport == "tcp" { Listener::tcp("127.0.0.1:0") } else { Listener::udp("127.0.0.1:0") };
        let at = listener.expect("a loopback").at();
        wall_of(&[Layer::Network, Layer::Landlock], Sandbox::new, |_| format!("{transport} {at}"));
    }
}

#[test]
fn loopback_inside_works() {
    // The wall is not "no network code": a server and its client in one sandbox are ordinary work.
    let script = "import socket;s=socket.socket();s.bind(('127.0.0.1',0));s.listen();\
                  c=socket.create_connection(s.getsockname());print('reached')";
    let ran = Sandbox::new().run(&["/usr/bin/python3", "-c", script]);
    if ran.code() == 127 || ran.code() == 126 {
        return skip("no /usr/bin/python3 on this host");
    }
    assert_eq!(ran.stdout_text(), "reached\n", "{ran}");
}
