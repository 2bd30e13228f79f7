//! Ways around the allowlist, each tried and each closed, beside the plain way that works.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use stockade_proto::Decision;

use crate::world::{Allow, Answer, World, accept, assert_refused, assert_reset, ip, port, server};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// The server got a connection and not one byte.
fn assert_untouched(server: &TcpListener) {
    let mut received = Vec::new();
    match accept(server).read_to_end(&mut received) {
        Ok(_) | Err(_) => assert_eq!(received, b""),
    }
}

fn assert_nobody_came(server: &TcpListener) {
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with(end) {
        stream.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    text
}

#[test]
fn the_plain_way_works_over_both_families() {
    let server = server(1);
    let Some(world) = World::with_server("a.example", &server) else { return };
    for address in [world.four("a.example"), world.six("a.example")] {
        let mut client = world.sandbox.connect(address, port(&server)).unwrap();
        client.write_all(GET.as_bytes()).unwrap();
        let mut peer = accept(&server);
        assert_eq!(read_until(&mut peer, "\r\n\r\n"), GET);
        peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        assert_eq!(read_until(&mut client, "\r\n\r\n"), "HTTP/1.1 204 No Content\r\n\r\n");
    }
    let op = world.seen.wait(|op| op.address.is_some());
    assert_eq!(
        (op.host.as_str(), op.address.as_deref(), op.rule.as_deref(), op.decision, op.detail),
        ("a.example", Some("127.77.0.1"), Some("a.example"), Decision::Allow, None)
    );
    let row = world.stop().remove(0);
    assert_eq!((row.host.as_str(), row.connections, row.sent_bytes), ("a.example", 2, 70));
    assert_eq!(row.received_bytes, 54);
}

#[test]
fn an_answer_that_changes_to_a_closed_address_is_not_followed() {
    let server = server(2);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let inner = TcpListener::bind(("127.0.0.1", port(&server))).unwrap();
    world.book.set(
        "a.example",
        vec![Answer::Addresses(vec![ip("127.77.0.2")]), Answer::Addresses(vec![ip("127.0.0.1")])],
    );
    let first = world.dial("a.example", port(&server));
    accept(&server);
    drop(first);
    assert_reset(&mut world.dial("a.example", port(&server)));
    let op = world.seen.denial("a.example", "resolves to 127.0.0.1: a loopback address");
    assert_eq!(op.address.as_deref(), Some("127.0.0.1"));
    assert_nobody_came(&inner);
}

#[test]
fn names_that_resolve_inwards_are_closed() {
    let server = server(3);
    let Some(world) = World::with_server("a.example", &server) else { return };
    for (address, reason) in [
        ("127.0.0.1", "a loopback"),
        ("::1", "a loopback"),
        ("::ffff:127.0.0.1", "a loopback"),
        ("10.0.0.1", "a private"),
        ("192.168.1.1", "a private"),
        ("169.254.169.254", "a link-local"),
        ("fe80::1", "a link-local"),
        ("fd00::1", "a private"),
    ] {
        world.book.set("a.example", vec![Answer::Addresses(vec![ip(address)])]);
        assert_reset(&mut world.dial("a.example", port(&server)));
        world.seen.denial("a.example", &format!("resolves to {}: {reason}", ip(address).to_canonical()));
    }
    // One good address among closed ones is the one that is used.
    world.book.set("a.example", vec![Answer::Addresses(vec![ip("10.0.0.1"), ip("127.77.0.3")])]);
    let client = world.dial("a.example", port(&server));
    accept(&server);
    drop(client);
}

/// The loopback's own address plays one of this host's that are not private.
#[test]
fn names_that_resolve_to_this_host_are_closed() {
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (at, port) = (ip("127.0.0.1"), port(&server));
    let named = |addresses| Allow { names: vec![("a.example", vec![port])], addresses, public: vec![at] };
    let Some(world) = World::new(named(Vec::new())) else { return };
    world.book.set("a.example", vec![Answer::Addresses(vec![at])]);
    let mut client = world.dial("a.example", port);
    assert_refused(&mut client, GET.as_bytes());
    let op = world.seen.denial("a.example", "resolves to 127.0.0.1: this host's own address");
    assert_eq!(op.address.as_deref(), Some("127.0.0.1"));
    assert_untouched(&server);
    world.stop();
    // Unless it is listed itself.
    let Some(world) = World::new(named(vec![(at, port)])) else { return };
    world.book.set("a.example", vec![Answer::Addresses(vec![at])]);
    let mut client = world.dial("a.example", port);
    client.write_all(GET.as_bytes()).unwrap();
    assert_eq!(read_until(&mut accept(&server), "\r\n\r\n"), GET);
}

#[test]
fn addresses_that_were_dialled_need_a_rule_of_their_own() {
    let (listed, unlisted) = (server(4), server(5));
    let port = port(&listed);
    let unlisted_port = crate::world::port(&unlisted);
    let allow = Allow {
        names: vec![("a.example", vec![port, unlisted_port])],
        addresses: vec![(ip("127.77.0.4"), port)],
        ..Allow::default()
    };
    let Some(world) = World::new(allow) else { return };
    let mut client = world.sandbox.connect(ip("127.77.0.4"), port).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: 127.77.0.4\r\n\r\n").unwrap();
    read_until(&mut accept(&listed), "\r\n\r\n");
    for raw in ["127.77.0.5", "127.0.0.1", "169.254.169.254", "::1", "198.18.7.7", "fd53:746f:636b:6164::9"] {
        assert_reset(&mut world.sandbox.connect(ip(raw), unlisted_port).unwrap());
        world.seen.denial(raw, "not in the allowlist");
    }
    assert_nobody_came(&unlisted);
    // The rule for an address opens no other name behind it.
    let mut client = world.sandbox.connect(ip("127.77.0.4"), port).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    assert_reset(&mut client);
    assert_untouched(&listed);
    world.seen.denial("127.77.0.4", "evil.example");
}

#[test]
fn other_ports_are_closed() {
    let (first, second) = (server(6), server(7));
    let allow = Allow {
        names: vec![("a.example", vec![port(&first)]), ("b.example", vec![port(&second)])],
        ..Allow::default()
    };
    let Some(world) = World::new(allow) else { return };
    assert_reset(&mut world.dial("a.example", port(&second)));
    world.seen.denial("a.example", "for this port");
    let refused = world.sandbox.connect(world.four("a.example"), 9).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "no listener, no connection");
}

#[test]
fn a_host_other_than_the_asked_one_is_cut_off() {
    let server = server(8);
    let Some(world) = World::with_server("a.example", &server) else { return };
    for request in [
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = world.dial("a.example", port(&server));
        client.write_all(request.as_bytes()).unwrap();
        assert_reset(&mut client);
        assert_untouched(&server);
    }
    world.seen.denial("a.example", "an HTTP request for \"evil.example\"");
}

#[test]
fn a_later_request_for_another_host_is_cut_off() {
    let server = server(9);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let mut client = world.dial("a.example", port(&server));
    client.write_all(GET.as_bytes()).unwrap();
    let mut peer = accept(&server);
    read_until(&mut peer, "\r\n\r\n");
    peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    read_until(&mut client, "\r\n\r\n");
    client.write_all(GET.as_bytes()).unwrap();
    read_until(&mut peer, "\r\n\r\n");
    client.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    assert_reset(&mut client);
    assert_reset(&mut peer);
    world.seen.denial("a.example", "evil.example");
}

#[test]
fn a_websocket_switches_only_when_the_server_does() {
    let server = server(10);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let upgrade = b"GET /s HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut client = world.dial("a.example", port(&server));
    client.write_all(upgrade).unwrap();
    let mut peer = accept(&server);
    read_until(&mut peer, "\r\n\r\n");
    peer.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
    read_until(&mut client, "\r\n\r\n");
    client.write_all(b"\x81\x02hi\n").unwrap();
    assert_eq!(read_until(&mut peer, "\n").chars().count(), 5);

    let mut client = world.dial("a.example", port(&server));
    client.write_all(upgrade).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    let mut peer = accept(&server);
    read_until(&mut peer, "\r\n\r\n");
    peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_reset(&mut peer);
}

/// A ClientHello for `name` in one record, after the wire format.
fn hello(name: &str, more: &[u8]) -> Vec<u8> {
    let number = |value: usize| u16::try_from(value).unwrap().to_be_bytes();
    let entry = [&[0][..], &number(name.len()), name.as_bytes()].concat();
    let list = [&number(entry.len())[..], &entry].concat();
    let extensions = [&[0, 0][..], &number(list.len()), &list, more].concat();
    let fixed = [&[3, 3][..], &[9; 32], &[0, 0, 2, 0x13, 0x01, 1, 0]].concat();
    let body = [&fixed[..], &number(extensions.len()), &extensions].concat();
    let message = [&[1, 0][..], &number(body.len()), &body].concat();
    [&[0x16, 3, 1][..], &number(message.len()), &message].concat()
}

#[test]
fn a_server_name_other_than_the_asked_one_is_cut_off() {
    let server = server(11);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let right = hello("a.example", &[]);
    let mut client = world.dial("a.example", port(&server));
    for piece in right.chunks(5) {
        client.write_all(piece).unwrap();
    }
    let mut received = vec![0; right.len()];
    accept(&server).read_exact(&mut received).unwrap();
    assert_eq!(received, right);
    for wrong in [hello("evil.example", &[]), hello("a.example", &[0xfe, 0x0d, 0, 1, 0])] {
        let mut client = world.dial("a.example", port(&server));
        client.write_all(&wrong).unwrap();
        assert_reset(&mut client);
        assert_untouched(&server);
    }
    world.seen.denial("a.example", "a TLS server name \"evil.example\"");
    world.seen.denial("a.example", "encrypted");
}

/// The server's answer decides whether another hello may follow in plain text.
#[test]
fn the_server_s_answer_ends_the_watch_and_a_retry_does_not() {
    let server = server(18);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let (change, encrypted) = ([0x14, 3, 3, 0, 1, 1], [0x17, 3, 3, 0, 2, 9, 9]);
    let retry = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ];
    let greeted = |random: [u8; 32]| {
        let (right, mut client) = (hello("a.example", &[]), world.dial("a.example", port(&server)));
        client.write_all(&right).unwrap();
        let mut peer = accept(&server);
        peer.read_exact(&mut vec![0; right.len()]).unwrap();
        let answer = [&[0x16, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3][..], &random, &[0, 0x13, 1, 0]].concat();
        peer.write_all(&answer).unwrap();
        client.read_exact(&mut vec![0; answer.len()]).unwrap();
        (client, peer)
    };
    let (mut client, mut peer) = greeted([5; 32]);
    client.write_all(&[&change[..], &encrypted, b"whatever follows"].concat()).unwrap();
    peer.read_exact(&mut [0; 29]).unwrap();
    let (mut client, mut peer) = greeted(retry);
    client.write_all(&[&change[..], &hello("a.example", &[]), &encrypted, b"whatever"].concat()).unwrap();
    peer.read_exact(&mut vec![0; 6 + hello("a.example", &[]).len() + 7 + 8]).unwrap();
    let (mut client, mut peer) = greeted(retry);
    client.write_all(&[&change[..], &hello("evil.example", &[])].concat()).unwrap();
    assert_reset(&mut client);
    assert_reset(&mut peer);
    world.seen.denial("a.example", "a TLS server name \"evil.example\"");
}

/// Whatever names lie between the asked one and the address, only the asked one counts.
#[test]
fn an_alias_is_not_a_listing() {
    let server = server(12);
    let Some(world) = World::with_server("a.example", &server) else { return };
    world.book.set("edge.cdn.example", vec![Answer::Addresses(vec![ip("127.77.0.12")])]);
    assert_eq!(world.ask("edge.cdn.example", RecordType::A).metadata.response_code, ResponseCode::NXDomain);
    let mut client = world.dial("a.example", port(&server));
    client.write_all(b"GET / HTTP/1.1\r\nHost: edge.cdn.example\r\n\r\n").unwrap();
    assert_reset(&mut client);
    assert_eq!(world.book.asked(), ["a.example"]);
}

#[test]
fn a_redirect_leads_nowhere_that_is_not_listed() {
    let (server, other) = (server(13), server(14));
    let allow = Allow { names: vec![("a.example", vec![port(&server), port(&other)])], ..Allow::default() };
    let Some(world) = World::new(allow) else { return };
    world.book.set("a.example", vec![Answer::Addresses(vec![ip("127.77.0.13")])]);
    let mut client = world.dial("a.example", port(&server));
    client.write_all(GET.as_bytes()).unwrap();
    let location = format!("HTTP/1.1 302 Found\r\nLocation: http://127.77.0.14:{}/\r\n\r\n", port(&other));
    accept(&server).write_all(location.as_bytes()).unwrap();
    read_until(&mut client, "\r\n\r\n");
    assert_eq!(world.ask("evil.example", RecordType::A).metadata.response_code, ResponseCode::NXDomain);
    assert_reset(&mut world.sandbox.connect(ip("127.77.0.14"), port(&other)).unwrap());
    assert_nobody_came(&other);
}

#[test]
fn a_resolver_that_is_down_lies_or_is_slow_breaks_nothing() {
    let server = server(15);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let many: Vec<IpAddr> = (0..5000).map(|_| ip("10.0.0.1")).chain([ip("127.77.0.15")]).collect();
    world.book.set(
        "a.example",
        vec![
            Answer::Down,
            Answer::Addresses(Vec::new()),
            Answer::Addresses(many),
            Answer::Late(Duration::from_millis(300), ip("127.77.0.15")),
            Answer::Never,
        ],
    );
    let failed = |detail: &str| {
        world.seen.wait(|op| {
            op.decision == Decision::Allow && op.detail.as_deref().is_some_and(|text| text.contains(detail))
        })
    };
    assert_reset(&mut world.dial("a.example", port(&server)));
    assert_eq!(failed("the resolver is down").address, None);
    assert_reset(&mut world.dial("a.example", port(&server)));
    failed("no address");
    let _lying = world.dial("a.example", port(&server));
    accept(&server);
    let _late = world.dial("a.example", port(&server));
    accept(&server);
    let started = Instant::now();
    assert_reset(&mut world.dial("a.example", port(&server)));
    failed("no answer in time");
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
}

#[test]
fn a_server_that_is_gone_resets_and_is_told() {
    let server = server(16);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let gone = port(&server);
    drop(server);
    assert_reset(&mut world.dial("a.example", gone));
    let op = world.seen.wait(|op| op.detail.as_deref().is_some_and(|text| text.contains("can't connect")));
    assert_eq!((op.decision, op.address.as_deref()), (Decision::Allow, Some("127.77.0.16")));
}

#[test]
fn stopping_takes_no_time() {
    let server = server(17);
    let Some(world) = World::with_server("a.example", &server) else { return };
    let mut open = world.dial("a.example", port(&server));
    let mut peer = accept(&server);
    world.book.set("a.example", vec![Answer::Never]);
    let _waiting = world.dial("a.example", port(&server));
    let reader = thread::spawn(move || peer.read(&mut [0; 1]).map_err(|error| error.kind()));
    let started = Instant::now();
    assert_eq!(world.stop().len(), 1);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert!(matches!(reader.join().unwrap(), Ok(0) | Err(io::ErrorKind::ConnectionReset)));
    assert!(matches!(open.read(&mut [0; 1]), Ok(0) | Err(_)));
}
