//! `network = "allowlist"` on running commands. What a name resolves to and what clients say inside a connection
//! is tried in `crates/egress`. BOX-4.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use stockade_line_tests::{Ran, World, have};
use stockade_proto::{Decision, Event, NetworkKind};

/// A server on the host's loopback that answers every connection with a word.
fn server() -> u16 {
    server_on("127.0.0.1")
}

fn server_on(address: &str) -> u16 {
    let listener = TcpListener::bind((address, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8) {
            let mut stream = stream.expect("a connection");
            stream.write_all(b"walrus").expect("a reader");
            stream.shutdown(std::net::Shutdown::Write).expect("a half to close");
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest));
        }
    });
    port
}

fn go(world: &World, script: &str) -> Ran {
    let events = world.base().join("events");
    world
        .line(&["python3", "-c", script])
        .option("--profile", "net")
        .option("--events", events)
        .go()
        .ends_with(0)
}

const TRY: &str = r#"
import socket, sys
def get(host, port, family=socket.AF_INET):
    s = socket.socket(family)
    s.settimeout(20)
    try:
        s.connect((host, port))
        data = b""
        while True:
            part = s.recv(99)
            if not part: break
            data += part
        return data.decode() or "nothing"
    except OSError as e:
        return type(e).__name__
"#;

#[test]
fn an_address_and_port_are_open_and_their_neighbours_are_not() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let (open, shut) = (server(), server());
    world.profile(
        "net",
        &format!(
            "extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"127.0.0.1:{open}\"]\n"
        ),
    );
    let script = format!(
        "{TRY}\nprint(get('127.0.0.1', {open}))\nprint(get('::ffff:127.0.0.1', {open}, socket.AF_INET6))\nprint(get('127.0.0.1', {shut}))\nprint(get('127.0.0.2', {open}))\nprint(get('169.254.169.254', {open}))\nprint(get('::1', {open}, socket.AF_INET6))\n"
    );
    let ran = go(&world, &script);
    let lines: Vec<String> = ran.out().lines().map(str::to_owned).collect();
    assert_eq!(lines[..2], ["walrus", "walrus"], "{ran}");
    assert_eq!(lines[2], "ConnectionRefusedError", "no listener on that port: {ran}");
    assert!(lines[3..].iter().all(|line| line.starts_with("Connection")), "{ran}");
    let result = ran.result();
    let [traffic] = result.traffic.as_slice() else { panic!("one host: {ran}") };
    assert_eq!((traffic.port, traffic.connections, traffic.received_bytes), (open, 2, 12), "{ran}");
    let targets: Vec<String> = result.blocked.iter().map(|blocked| blocked.target.to_string()).collect();
    assert!(targets.contains(&format!("127.0.0.2:{open}")), "{targets:?}");
    assert!(targets.contains(&format!("169.254.169.254:{open}")), "{targets:?}");
    assert!(ran.err().contains("to allow it"), "{ran}");
}

#[test]
fn the_newer_protocol_is_carried_too_and_echoes_of_neither() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let port = server_on("::1");
    world.profile(
        "net",
        &format!("extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"[::1]:{port}\"]\n"),
    );
    let script = format!(
        r#"{TRY}
print(get('::1', {port}, socket.AF_INET6))
print(get('::2', {port}, socket.AF_INET6))
print(get('127.0.0.1', {port}))
for family, protocol, target in [(socket.AF_INET, socket.IPPROTO_ICMP, '127.0.0.1'), (socket.AF_INET6, socket.IPPROTO_ICMPV6, '::1')]:
    for kind in [socket.SOCK_DGRAM, socket.SOCK_RAW]:
        try:
            s = socket.socket(family, kind, protocol)
            s.sendto(bytes([8, 0, 0, 0, 0, 1, 0, 1]), (target, 0))
            print('sent')
        except OSError as e:
            print('closed')
"#
    );
    let ran = go(&world, &script);
    let lines: Vec<String> = ran.out().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "walrus", "{ran}");
    assert!(lines[1..3].iter().all(|line| line.starts_with("Connection")), "{ran}");
    assert_eq!(lines[3..], ["closed"; 4], "{ran}");
    let result = ran.result();
    let [traffic] = result.traffic.as_slice() else { panic!("one host: {ran}") };
    assert_eq!((traffic.port, traffic.connections, traffic.received_bytes), (port, 1, 6), "{ran}");
}

#[test]
fn only_listed_names_are_answered_and_none_is_asked_of_the_host() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    world.profile(
        "net",
        "extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"listed.example:443\", \"*.wild.example\"]\n",
    );
    let script = r#"
import socket
def ask(name):
    try:
        return sorted({a[4][0] for a in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)})[0].split(".")[0]
    except socket.gaierror as e:
        return "no" if e.errno == socket.EAI_NONAME else str(e)
for name in ["listed.example", "LISTED.example.", "a.b.wild.example", "wild.example", "other.example", "data.listed.example"]:
    print(name, ask(name))
"#;
    let ran = go(&world, script);
    for name in ["listed.example", "LISTED.example.", "a.b.wild.example"] {
        assert!(ran.out().contains(&format!("{name} 198\n")), "{name}: {ran}");
    }
    for name in ["\nwild.example", "other.example", "data.listed.example"] {
        assert!(ran.out().contains(&format!("{name} no\n")), "{name}: {ran}");
    }
    let refused = world.read("events").lines().filter_map(|line| serde_json::from_str(line).ok()).any(|event| {
        matches!(event, Event::NetworkOp(op)
            if op.operation == NetworkKind::Resolve && op.host == "other.example" && op.decision == Decision::Deny)
    });
    assert!(refused, "{}", world.read("events"));
}

#[test]
fn the_hosts_own_names_and_limits_stay_outside() {
    let world = World::new();
    world.profile(
        "net",
        "extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"listed.example:443\"]\n",
    );
    let regular = |path: &str| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    for (path, text) in [
        ("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 stockade\n::1 localhost stockade\n"),
        ("/etc/resolv.conf", "nameserver 127.0.0.1\n"),
    ] {
        if !regular(path) {
            continue;
        }
        let outside = std::fs::read(path).expect("a file");
        let ran = world.line(&["cat", path]).option("--profile", "net").go().ends_with(0);
        assert_eq!(ran.out(), text, "{ran}");
        let write = format!("echo x >> {path} || chmod 777 {path} || rm {path} || mv {path} {path}.x");
        let ran = world.line(&["sh", "-c", &write]).option("--profile", "net").go();
        assert_ne!(ran.code(), 0, "{ran}");
        assert_eq!(std::fs::read(path).expect("a file"), outside);
        let ran = world.line(&["cat", path]).go().ends_with(0);
        assert_eq!(ran.out().as_bytes(), outside, "without an allowlist: {ran}");
    }
    // Who it is itself is nobody's business but its own.
    let own = world.line(&["getent", "hosts", "stockade"]).option("--profile", "net").go();
    if regular("/etc/hosts") {
        assert!(own.code() == 0 && own.result().blocked.is_empty(), "{own}");
    }
    // The egress raises the executor's own limit, after init was started.
    let files = "ulimit -Sn; ulimit -Hn";
    let plain = world.line(&["sh", "-c", files]).go().ends_with(0);
    let listed = world.line(&["sh", "-c", files]).option("--profile", "net").go().ends_with(0);
    assert_eq!(listed.out(), plain.out());
}

#[test]
fn what_leads_nowhere_is_told() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    world.profile(
        "net",
        "extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"a.example:443\"]\n",
    );
    let script = format!(
        "{TRY}\nfor host, port in [('192.0.2.1', 80), ('a.example', 81), ('127.0.0.1', 82)]: print(get(host, port))\n\
         s = socket.socket(type=socket.SOCK_DGRAM)\nfor port in [123, 123, 53]:\n try: s.sendto(b'x', ('192.0.2.1', port))\n except OSError: pass\n"
    );
    let targets = |ran: &Ran| -> Vec<(String, String, u64)> {
        let rows = ran.result().blocked;
        let rows = rows.iter().map(|row| (row.operation.clone(), row.target.to_string(), row.count));
        // Two walls tell of them, each in its own time.
        let mut rows: Vec<_> = rows.collect();
        rows.sort();
        rows
    };
    let row = |operation: &str, target: &str, count| (operation.to_owned(), target.to_owned(), count);
    let ran = go(&world, &script);
    assert_eq!(ran.out(), "ConnectionRefusedError\n".repeat(3), "{ran}");
    let expected = [
        row("connect", "192.0.2.1:80", 1),
        row("connect", "a.example:81", 1),
        row("send", "192.0.2.1:123", 2),
    ];
    assert_eq!(targets(&ran), expected, "the sandbox's own loopback is none of it: {ran}");
    assert!(ran.err().contains("a.example:81"), "{ran}");

    // Without any way out, it says so.
    let ran =
        world.line(&["python3", "-c", &format!("{TRY}\nprint(get('192.0.2.1', 443))")]).go().ends_with(0);
    assert_eq!(ran.out(), "OSError\n", "{ran}");
    assert_eq!(targets(&ran), [row("connect", "192.0.2.1:443", 1)], "{ran}");
    assert!(ran.err().contains("`network` is `deny`"), "{ran}");
}
