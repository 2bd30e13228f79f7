//! Ports of the sandbox on the host's loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use stockade_egress::Published;

use crate::world::{Allow, PATIENCE, SLOTS, World, accept, assert_reset};

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

/// One round over a fresh connection. The server's half ends first if `server_first`.
fn round(port: u16, server: &TcpListener, server_first: bool) {
    let mut client = dial(port);
    let mut peer = accept(server);
    let mut text = String::new();
    if server_first {
        peer.write_all(b"hello").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_string(&mut text).unwrap();
        client.write_all(b" back").unwrap();
        drop(client);
        peer.read_to_string(&mut text).unwrap();
    } else {
        client.write_all(b"hello").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        peer.read_to_string(&mut text).unwrap();
        peer.write_all(b" back").unwrap();
        drop(peer);
        client.read_to_string(&mut text).unwrap();
    }
    assert_eq!(text, "hello back");
}

#[test]
fn sockets_are_used_again_whatever_became_of_them() {
    let Some((world, port)) = world() else { return };
    // Nobody there, then on one address, then reset, then on the other.
    for _ in 0..2 * SLOTS {
        assert_reset(&mut dial(port));
    }
    let four = world.sandbox.listener_at("127.0.0.1:8080");
    for number in 0..4 * SLOTS {
        round(port, &four, number % 2 == 0);
    }
    for _ in 0..2 * SLOTS {
        let mut client = dial(port);
        let peer = accept(&four);
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        assert_reset(&mut client);
        let client = dial(port);
        let mut peer = accept(&four);
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        assert_reset(&mut peer);
    }
    drop(four);
    let six = world.sandbox.listener_at("[::1]:8080");
    for number in 0..4 * SLOTS {
        round(port, &six, number % 2 == 0);
    }
}

#[test]
fn what_a_slow_reader_has_not_taken_is_not_cut_off() {
    const MANY: usize = 200_000;
    let Some((world, port)) = world() else { return };
    let server = world.sandbox.listener_at("127.0.0.1:8080");
    let mut held = Vec::new();
    for _ in 0..SLOTS {
        let mut client = dial(port);
        let peer = accept(&server);
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        client.write_all(&vec![7; MANY]).unwrap();
        drop(client);
        held.push(peer);
    }
    // Both slots wait for their readers; this one waits for a slot.
    let mut waiting = dial(port);
    waiting.write_all(b"me too").unwrap();
    waiting.shutdown(std::net::Shutdown::Write).unwrap();
    for mut peer in held {
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), MANY);
    }
    let mut text = String::new();
    accept(&server).read_to_string(&mut text).unwrap();
    assert_eq!(text, "me too");
}

#[test]
fn no_slot_in_time_is_a_reset() {
    let Some((world, port)) = world() else { return };
    let server = world.sandbox.listener_at("127.0.0.1:8080");
    let held: Vec<_> = (0..SLOTS).map(|_| (dial(port), accept(&server))).collect();
    assert_reset(&mut dial(port));
    drop(held);
    round(port, &server, true);
}

#[test]
fn last_words_are_carried_when_it_stops() {
    const MANY: usize = 300_000;
    let Some((world, port)) = world() else { return };
    let server = world.sandbox.listener_at("127.0.0.1:8080");
    let client = dial(port);
    let (mut peer, idle) = (accept(&server), dial(port));
    let _idle_peer = accept(&server);
    peer.write_all(&vec![7; MANY]).unwrap();
    drop(peer);
    let reader = std::thread::spawn(move || {
        let (mut client, mut bytes) = (client, Vec::new());
        client.read_to_end(&mut bytes).unwrap();
        bytes.len()
    });
    world.stop();
    assert_eq!(reader.join().unwrap(), MANY);
    drop(idle);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens any more");
}
