//! `--publish`: the host's loopback reaches a port inside, and nothing else changes. BOX-3.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use stockade_line_tests::{Line, Running, World, deadline, have, skip, until};
use stockade_proto::{Code, Outcome};

/// `listen` and a loop that gives each connection to a thread. Each script says `up` when it listens.
const SERVER: &str = r#"
import hashlib, os, socket, sys, threading
def listen(address="127.0.0.1", port=8080):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(256)
    print("up", flush=True)
    return s
def all(c):
    parts = []
    while part := c.recv(1 << 16): parts.append(part)
    return b"".join(parts)
def each(s, what):
    while True:
        c, _ = s.accept()
        threading.Thread(target=what, args=(c,), daemon=True).start()
def echo(c):
    with c: c.sendall(all(c))
"#;

fn line<'w>(world: &'w World, script: &str) -> Line<'w> {
    world.line(&["python3", "-c", &format!("{SERVER}{script}")])
}

/// Where the kernel let it be reached, as stderr says it.
fn place(running: &Running) -> SocketAddr {
    let said = running.wait_err(" inside\n");
    let words: Vec<&str> = said.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "reaches").expect("a sentence");
    words[at - 1].parse().expect("an address")
}

/// A server that listens, and where.
fn served(world: &World, script: &str) -> (Running, SocketAddr) {
    let running = line(world, script).option("--publish", "0:8080").start();
    running.wait_out("up\n");
    let at = place(&running);
    (running, at)
}

fn dial(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("it is published");
    stream.set_read_timeout(Some(deadline())).expect("a timeout");
    stream.set_write_timeout(Some(deadline())).expect("a timeout");
    stream
}

/// Sends all of it, ends its half, and reads the rest.
fn ask(at: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = dial(at);
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// On a slow machine before the connect returns, else at the first read.
fn is_reset(at: SocketAddr) -> bool {
    let met = TcpStream::connect(at).and_then(|mut stream| {
        stream.set_read_timeout(Some(deadline()))?;
        stream.read(&mut [0])
    });
    matches!(met, Err(error) if error.kind() == io::ErrorKind::ConnectionReset)
}

/// Bytes in which a hole or a swap would show.
fn pattern(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).take(length).collect()
}

/// Ends it; nobody listens there afterwards.
fn stop(running: Running, at: SocketAddr) {
    running.signal(Signal::TERM);
    let ran = running.finish().ends_with(143);
    assert!(matches!(ran.result().outcome, Outcome::Cancelled { .. }), "{ran}");
    assert!(TcpStream::connect(at).is_err(), "{at} still listens");
}

#[test]
fn a_web_server_inside_is_reached() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    world.plant("work/page", "walrus");
    let words = ["python3", "-u", "-m", "http.server", "8080", "--bind", "127.0.0.1"];
    let running = world.line(&words).option("--publish", "0:8080").start();
    running.wait_out("Serving HTTP");
    let at = place(&running);
    assert_eq!(at.ip().to_string(), "127.0.0.1");
    let answer = ask(at, b"GET /page HTTP/1.0\r\n\r\n").expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("200 OK") && answer.ends_with("walrus"), "{answer}");
    running.signal(Signal::TERM);
    let ran = running.finish().ends_with(143);
    let expected = serde_json::json!([{"host": at.to_string(), "port": 8080}]);
    assert_eq!(ran.value()["published"], expected, "{ran}");
    let network = ran.result().enforcement.into_iter().find(|one| one.detail.contains("published"));
    assert!(network.is_some(), "{ran}");
    assert!(TcpStream::connect(at).is_err(), "{at} still listens");
}

#[test]
fn without_the_flag_nothing_is_reachable() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    // Free a moment ago; the same number inside and outside.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    for address in ["0.0.0.0", "::"] {
        let running = line(&world, &format!("each(listen('{address}', {port}), echo)")).start();
        running.wait_out("up\n");
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        assert!(TcpStream::connect(("::1", port)).is_err());
        running.signal(Signal::TERM);
        let ran = running.finish().ends_with(143);
        assert_eq!((ran.err(), ran.result().published), (String::new(), Vec::new()), "{ran}");
    }
}

#[test]
fn much_goes_through_both_ways_and_each_half_ends_by_itself() {
    const MUCH: usize = 10 * 1024 * 1024;
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let bytes = pattern(MUCH);
    let (running, at) = served(&world, "each(listen(), echo)");
    assert!(ask(at, &bytes).expect("an answer") == bytes, "another answer");
    stop(running, at);
    let script = r#"
def push(c):
    c.sendall(b"first"); c.shutdown(socket.SHUT_WR)
    print("got", hashlib.sha256(all(c)).hexdigest(), flush=True)
print("want", hashlib.sha256(open("bytes", "rb").read()).hexdigest(), flush=True)
each(listen(), push)
"#;
    world.plant("work/bytes", &bytes);
    let (running, at) = served(&world, script);
    let mut client = dial(at);
    let mut first = String::new();
    client.read_to_string(&mut first).expect("its end");
    assert_eq!(first, "first");
    client.write_all(&bytes).expect("the other half is open");
    drop(client);
    running.wait_out("got ");
    let sums = until("two sums", || {
        let said = running.out_now();
        let sums: Vec<String> =
            said.lines().filter_map(|line| line.split_once(' ')).map(|(_, sum)| sum.to_owned()).collect();
        (sums.len() == 2 && said.ends_with('\n')).then_some(sums)
    });
    assert_eq!(sums[0], sums[1]);
    stop(running, at);
}

#[test]
fn many_one_after_another_and_many_at_once() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let (running, at) = served(&world, "each(listen(), echo)");
    for number in 0..200 {
        let text = format!("number {number}");
        assert_eq!(ask(at, text.as_bytes()).expect(&text), text.as_bytes());
    }
    let bytes = pattern(100_000);
    let at_once: Vec<_> = (0..100)
        .map(|_| {
            let bytes = bytes.clone();
            std::thread::spawn(move || ask(at, &bytes).expect("an answer") == bytes)
        })
        .collect();
    assert!(at_once.into_iter().all(|one| one.join().expect("no panic")));
    stop(running, at);
}

#[test]
fn a_server_on_the_other_loopback_address() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let (running, at) = served(&world, "each(listen('::1'), echo)");
    for _ in 0..100 {
        assert_eq!(ask(at, b"six").expect("an answer"), b"six");
    }
    stop(running, at);
}

#[test]
fn who_comes_too_early_is_reset_and_may_come_again() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let script = "print('ready', flush=True)\ninput()\neach(listen(), echo)";
    let line = line(&world, script).option("--publish", "0:8080").flag("--stdin").input_open();
    let mut running = line.start();
    running.wait_out("ready\n");
    let at = place(&running);
    for _ in 0..100 {
        assert!(is_reset(at));
    }
    running.write(b"\n");
    running.wait_out("up\n");
    assert_eq!(ask(at, b"now").expect("an answer"), b"now");
    stop(running, at);
}

#[test]
fn an_address_of_the_hosts_loopback() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let mut hosts = vec!["127.0.0.1", "127.8.9.1"];
    match TcpListener::bind("[::1]:0") {
        Ok(_) => hosts.push("[::1]"),
        Err(error) => skip(&format!("no ::1 on this host: {error}")),
    }
    let mut line = line(&world, "each(listen(), echo)");
    for host in &hosts {
        line = line.option("--publish", format!("{host}:0:8080"));
    }
    let running = line.start();
    running.wait_out("up\n");
    let places = until("a line for each", || {
        let said = running.wait_err("reaches");
        let places: Vec<SocketAddr> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (places.len() == hosts.len()).then_some(places)
    });
    for at in &places {
        assert_eq!(ask(*at, b"hello").expect("an answer"), b"hello", "{at}");
    }
    stop(running, places[0]);
}

#[test]
fn a_taken_port_is_said_and_nothing_starts() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = taken.local_addr().expect("an address");
    let ran = world.sh("touch started").option("--publish", format!("{}:80", at.port())).go();
    let refusal = ran.refused(Code::PortUnavailable);
    assert!(refusal.message.contains(&at.to_string()), "{ran}");
    assert!(!world.work().join("started").exists(), "{ran}");
}

#[test]
fn forms_that_publish_nothing() {
    let world = World::new();
    world.profile("open", "extends = \"default\"\nnetwork = \"inherit\"\n");
    world.profile(
        "net",
        "extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"a.example:8443\"]\n",
    );
    let rows: &[(&str, &[&str], &str)] = &[
        ("default", &["0"], "port 0"),
        ("default", &["80:0"], "port 0"),
        ("default", &["http"], "`http` is not a port"),
        ("default", &["99999"], "`99999` is not a port"),
        ("default", &["80:"], "`` is not a port"),
        ("default", &["0.0.0.0:8080:80"], "`0.0.0.0` is not a loopback address"),
        ("default", &["192.168.1.1:8080:80"], "not a loopback address"),
        ("default", &["[::]:8080:80"], "not a loopback address"),
        ("default", &["localhost:8080:80"], "not a loopback address"),
        ("default", &["8080:80", "8080:81"], "published twice"),
        ("default", &["0:1"; 17], "16 is the most"),
        ("open", &["8080:80"], "on the host already"),
        ("host", &["8080:80"], "on the host already"),
        ("net", &["8080:8443"], "way out"),
        ("net", &["8080:53"], "way out"),
    ];
    for (profile, forms, word) in rows {
        let mut line = world.sh("touch started").profile(profile);
        for form in *forms {
            line = line.option("--publish", form);
        }
        let ran = line.go();
        let refusal = ran.refused(Code::OptionInvalid);
        assert!(refusal.message.contains(word), "{forms:?}: {ran}");
        assert!(!world.work().join("started").exists(), "{ran}");
    }
    let ran = world.line(&["true"]).option("--publish", "127.0.0.2:8080:80").flag("--explain").no_json().go();
    assert!(ran.out().contains("127.0.0.2:8080 of the host reaches port 80 inside"), "{ran}");
    // Only a person publishes.
    world.profile("mine", "extends = \"default\"\npublish = [\"8080:80\"]\n");
    world.sh("touch started").profile("mine").go().refused(Code::ProfileInvalid);
}

/// Answers each connection with how connecting out went.
const OUTWARD: &str = r#"
def outward(c):
    s = socket.socket(); s.settimeout(20)
    try:
        s.connect(("127.0.0.1", int(all(c))))
        answer = all(s) or b"nothing"
    except OSError as e:
        answer = type(e).__name__.encode()
    with c: c.sendall(answer)
each(listen(), outward)
"#;

/// A server on the host's loopback that answers with a word.
fn host_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(4) {
            stream.and_then(|mut stream| stream.write_all(b"walrus")).expect("a reader");
        }
    });
    port
}

#[test]
fn the_way_out_stays_shut() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let port = host_server();
    let (running, at) = served(&world, OUTWARD);
    let answer = ask(at, port.to_string().as_bytes()).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&answer), "ConnectionRefusedError");
    stop(running, at);
}

#[test]
fn beside_an_allowlist() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let (open, shut) = (host_server(), host_server());
    world.profile(
        "net",
        &format!(
            "extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"127.0.0.1:{open}\"]\n"
        ),
    );
    let running = line(&world, OUTWARD).profile("net").option("--publish", "0:8080").start();
    running.wait_out("up\n");
    let at = place(&running);
    for (port, expected) in [(open, "walrus"), (shut, "ConnectionRefusedError"), (open, "walrus")] {
        let answer = ask(at, port.to_string().as_bytes()).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }
    running.signal(Signal::TERM);
    let ran = running.finish().ends_with(143);
    let result = ran.result();
    assert_eq!(result.published.len(), 1, "{ran}");
    let [traffic] = result.traffic.as_slice() else { panic!("one host, and not what was published: {ran}") };
    assert_eq!((traffic.port, traffic.connections), (open, 2), "{ran}");
}

#[test]
fn the_last_words_of_a_command_arrive() {
    const MUCH: usize = 1_000_000;
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    // It ends at once, with its answer still in the kernel.
    let script = format!("c, _ = listen().accept()\nall(c)\nc.sendall(b'x' * {MUCH})\nos._exit(0)");
    let (running, at) = served(&world, &script);
    assert_eq!(ask(at, b"once").expect("an answer").len(), MUCH);
    running.finish().ends_with(0);
    // A client that only waits holds up nothing.
    let (running, at) = served(&world, "listen().accept()\nos._exit(0)");
    let mut client = dial(at);
    assert!(running.ends_within(Duration::from_secs(20)));
    let ran = running.finish().ends_with(0);
    assert!(ran.pipes_closed, "{ran}");
    assert_eq!(client.read(&mut [0]).expect("an end"), 0);
}
