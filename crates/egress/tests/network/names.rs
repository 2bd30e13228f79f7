//! The stub on its sockets: from the asked address, for listed names, and without a word to the outside.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use stockade_proto::{Decision, NetworkKind};

use crate::world::{Allow, PATIENCE, World, addresses, ip, query};

fn world() -> Option<World> {
    World::new(Allow {
        names: vec![("a.example", vec![443]), ("*.wild.example", vec![443])],
        ..Allow::default()
    })
}

#[test]
fn replies_come_from_the_address_that_was_asked() {
    let Some(world) = world() else { return };
    for (own, resolver) in [
        ("0.0.0.0:0", "9.9.9.9:53"),
        ("127.0.0.5:0", "8.8.8.8:53"),
        ("10.1.2.3:0", "127.0.0.53:53"),
        ("[::]:0", "[2001:db8::53]:53"),
        ("[::1]:0", "[fd00::53]:53"),
    ] {
        let socket = world.sandbox.udp(own);
        socket.send_to(&query("a.example.", RecordType::A), resolver).unwrap();
        let mut buffer = [0; 2000];
        let (count, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(from.to_string(), resolver, "asked from {own}");
        assert_eq!(addresses(&Message::from_vec(&buffer[..count]).unwrap()), [ip("198.18.0.1")]);
    }
}

#[test]
fn a_thread_for_lookups_is_there_before_the_first() {
    let Some(world) = world() else { return };
    let deadline = Instant::now() + PATIENCE;
    // It is there, and gives itself its name when it first runs.
    loop {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok());
        let names: Vec<String> = names.collect();
        if names.iter().any(|name| name.trim() == "lookup") {
            break;
        }
        assert!(Instant::now() < deadline, "{names:?}");
        std::thread::yield_now();
    }
    drop(world);
}

#[test]
fn a_name_has_one_address_per_family_and_is_told_once() {
    let Some(world) = world() else { return };
    assert_eq!(world.four("A.Example"), world.four("a.example."));
    assert_eq!(world.six("a.example"), ip("fd53:746f:636b:6164::1"));
    assert_ne!(world.four("x.wild.example"), world.four("a.example"));
    let told: Vec<_> = world.seen.all().into_iter().map(|op| (op.host, op.decision, op.rule)).collect();
    assert_eq!(
        told,
        [
            ("a.example".to_owned(), Decision::Allow, Some("a.example".to_owned())),
            ("x.wild.example".to_owned(), Decision::Allow, Some("*.wild.example".to_owned())),
        ]
    );
}

#[test]
fn unlisted_names_do_not_exist_and_are_told_once() {
    let Some(world) = world() else { return };
    for name in ["b.example", "a.example.corp", "wild.example", "b.example"] {
        assert_eq!(world.ask(name, RecordType::A).metadata.response_code, ResponseCode::NXDomain);
    }
    let op = world.seen.denial("b.example", "not in the allowlist");
    assert_eq!((op.operation, op.port), (NetworkKind::Resolve, None));
    assert_eq!(world.seen.all().iter().filter(|op| op.host == "b.example").count(), 1);
}

/// What a tunnel would send is not even asked outside, neither as TXT nor under a wildcard.
#[test]
fn questions_carry_nothing_out() {
    let Some(world) = world() else { return };
    let load = "0123456789abcdef".repeat(3);
    for tail in ["wild.example", "a.example", "evil.example"] {
        for kind in [RecordType::TXT, RecordType::NULL, RecordType::CNAME, RecordType::MX, RecordType::AAAA] {
            let reply = world.ask(&format!("{load}.{load}.{load}.{tail}"), kind);
            assert!(kind == RecordType::AAAA || reply.answers.is_empty(), "{kind} {tail}");
        }
    }
    assert_eq!(world.book.asked(), [""; 0]);
}

#[test]
fn the_table_of_names_has_an_end() {
    let Some(world) = world() else { return };
    let socket = world.sandbox.udp("0.0.0.0:0");
    socket.connect("192.0.2.53:53").unwrap();
    let mut buffer = [0; 2000];
    let mut code = |number: usize| {
        socket.send(&query(&format!("n{number}.wild.example"), RecordType::A)).unwrap();
        let count = socket.recv(&mut buffer).unwrap();
        Message::from_vec(&buffer[..count]).unwrap().metadata.response_code
    };
    for number in 0..4096 {
        assert_eq!(code(number), ResponseCode::NoError);
    }
    assert_eq!(code(4096), ResponseCode::ServFail);
    assert_eq!(code(0), ResponseCode::NoError, "the known ones stay");
    world.seen.denial("n4096.wild.example", "too many names");
    assert!(world.seen.all().len() < 1100, "the events are bounded too");
}

fn over_tcp(stream: &mut TcpStream, name: &str) -> Message {
    let asked = query(name, RecordType::A);
    let length = u16::try_from(asked.len()).unwrap().to_be_bytes();
    let framed = [&length[..], &asked].concat();
    for piece in framed.chunks(7) {
        stream.write_all(piece).unwrap();
    }
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply).unwrap();
    Message::from_vec(&reply).unwrap()
}

#[test]
fn tcp_answers_one_query_after_the_other() {
    let Some(world) = world() else { return };
    for resolver in ["9.9.9.9", "2001:db8::53"] {
        let mut stream = world.sandbox.connect(ip(resolver), 53).unwrap();
        assert_eq!(addresses(&over_tcp(&mut stream, "a.example")), [ip("198.18.0.1")]);
        assert_eq!(over_tcp(&mut stream, "b.example").metadata.response_code, ResponseCode::NXDomain);
    }
}

#[test]
fn an_oversized_tcp_query_ends_the_connection() {
    let Some(world) = world() else { return };
    let mut stream = world.sandbox.connect(ip("9.9.9.9"), 53).unwrap();
    stream.write_all(&[0xff, 0xff, 1, 2, 3]).unwrap();
    let mut rest = Vec::new();
    assert!(matches!(stream.read_to_end(&mut rest), Ok(0) | Err(_)));
}

#[test]
fn other_datagrams_go_nowhere() {
    let Some(world) = world() else { return };
    let socket = world.sandbox.udp("0.0.0.0:0");
    socket.connect("203.0.113.1:123").unwrap();
    socket.send(b"time?").unwrap();
    let refused = socket.recv(&mut [0; 10]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}
