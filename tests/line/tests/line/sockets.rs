//! Socket rules on running commands: what is allowed arrives, what is not is refused, told and explained.
//! SOCK-1, SOCK-2, SOCK-4, SOCK-5, SOCK-6.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::thread::JoinHandle;

use stockade_line_tests::{Ran, World, have};
use stockade_proto::{Decision, Event, Layer, State, UnixSocketOp};

/// Accepts one connection after the other and says a word to each. Ends with its socket.
fn speaker(path: &Path) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).expect("a free path");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("its owner sets its mode");
    std::thread::spawn(move || {
        // One connection per test is enough; the process ends with the test.
        if let Ok((mut stream, _)) = listener.accept() {
            stream.write_all(b"walrus").expect("a reader");
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest));
        }
    })
}

fn client(path: &str) -> String {
    format!(
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ntry:\n s.connect({path:?})\n print(s.recv(9).decode())\nexcept OSError as e: print('errno', e.errno)\n"
    )
}

fn rule(path: &Path, decision: &str) -> String {
    format!(
        "[[unix_sockets]]\nname = \"here\"\npaths = [\"{}\"]\noperations = [\"connect\"]\ndecision = \"{decision}\"\nmessage = \"ask Ada\"\n",
        path.display()
    )
}

fn events(world: &World) -> Vec<UnixSocketOp> {
    world
        .read("events")
        .lines()
        .map(|line| serde_json::from_str(line).expect("one event per line"))
        .filter_map(|event| match event {
            Event::UnixSocketOp(op) => Some(op),
            Event::NetworkOp(_) => None,
        })
        .collect()
}

fn go(world: &World, profile: &str, script: &str) -> Ran {
    let events = world.base().join("events");
    world
        .line(&["python3", "-c", script])
        .option("--profile", profile)
        .option("--events", events)
        .go()
        .ends_with(0)
}

#[test]
fn a_socket_of_the_host_is_shut_by_default_and_the_refusal_says_how_to_open_it() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let path = world.work().join("host.sock");
    let _speaker = speaker(&path);
    let ran = go(&world, "default", &client("host.sock"));
    assert_eq!(ran.out(), "errno 13\n", "{ran}");
    assert!(ran.err().contains("blocked connect"), "{ran}");
    assert!(ran.err().contains("[[unix_sockets]]"), "{ran}");
    let result = ran.result();
    let [blocked] = result.blocked.as_slice() else { panic!("one blocked target: {ran}") };
    assert_eq!(blocked.target.to_path_buf(), path, "{ran}");
    assert_eq!((blocked.operation.as_str(), blocked.rule.as_deref(), blocked.count), ("connect", None, 1));
    let row = result.enforcement.iter().find(|row| row.layer == Layer::Sockets).expect("its row");
    assert_eq!(row.state, State::Enforced, "{ran}");
    let seen = events(&world);
    let [op] = seen.as_slice() else { panic!("one event: {seen:?}") };
    assert_eq!((op.decision, op.rule.as_deref(), op.is_abstract), (Decision::Deny, None, false));
    assert_eq!((op.path.to_path_buf(), op.execution.as_str()), (path, result.execution.as_str()));
    assert!(op.comm.as_slice().starts_with(b"python"), "{op:?}");
    // What it says to write really opens it.
    world.profile("opened", &format!("extends = \"default\"\n{}", blocked.guidance));
    assert_eq!(go(&world, "opened", &client("host.sock")).out(), "walrus\n");
}

#[test]
fn a_rule_opens_one_socket_outside_the_workspace_and_not_its_neighbour() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let (open, shut) = (world.base().join("open.sock"), world.base().join("shut.sock"));
    let (_open, _shut) = (speaker(&open), speaker(&shut));
    world.profile("one", &format!("extends = \"default\"\n{}", rule(&open, "allow")));
    assert_eq!(go(&world, "one", &client(&open.display().to_string())).out(), "walrus\n");
    let ran = go(&world, "one", &client(&shut.display().to_string()));
    assert_eq!(ran.out(), "errno 2\n", "it is not even there: {ran}");
}

#[test]
fn on_a_terminal_the_same_holds() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let (open, shut) = (world.base().join("open.sock"), world.work().join("shut.sock"));
    let (_open, _shut) = (speaker(&open), speaker(&shut));
    world.profile("one", &format!("extends = \"default\"\n{}", rule(&open, "allow")));
    let script = "import pty, sys\nfor path in sys.argv[1:]: pty.spawn(['python3', 'client.py', path])\n";
    world.plant(
        "work/client.py",
        client("PATH").replace("\"PATH\"", "sys.argv[1]").replace("print(s", "print(sys.stdin.isatty(), s"),
    );
    let (open, shut) = (open.display().to_string(), shut.display().to_string());
    let ran =
        world.line(&["python3", "-c", script, &open, &shut]).option("--profile", "one").go().ends_with(0);
    assert_eq!(ran.out().replace('\r', ""), "True walrus\nerrno 13\n", "{ran}");
    assert_eq!(ran.result().blocked.len(), 1, "{ran}");
}

#[test]
fn the_first_rule_that_matches_decides_and_its_message_is_shown() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let path = world.work().join("host.sock");
    let _speaker = speaker(&path);
    let wide = "[[unix_sockets]]\nname = \"all\"\npaths = [\"$WORKSPACE/**\"]\ndecision = \"allow\"\n";
    world.profile("first", &format!("extends = \"default\"\n{}{wide}", rule(&path, "deny")));
    let ran = go(&world, "first", &client("host.sock"));
    assert_eq!(ran.out(), "errno 13\n", "{ran}");
    assert!(ran.err().contains("ask Ada"), "{ran}");
    assert_eq!(ran.result().blocked[0].rule.as_deref(), Some("here"), "{ran}");
    // Another name for the same socket is no way around a rule that names it.
    std::fs::hard_link(&path, world.work().join("other.sock")).expect("a second name");
    assert_eq!(go(&world, "first", &client("other.sock")).out(), "errno 13\n");
    std::os::unix::fs::symlink("host.sock", world.work().join("link.sock")).expect("a link");
    assert_eq!(go(&world, "first", &client("./link.sock")).out(), "errno 13\n");
}

#[test]
fn audit_lets_through_and_records_and_off_does_neither() {
    if !have(&["python3"]) {
        return;
    }
    for (mode, recorded) in [("audit", true), ("off", false)] {
        let world = World::new();
        let path = world.work().join("host.sock");
        let _speaker = speaker(&path);
        let layers = if recorded { "" } else { "[layers]\nsockets = \"off\"\n" };
        world.profile("mode", &format!("extends = \"default\"\nunix-sockets-mode = \"{mode}\"\n{layers}"));
        let ran = go(&world, "mode", &client("host.sock"));
        assert_eq!(ran.out(), "walrus\n", "{mode}: {ran}");
        assert!(ran.result().blocked.is_empty(), "{mode}: {ran}");
        let audited = events(&world).iter().any(|op| op.decision == Decision::Audit);
        assert_eq!(audited, recorded, "{mode}");
    }
}

#[test]
fn sockets_of_its_own_work_as_anywhere() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let script = r#"
import os, socket, stat, threading
def pair(address, kind):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(address)
    client = socket.socket(socket.AF_UNIX, kind)
    if kind == socket.SOCK_DGRAM:
        client.sendto(b"hello", address)
        return server.recv(9) == b"hello"
    server.listen(1)
    client.connect(address)
    accepted, _ = server.accept()
    client.sendall(b"hello")
    return accepted.recv(9) == b"hello" and server.getsockname() in (address, address.encode() if isinstance(address, str) else address)
os.umask(0o027)
for place in ["here.sock", os.getcwd() + "/there.sock", "/tmp/t.sock", os.path.expanduser("~/h.sock")]:
    for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM]:
        assert pair(place, kind), (place, kind)
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o750, oct(os.stat(place).st_mode)
        assert os.stat(place).st_uid == os.getuid()
        os.unlink(place)
assert pair("\0name", socket.SOCK_STREAM)
assert pair(b"\0na\0me", socket.SOCK_DGRAM)
a, b = socket.socketpair()
r, w = os.pipe()
socket.send_fds(a, [b"x"], [w])
_, fds, _, _ = socket.recv_fds(b, 1, 1)
os.write(fds[0], b"through")
assert os.read(r, 9) == b"through"
print("all")
"#;
    let ran = go(&world, "default", script);
    assert_eq!(ran.out(), "all\n", "{ran}");
    assert!(ran.result().blocked.is_empty(), "{ran}");
}

#[test]
fn datagrams_to_the_host_are_refused_however_they_are_sent() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let path = world.work().join("log.sock");
    let receiver = UnixDatagram::bind(&path).expect("a free path");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("its owner sets its mode");
    receiver.set_nonblocking(true).expect("a flag");
    let script = r#"
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for send in [lambda: s.sendto(b"x", "log.sock"), lambda: s.sendmsg([b"x"], [], 0, "log.sock"),
             lambda: a.sendto(b"x", "log.sock"), lambda: s.connect("log.sock")]:
    try:
        send()
        print("sent")
    except OSError as e:
        print(e.errno)
"#;
    let ran = go(&world, "default", script);
    assert_eq!(ran.out(), "13\n13\n13\n13\n", "{ran}");
    assert!(receiver.recv(&mut [0; 9]).is_err(), "nothing arrived");
}

/// Fills pairs of sockets without reading them: how much they took, and how often there was no room.
const HOARD: &str = r#"
import errno, socket
pairs, taken, refused = [], 0, 0
for _ in range(300):
    a, b = socket.socketpair()
    a.setblocking(False)
    pairs.append((a, b))
    try:
        while True: taken += a.sendmsg([bytes(65536)])
    except OSError as e:
        refused += e.errno == errno.ENOBUFS
print(taken >> 20, refused)
"#;

#[test]
fn what_is_sent_and_not_read_is_bounded() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let off = "unix-sockets-mode = \"off\"\n[layers]\nsockets = \"off\"\n";
    world.profile("off", &format!("extends = \"default\"\n{off}"));
    let hoard = |profile: &str| -> (u64, u64) {
        let ran = world.line(&["python3", "-c", HOARD]).option("--profile", profile).go().ends_with(0);
        let (taken, refused) =
            ran.out().trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("two");
        (taken.parse().expect("a number"), refused.parse().expect("a number"))
    };
    let (free, unrefused) = hoard("off");
    let (taken, refused) = hoard("default");
    assert_eq!(unrefused, 0, "the command's own, and charged to it");
    assert!(refused > 100 && taken < free, "{taken} of {free} MiB, {refused} refused");
}

#[test]
fn short_conversations_have_no_end() {
    if !have(&["python3"]) {
        return;
    }
    let world = World::new();
    let script = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('s')\ns.listen(8)\n\
                  for _ in range(400):\n c = socket.socket(socket.AF_UNIX)\n c.connect('s')\n c.sendmsg([b'walrus'])\n \
                  c.close()\n a, _ = s.accept()\n assert a.recv(9) == b'walrus'\nprint('heard')\n";
    assert_eq!(go(&world, "default", script).out(), "heard\n");
}

#[test]
fn a_mount_is_no_other_socket() {
    if !have(&["python3", "unshare"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return stockade_line_tests::skip("only root makes a mount for the caller");
    }
    let world = World::new();
    for name in ["real", "alias"] {
        std::fs::create_dir(world.base().join(name)).expect("made");
    }
    let path = world.base().join("real/host.sock");
    let _speaker = speaker(&path);
    let at = |name: &str| world.base().join(name).display().to_string();
    let wide = format!(
        "[[unix_sockets]]\nname = \"all\"\npaths = [\"{0}/**\"]\noperations = [\"connect\"]\ndecision = \"allow\"\n",
        world.base().display()
    );
    let readable = format!("readable = [\"{}\", \"{}\"]\n", at("real"), at("alias"));
    let aliased = |profile: &str| {
        let mounted = format!("mount --bind {} {} && exec \"$@\"", at("real"), at("alias"));
        let script = client(&at("alias/host.sock"));
        world
            .line(&["python3", "-c", &script])
            .option("--profile", profile)
            .before(&["unshare", "--mount", "sh", "-c", &mounted, "sh"])
            .go()
            .ends_with(0)
    };
    world.profile("shut", &format!("extends = \"default\"\n{readable}{}{wide}", rule(&path, "deny")));
    let ran = aliased("shut");
    assert_eq!(ran.out(), "errno 13\n", "{ran}");
    assert_eq!(ran.result().blocked[0].rule.as_deref(), Some("here"), "{ran}");
    world.profile("open", &format!("extends = \"default\"\n{readable}{wide}"));
    assert_eq!(aliased("open").out(), "walrus\n", "without that rule it is reached");
}
