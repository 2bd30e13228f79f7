//! connect, bind and listen: what is allowed works, what is denied does not, and errors are the kernel's.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};

use stockade_proto::{Bytes, Decision, SocketOperation};

use crate::raw::{self, bind, connect, datagram, listen, stream, unix};
use crate::stage::{Inside, Scenes, Server, Stage, by_name};

pub(crate) const SCENES: Scenes = &[
    ("connects", connects),
    ("lengths", lengths),
    ("paths", paths),
    ("serves", serves),
    ("abstract", abstract_names),
    ("names", names),
    ("unbound", unbound),
    ("inet", inet),
];

fn connects(inside: &mut Inside) {
    assert_eq!(connect(stream(), &unix(inside.path("allowed"))), Ok(0));
    assert_eq!(connect(stream(), &unix(inside.path("denied"))), Err(libc::EACCES));
    assert_eq!(connect(stream(), &unix(inside.path("missing"))), Err(libc::ENOENT));
    assert_eq!(connect(stream(), &unix(inside.path("file"))), Err(libc::ECONNREFUSED));
    assert_eq!(connect(stream(), &unix(inside.path("file/x"))), Err(libc::ENOTDIR));
    assert_eq!(connect(stream(), &unix(inside.path("loop"))), Err(libc::ELOOP));
    assert_eq!(connect(stream(), &unix(inside.path("long"))), Err(libc::ENAMETOOLONG));
    assert_eq!(connect(datagram(), &unix(inside.path("allowed"))), Err(libc::EPROTOTYPE));
    assert_eq!(connect(-1, &unix("/x")), Err(libc::EBADF));
    assert_eq!(connect(999, &unix("/x")), Err(libc::EBADF));
    let file = std::fs::File::open("/dev/null").expect("opened");
    assert_eq!(connect(file.as_raw_fd(), &unix("/x")), Err(libc::ENOTSOCK));
    let twice = stream();
    assert_eq!(connect(twice, &unix(inside.path("allowed"))), Ok(0));
    assert_eq!(connect(twice, &unix(inside.path("allowed"))), Err(libc::EISCONN));
    // Not ours to decide, and the kernel's own errors.
    let udp = raw::socket(libc::AF_INET, libc::SOCK_DGRAM);
    assert_eq!(connect(udp, &unix(inside.path("denied"))), Err(libc::EAFNOSUPPORT));
    let pair = UnixStream::pair().expect("a pair");
    assert_eq!(connect(pair.0.as_raw_fd(), &unix(inside.path("allowed"))), Err(libc::EISCONN));
}

#[test]
fn connects_are_decided() {
    let place = tempfile::tempdir().expect("made");
    let at = |name: &str| place.path().join(name);
    let (allowed, denied) = (Server::at(&at("allowed")), Server::at(&at("denied")));
    std::fs::write(at("file"), "").expect("written");
    symlink("loop", at("loop")).expect("linked");
    symlink("x".repeat(300), at("long")).expect("linked");
    let seen = Stage::new("connects", place.path(), by_name).finish();
    crate::stage::until(|| allowed.visits() == 2);
    assert_eq!(denied.visits(), 0);
    let refused: Vec<_> = seen.iter().filter(|op| op.decision == Decision::Deny).collect();
    assert_eq!(refused.len(), 1, "{seen:#?}");
    let op = refused[0];
    assert_eq!((op.operation, &op.path), (SocketOperation::Connect, &Bytes::from(at("denied"))));
    assert_eq!((&*op.execution, op.rule.as_deref(), op.is_abstract), ("x1", Some("no"), false));
    assert!(op.pid > 0 && !op.comm.is_empty());
    let failed = seen.iter().find(|op| op.detail.is_some()).expect("what the kernel said");
    assert_eq!(failed.decision, Decision::Allow);
}

fn lengths(inside: &mut Inside) {
    let path = inside.path("allowed");
    let whole = unix([&path[..], b"\0"].concat());
    let mut padded = whole.clone();
    padded.resize(200, 0);
    let with = |length: usize| {
        let socket = stream();
        let pointer = padded.as_ptr().addr();
        let fd = usize::try_from(socket).expect("open");
        let answer = raw::call(libc::SYS_connect, &[fd, pointer, length]);
        raw::close(socket);
        answer
    };
    for length in [0, 1, 2, 111, 128, 129, 0xffff_ffff, usize::MAX] {
        assert_eq!(with(length), Err(libc::EINVAL), "{length:#x}");
    }
    // The path's first byte is the root: not a socket, and to most not writable either.
    assert!(matches!(with(3), Err(libc::ECONNREFUSED | libc::EACCES)));
    for length in [whole.len(), whole.len() - 1, 110, 0xffff_ffff_0000_006e] {
        assert_eq!(with(length), Ok(0), "{length:#x}");
    }
    assert_eq!(connect(stream(), &unix([b'x'; 108])), Err(libc::ENOENT), "108 bytes and no NUL");
    let edge = raw::edge();
    for (pointer, length) in [(0, 16), (edge, 16), (edge - 8, 16), (usize::MAX - 4, 4), (1 << 63, 110)] {
        let fd = usize::try_from(stream()).expect("open");
        for number in [libc::SYS_connect, libc::SYS_bind] {
            assert_eq!(raw::call(number, &[fd, pointer, length]), Err(libc::EFAULT), "{pointer:#x}");
        }
        assert_eq!(raw::call(libc::SYS_sendmsg, &[fd, pointer, 0]), Err(libc::EFAULT), "{pointer:#x}");
        assert_eq!(raw::call(libc::SYS_sendmmsg, &[fd, pointer, 1, 0]), Err(libc::EFAULT), "{pointer:#x}");
    }
    let mut other = whole;
    other[0] = 2;
    assert_eq!(connect(stream(), &other), Err(libc::EINVAL), "another family");
    let gram = datagram();
    assert_eq!(connect(gram, &[0, 0]), Ok(0), "AF_UNSPEC ends a datagram's connection");
    assert_eq!(connect(stream(), &[0, 0]), Err(libc::EINVAL));
}

#[test]
fn lengths_and_pointers_are_read_as_the_kernel_does() {
    let place = tempfile::tempdir().expect("made");
    let server = Server::at(&place.path().join("allowed"));
    Stage::new("lengths", place.path(), by_name).finish();
    crate::stage::until(|| server.visits() == 4);
}

fn paths(inside: &mut Inside) {
    let refused = |path: &[u8]| assert_eq!(connect(stream(), &unix(path)), Err(libc::EACCES), "{path:?}");
    let reached = |path: &[u8]| assert_eq!(connect(stream(), &unix(path)), Ok(0), "{path:?}");
    for name in ["to-denied", "dir/../denied", "./denied", "dir//../denied", "dir/absolute", "dir/up"] {
        refused(&inside.path(name));
        refused(name.as_bytes());
    }
    for name in ["to-allowed", "dir/../allowed", ".//allowed", "dir/inner"] {
        reached(&inside.path(name));
        reached(name.as_bytes());
    }
    std::env::set_current_dir(inside.place.join("dir")).expect("there");
    refused(b"../denied");
    refused(b"up");
    refused(b"absolute");
    reached(b"inner");
    reached(b"../allowed");
    // Magic links: the process that resolves is not the one that asked.
    let socket = std::fs::File::open(&inside.place).expect("opened");
    let magic = format!("/proc/{}/fd/{}/allowed", std::process::id(), socket.as_raw_fd());
    refused(magic.as_bytes());
    refused(format!("/proc/{}/root{}", std::process::id(), inside.place.join("denied").display()).as_bytes());
    refused(format!("/proc/{}/cwd/inner", std::process::id()).as_bytes());
    refused(b"/proc/self/cwd/inner");
    assert_ne!(connect(stream(), &unix(format!("/proc/self/fd/{}/allowed", socket.as_raw_fd()))), Ok(0));
    // A directory without a name.
    let gone = inside.place.join("gone");
    std::fs::create_dir(&gone).expect("made");
    std::env::set_current_dir(&gone).expect("there");
    std::fs::remove_dir(&gone).expect("removed");
    assert_eq!(connect(stream(), &unix("x")), Err(libc::ENOENT));
    assert_eq!(connect(stream(), &unix("../allowed")), Err(libc::ENOENT));
}

#[test]
fn a_path_is_what_it_means() {
    let place = tempfile::tempdir().expect("made");
    let at = |name: &str| place.path().join(name);
    let servers = [Server::at(&at("allowed")), Server::at(&at("denied"))];
    std::fs::create_dir(at("dir")).expect("made");
    let _inner = Server::at(&at("dir/inner"));
    symlink("denied", at("to-denied")).expect("linked");
    symlink(at("allowed"), at("to-allowed")).expect("linked");
    symlink(at("denied"), at("dir/absolute")).expect("linked");
    symlink("../denied", at("dir/up")).expect("linked");
    let seen = Stage::new("paths", place.path(), by_name).finish();
    assert_eq!(servers[1].visits(), 0);
    let shown: std::collections::BTreeSet<String> =
        seen.iter().filter(|op| op.rule.is_some()).map(|op| op.path.to_string()).collect();
    assert_eq!(shown, [at("denied").display().to_string()].into(), "always by its own name");
    assert!(seen.iter().any(|op| op.decision == Decision::Deny && op.detail.is_some()), "a magic link");
}

/// A second name for a socket that a rule denies by its first: the rules are told device and number.
#[test]
fn a_hard_link_has_the_same_number() {
    let place = tempfile::tempdir().expect("made");
    let at = |name: &str| place.path().join(name);
    let server = Server::at(&at("denied"));
    std::fs::hard_link(at("denied"), at("allowed")).expect("linked");
    let meta = std::fs::metadata(at("denied")).expect("there");
    let known = (meta.dev(), meta.ino());
    let decide = move |asked: &stockade_sockets::Asked<'_>| {
        let denied =
            matches!(asked.address, stockade_sockets::Address::Path { dev, ino, .. } if (dev, ino) == known);
        let decision = if denied { Decision::Deny } else { Decision::Allow };
        stockade_sockets::Verdict { decision, rule: None }
    };
    let stage = Stage::new("names", place.path(), decide);
    let seen = stage.finish();
    assert_eq!(seen[0].path, Bytes::from(at("allowed")));
    assert_eq!(server.visits(), 0);
}

fn names(inside: &mut Inside) {
    assert_eq!(connect(stream(), &unix(inside.path("allowed"))), Err(libc::EACCES));
}

fn serves(inside: &mut Inside) {
    // SAFETY: a number.
    unsafe { libc::umask(0o027) };
    std::fs::create_dir("sub").expect("made");
    for asked in [inside.path("own"), b"here".to_vec(), b"sub/there".to_vec(), b"@name".to_vec()] {
        let server = stream();
        let address = unix([&asked[..], b"\0"].concat());
        assert_eq!(listen(server, 4), Err(libc::EINVAL), "not bound yet");
        assert_eq!(bind(server, &address), Ok(0));
        assert_eq!(raw::local_name(server), address, "shown as it was asked for");
        assert_eq!(bind(stream(), &address), Err(libc::EADDRINUSE));
        assert_eq!(bind(server, &unix("elsewhere")), Err(libc::EINVAL), "bound already");
        let path = std::path::PathBuf::from(String::from_utf8(asked).expect("text"));
        let mode = std::fs::symlink_metadata(&path).expect("made").permissions().mode();
        assert_eq!(mode & 0o7777, 0o750, "{mode:o}");
        assert_eq!(listen(server, 4), Ok(0));
        let client = stream();
        assert_eq!(connect(client, &address), Ok(0));
        assert!(raw::call(libc::SYS_accept4, &[usize::try_from(server).expect("open"), 0, 0, 0]).is_ok());
    }
    for (path, errno) in [
        ("missing/x", libc::ENOENT),
        ("here/x", libc::ENOTDIR),
        (".", libc::EADDRINUSE),
        ("sub/..", libc::EADDRINUSE),
        ("/", libc::EADDRINUSE),
        ("new/", libc::ENOENT),
        ("denied", libc::EACCES),
        ("sub/../denied", libc::EACCES),
    ] {
        assert_eq!(bind(stream(), &unix(path)), Err(errno), "{path}");
        assert!(!inside.place.join("denied").exists());
    }
    // The standard library's way, with a thread on the other side.
    let listener = UnixListener::bind(inside.place.join("std")).expect("bound");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.write_all(b"hello").expect("written");
    });
    let mut text = String::new();
    UnixStream::connect("std").expect("connected").read_to_string(&mut text).expect("read");
    thread.join().expect("ended");
    assert_eq!(text, "hello");
    // A packet socket takes the same way.
    let server = raw::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET);
    assert_eq!(bind(server, &unix("packets")), Ok(0));
    assert_eq!(listen(server, 1), Ok(0));
    let client = raw::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET);
    assert_eq!(connect(client, &unix("packets")), Ok(0));
    assert_eq!(raw::Head::new(&unix("denied"), b"one", b"").send(client, 0), Ok(3), "the name is ignored");
}

#[test]
fn binds_are_made_where_they_were_asked_for() {
    let place = tempfile::tempdir().expect("made");
    let seen = Stage::new("serves", place.path(), by_name).finish();
    let own = |operation| {
        seen.iter().filter(|op| op.operation == operation && op.decision == Decision::Allow).count()
    };
    assert!(own(SocketOperation::Bind) >= 6 && own(SocketOperation::Listen) >= 6, "{seen:#?}");
    let path = Bytes::from(place.path().join("sub/there"));
    assert!(seen.iter().any(|op| op.operation == SocketOperation::Bind && op.path == path));
    assert!(seen.iter().any(|op| op.operation == SocketOperation::Listen && op.path == path));
    assert!(!seen.iter().any(|op| op.is_abstract), "a file named @name is not abstract");
}

fn abstract_names(_: &mut Inside) {
    let pid = std::process::id().to_string();
    let name = [b"\0stockade\0test", pid.as_bytes()].concat();
    let server = stream();
    assert_eq!(bind(server, &unix(&name)), Ok(0));
    assert_eq!(listen(server, 4), Ok(0));
    assert_eq!(connect(stream(), &unix(&name)), Ok(0));
    let longer = [&name[..], b"\0"].concat();
    assert_eq!(connect(stream(), &unix(longer)), Err(libc::ECONNREFUSED), "every byte counts");
    assert_eq!(connect(stream(), &unix(b"\0stockade denied")), Err(libc::EACCES));
    assert_eq!(bind(stream(), &unix(b"\0stockade denied")), Err(libc::EACCES));
    // The kernel chooses.
    let chosen = stream();
    assert_eq!(bind(chosen, &unix(b"")), Ok(0));
    let name = raw::local_name(chosen);
    assert_eq!((name.len(), name[2]), (8, 0));
    assert_eq!(listen(chosen, 1), Ok(0));
    assert_eq!(connect(stream(), &name), Ok(0));
    assert_eq!(connect(stream(), &unix(b"")), Err(libc::EINVAL));
}

#[test]
fn abstract_names_are_decided_and_remembered() {
    let place = tempfile::tempdir().expect("made");
    let own = |asked: &stockade_sockets::Asked<'_>| {
        let named = asked.operation == SocketOperation::Bind || asked.own;
        let decision = if named { by_name(asked).decision } else { Decision::Audit };
        stockade_sockets::Verdict { decision, rule: None }
    };
    let decide = move |asked: &stockade_sockets::Asked<'_>| match by_name(asked).decision {
        Decision::Deny => by_name(asked),
        Decision::Allow | Decision::Audit => own(asked),
    };
    let seen = Stage::new("abstract", place.path(), decide).finish();
    let count = |decision| seen.iter().filter(|op| op.is_abstract && op.decision == decision).count();
    assert_eq!((count(Decision::Deny), count(Decision::Audit)), (2, 1), "{seen:#?}");
    assert!(seen.iter().any(|op| op.path.as_slice().starts_with(b"stockade\0test")));
}

/// What listening on sockets without a name says.
fn unbound_answers() -> Vec<Result<usize, i32>> {
    let mut answers: Vec<_> = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM, libc::SOCK_RAW]
        .map(|kind| listen(raw::socket(libc::AF_UNIX, kind), 1))
        .into();
    let pair = UnixStream::pair().expect("a pair");
    answers.push(listen(pair.0.as_raw_fd(), 1));
    answers
}

const UNBOUND: [Result<usize, i32>; 5] =
    [Err(libc::EINVAL), Err(libc::EINVAL), Err(libc::EOPNOTSUPP), Err(libc::EOPNOTSUPP), Err(libc::EINVAL)];

fn unbound(_: &mut Inside) {
    assert_eq!(unbound_answers(), UNBOUND, "as the kernel says");
}

#[test]
fn listening_without_a_name_says_what_the_kernel_says() {
    assert_eq!(unbound_answers(), UNBOUND, "the kernel itself");
    let place = tempfile::tempdir().expect("made");
    assert_eq!(Stage::new("unbound", place.path(), by_name).finish(), []);
}

fn inet(inside: &mut Inside) {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let mut client = TcpStream::connect(address).expect("connected");
    let (mut server, _) = listener.accept().expect("accepted");
    client.write_all(b"tcp").expect("written");
    let mut bytes = [0; 3];
    server.read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"tcp");
    let (one, two) =
        (UdpSocket::bind("127.0.0.1:0").expect("bound"), UdpSocket::bind("127.0.0.1:0").expect("bound"));
    one.send_to(b"udp", two.local_addr().expect("bound")).expect("sent");
    assert_eq!(two.recv(&mut bytes).expect("received"), 3);
    assert_eq!(&bytes, b"udp");
    let dead = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound");
    let error = TcpStream::connect(dead).expect_err("nobody there");
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    inside.tell();
}

#[test]
fn other_families_are_performed_as_asked() {
    let place = tempfile::tempdir().expect("made");
    let seen = Stage::new("inet", place.path(), by_name).finish();
    assert_eq!(seen, []);
}
