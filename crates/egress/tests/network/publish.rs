//! Ports of the sandbox on the host's loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use stockade_egress::Published;

use crate::world::{Allow, PATIENCE, World, accept, assert_reset};

const PORT: u16 = 8080;

/// The world, and where its port 8080 is published.
fn world() -> Option<(World, u16)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let publish = vec![Published { listener: OwnedFd::from(listener), port: PORT }];
    Some((World::publishing(Allow::default(), publish)?, port))
}

fn dial(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_server_inside_is_reached_on_either_loopback_address() {
    for inside in ["127.0.0.1:8080", "[::1]:8080", "0.0.0.0:8080"] {
        let Some((world, port)) = world() else { return };
        let server = world.sandbox.listener_at(inside);
        let mut client = dial(port);
        client.write_all(b"GET / HTTP/1.1\r\nHost: whatever\r\n\r\n").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut peer = accept(&server);
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("\r\n\r\n"), "{inside}");
        peer.write_all(b"answer").unwrap();
        drop(peer);
        text.clear();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "answer", "{inside}");
        assert_eq!(world.stop(), [], "not egress");
    }
}

#[test]
fn nothing_inside_is_a_reset() {
    let Some((_world, port)) = world() else { return };
    assert_reset(&mut dial(port));
}

#[test]
fn a_reset_inside_is_one_outside() {
    let Some((world, port)) = world() else { return };
    let server = world.sandbox.listener_at("127.0.0.1:8080");
    let mut client = dial(port);
    let peer = accept(&server);
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
    drop(peer);
    assert_reset(&mut client);
}
