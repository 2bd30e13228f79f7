//! What is carried: every byte, both ends, resets, and thousands of connections at once.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sandbox::skip;
use crate::world::{PATIENCE, World, accept, assert_reset, port, server};

/// Bytes without a period that a buffer has.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 11).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn pair(world: &World, server: &TcpListener) -> (TcpStream, TcpStream) {
    let client = world.dial("a.example", port(server));
    (client, accept(server))
}

#[test]
fn each_direction_ends_by_itself() {
    let server = server(31);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (mut client, mut peer) = pair(&world, &server);
    client.write_all(b"\0question").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = Vec::new();
    peer.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"\0question");
    peer.write_all(b"answer after the end").unwrap();
    drop(peer);
    text.clear();
    client.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"answer after the end");

    let (mut client, mut peer) = pair(&world, &server);
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    client.write_all(b"\0still here").unwrap();
    drop(client);
    text.clear();
    peer.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"\0still here");
}

fn abort(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn resets_go_through_both_ways() {
    let server = server(32);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (mut client, peer) = pair(&world, &server);
    abort(peer);
    assert_reset(&mut client);
    let (client, mut peer) = pair(&world, &server);
    abort(client);
    assert_reset(&mut peer);
}

/// An answer that comes before the upload's end, then a close: the answer arrives.
#[test]
fn last_words_of_a_server_that_hangs_up_arrive() {
    let server = server(33);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (mut client, mut peer) = pair(&world, &server);
    peer.write_all(b"too much").unwrap();
    drop(peer);
    let mut text = [0; 8];
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"too much");
}

#[test]
fn a_server_may_speak_first() {
    let server = server(34);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (mut client, mut peer) = pair(&world, &server);
    peer.write_all(b"220 mail ready\r\n").unwrap();
    let mut text = [0; 16];
    client.read_exact(&mut text).unwrap();
    client.write_all(b"EHLO me\r\n").unwrap();
    let mut text = [0; 9];
    peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"EHLO me\r\n");
}

#[test]
fn a_large_transfer_arrives_whole_both_ways_at_once() {
    const LENGTH: usize = 64 * 1024 * 1024;
    let server = server(35);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (client, peer) = pair(&world, &server);
    let (up, down) = (Arc::new(noise(1, LENGTH)), Arc::new(noise(2, LENGTH)));
    let mut threads = Vec::new();
    for (stream, sent, expected) in [(client, &up, &down), (peer, &down, &up)] {
        let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
        let (sent, expected) = (Arc::clone(sent), Arc::clone(expected));
        threads.push(thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        }));
        threads.push(thread::spawn(move || {
            let mut received = Vec::with_capacity(LENGTH);
            reader.read_to_end(&mut received).unwrap();
            assert!(received == *expected, "{} bytes came, not as they were sent", received.len());
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let row = world.stop().remove(0);
    assert_eq!((row.sent_bytes, row.received_bytes), (64 << 20, 64 << 20));
}

#[test]
fn a_peer_that_does_not_read_holds_up_only_its_own_connection() {
    let server = server(36);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (client, mut peer) = pair(&world, &server);
    client.set_nonblocking(true).unwrap();
    let (block, mut sent, mut idle_since) = (noise(3, 1 << 16), 0, Instant::now());
    // As much as fits into the sockets and the one buffer between them.
    while idle_since.elapsed() < Duration::from_millis(500) {
        match (&client).write(&block) {
            Ok(count) => {
                sent += count;
                idle_since = Instant::now();
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(sent < 64 << 20, "nothing holds the writer back");
    }
    let (mut other, mut other_peer) = pair(&world, &server);
    other.write_all(b"\0quick").unwrap();
    other_peer.read_exact(&mut [0; 6]).unwrap();
    client.set_nonblocking(false).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut received = Vec::new();
    peer.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), sent);
}

#[test]
fn a_slow_request_is_carried_in_the_end() {
    let server = server(37);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (mut client, mut peer) = pair(&world, &server);
    client.set_nodelay(true).unwrap();
    let request = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc";
    for byte in request {
        client.write_all(&[*byte]).unwrap();
    }
    let mut text = [0; 58];
    assert_eq!(text.len(), request.len());
    peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, request);
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn descriptors(wanted: u64) -> bool {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let enough = maximum.is_none_or(|maximum| maximum >= wanted);
    if enough {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).unwrap();
    } else {
        skip(&format!("{wanted} descriptors are needed, {maximum:?} allowed"));
    }
    enough
}

/// Up to the cap of 4096, and one more.
#[test]
fn thousands_of_connections_live_beside_each_other() {
    const COUNT: usize = 4096;
    if !descriptors(17_000) {
        return;
    }
    let server = server(38);
    rustix::net::listen(&server, 1024).unwrap();
    let Some(world) = World::with_server("a.example", &server) else { return };
    let address = world.four("a.example");
    let before = resident_bytes();
    let mut pairs: Vec<(TcpStream, TcpStream)> = Vec::new();
    for _ in 0..COUNT {
        let client = world.sandbox.connect(address, port(&server)).unwrap();
        pairs.push((client, accept(&server)));
    }
    for (client, _) in &mut pairs {
        client.write_all(b"\0hello").unwrap();
    }
    for (_, peer) in &mut pairs {
        peer.read_exact(&mut [0; 6]).unwrap();
        peer.write_all(b"world").unwrap();
    }
    for (client, _) in &mut pairs {
        client.read_exact(&mut [0; 5]).unwrap();
    }
    let each = resident_bytes().saturating_sub(before) / u64::try_from(COUNT).unwrap();
    assert!(each < 16 * 1024, "{each} bytes per connection");
    assert_reset(&mut world.sandbox.connect(address, port(&server)).unwrap());
    world.seen.denial("a.example", "more than 4096 connections");
    pairs.truncate(COUNT / 2);
    // The places are free as soon as the ends have passed.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = world.sandbox.connect(address, port(&server)).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        match client.read(&mut [0; 1]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
    }
}

/// In a process of its own: the limit is the whole process's.
#[test]
fn running_out_of_descriptors_is_told_and_passes() {
    const MARK: &str = "STOCKADE_EGRESS_EXHAUSTED";
    if std::env::var_os(MARK).is_none() {
        let name = "bytes::running_out_of_descriptors_is_told_and_passes";
        let arguments = ["--exact", name, "--nocapture"];
        let child = Command::new(std::env::current_exe().unwrap()).args(arguments).env(MARK, "1").status();
        assert!(child.unwrap().success());
        return;
    }
    let server = server(39);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let address = world.four("a.example");
    let clients: Vec<_> = (0..3).map(|_| world.sandbox.stream_socket().unwrap()).collect();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let room = clients.iter().map(std::os::fd::AsRawFd::as_raw_fd).max().unwrap() + 1;
    let current = Some(u64::try_from(room).unwrap());
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let mapped = match address {
        std::net::IpAddr::V4(four) => four.to_ipv6_mapped(),
        std::net::IpAddr::V6(six) => six,
    };
    for client in &clients {
        rustix::net::connect(client, &std::net::SocketAddr::from((mapped, port(&server)))).unwrap();
    }
    world.seen.denial("(not accepted)", "can't accept connections");
    setrlimit(Resource::Nofile, before).unwrap();
    let told = world.seen.all().len();
    assert!(told < 5, "{told} events");
    for _ in &clients {
        accept(&server);
    }
}
