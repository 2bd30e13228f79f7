//! What the supervisor may do and the command may not: its capabilities, its name, its view of a swapped path.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use stockade_proto::{Decision, SocketOperation, UnixSocketOp};
use stockade_sockets::{Address, Asked, Config, StartError, Supervisor, Verdict, Witness};

use crate::races::race;
use crate::raw::{self, Head, bind, connect, control, listen, send_to, stream, unix};
use crate::stage::{Cast, Inside, Scenes, Server, Stage, USER, by_name, ran_as_ordinary_user};

pub(crate) const SCENES: Scenes = &[
    ("powerless", powerless),
    ("recorded", recorded),
    ("swapped-binds", swapped_binds),
    ("replaced-binds", replaced_binds),
];

const ROUNDS: usize = 20;
const ATTEMPTS: usize = 400;

fn netlink_name(port: u32, groups: u32) -> Vec<u8> {
    [&16_u16.to_ne_bytes()[..], &[0; 2], &port.to_ne_bytes(), &groups.to_ne_bytes()].concat()
}

/// A request about the link of that number, with these flags set and changed.
fn request(kind: u16, flags: u16, link: u32, up: u32) -> Vec<u8> {
    let head = [&32_u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]].concat();
    [&head[..], &[0; 4], &link.to_ne_bytes(), &up.to_ne_bytes(), &up.to_ne_bytes()].concat()
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn netlink() -> i32 {
    raw::socket(libc::AF_NETLINK, libc::SOCK_RAW)
}

fn many(socket: i32, head: &Head) -> Result<usize, i32> {
    let words = head.words();
    let fd = usize::try_from(socket).expect("open");
    raw::call(libc::SYS_sendmmsg, &[fd, words.as_ptr().addr(), 1, 0])
}

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;

fn changes_nothing() {
    let kernel = netlink_name(0, 0);
    for kind in [RTM_NEWLINK, RTM_SETLINK] {
        let up = request(kind, 5, 1, 1);
        let head = Head::new(&kernel, &up, b"");
        assert_eq!(send_to(netlink(), &up, &kernel), Err(libc::EPERM));
        assert_eq!(head.send(netlink(), 0), Err(libc::EPERM));
        assert_eq!(many(netlink(), &head), Err(libc::EPERM));
        assert_eq!(Head::new(b"", &up, b"").send(netlink(), 0), Err(libc::EPERM), "without a name");
        let hidden = [request(RTM_GETLINK, 1, 1, 0), up].concat();
        assert_eq!(send_to(netlink(), &hidden, &kernel), Err(libc::EPERM), "behind another");
    }
}

fn asks() {
    let socket = netlink();
    let dump = request(RTM_GETLINK, 0x301, 0, 0);
    assert_eq!(send_to(socket, &dump, &netlink_name(0, 0)), Ok(32));
    let (answer, _, _) = raw::receive(socket);
    assert_eq!(half(&answer, 4), RTM_NEWLINK, "the links are told");
    assert_eq!(half(&answer, 24) & 1, 0, "nobody switched it on");
    assert_eq!(connect(netlink(), &netlink_name(0, 0)), Ok(0));
    assert_eq!(connect(netlink(), &netlink_name(1, 0)), Err(libc::EPERM));
    assert_eq!(send_to(socket, &dump, &netlink_name(1, 0)), Err(libc::EPERM));
    assert_eq!(send_to(socket, &dump, &netlink_name(0, 1)), Err(libc::EPERM));
    assert_eq!(bind(netlink(), &netlink_name(0, 1)), Ok(0), "who listens for changes");
    assert_eq!(bind(netlink(), &netlink_name(0, 1 << 29)), Err(libc::EPERM), "RTNLGRP_IPV4_MROUTE_R");
}

fn powerless(_: &mut Inside) {
    let status = std::fs::read_to_string("/proc/self/status").expect("read");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    changes_nothing();
    asks();
    let at = |port: u16| [&2_u16.to_ne_bytes()[..], &port.to_be_bytes(), &[0; 12]].concat();
    let six = |port: u16| [&10_u16.to_ne_bytes()[..], &port.to_be_bytes(), &[0; 24]].concat();
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
        assert_eq!(bind(raw::socket(libc::AF_INET, kind), &at(80)), Err(libc::EACCES));
        assert_eq!(bind(raw::socket(libc::AF_INET6, kind), &six(1023)), Err(libc::EACCES));
        assert_eq!(bind(raw::socket(libc::AF_INET, kind), &at(8080)), Ok(0));
        assert_eq!(bind(raw::socket(libc::AF_INET, kind), &at(0)), Ok(0));
    }
    let gram = raw::socket(libc::AF_INET, libc::SOCK_DGRAM);
    let peer = [&2_u16.to_ne_bytes()[..], &9_u16.to_be_bytes(), &[127, 0, 0, 1], &[0; 8]].concat();
    // SO_MARK, IP_RETOPTS, IPV6_RTHDR.
    for (level, kind) in [(1, 36), (0, 7), (41, 57)] {
        let option = control(level, kind, &7_u32.to_ne_bytes());
        assert_eq!(Head::new(&peer, b"x", &option).send(gram, 0), Err(libc::EPERM), "{level} {kind}");
    }
    let ttl = control(0, 2, &7_u32.to_ne_bytes());
    assert_eq!(Head::new(&peer, b"x", &ttl).send(gram, 0), Err(libc::ENETUNREACH), "the kernel's word");
}

/// An ordinary user's executor holds every capability in the user namespace that it made.
#[test]
fn the_supervisors_capabilities_are_nobody_elses() {
    if ran_as_ordinary_user("powers::the_supervisors_capabilities_are_nobody_elses") {
        return;
    }
    let place = tempfile::tempdir_in("/tmp").expect("made");
    let cast = Cast { through: &["unshare", "-Ucn"], ..Cast::plain("powerless", place.path()) };
    let seen = Stage::with(cast, by_name, crate::stage::Outside::default()).finish();
    assert_eq!(seen, []);
}

struct Nobody;

impl Witness for Nobody {
    fn saw(&self, _: UnixSocketOp) {}
}

#[test]
fn root_supervises_for_someone_else_only() {
    let start = |identity| {
        Supervisor::prepare(Config {
            execution: "x1".into(),
            decide: Arc::new(by_name),
            witness: Arc::new(Nobody),
            charge: Arc::new(stockade_charge::Charge::new(None)),
            identity,
        })
    };
    assert!(matches!(start(Some((0, 0))), Err(StartError::Root)));
    if rustix::process::geteuid().is_root() {
        assert!(matches!(start(None), Err(StartError::Root)));
    }
}

fn recorded(inside: &mut Inside) {
    assert_eq!(connect(stream(), &unix(inside.path("host"))), Ok(0));
}

#[test]
fn what_is_only_recorded_is_reached_as_the_command() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can be someone else");
        return;
    }
    let place = tempfile::tempdir_in("/tmp").expect("made");
    let listener = UnixListener::bind(place.path().join("host")).expect("bound");
    let audit = |_: &Asked<'_>| Verdict { decision: Decision::Audit, rule: None };
    let stage = Stage::new("recorded", place.path(), audit);
    let (visitor, _) = listener.accept().expect("reached");
    assert_eq!(raw::peer(visitor.as_raw_fd()), (USER, USER));
    stage.finish();
}

/// Binds through a link that leads to a directory where it may, and to one where it may not.
fn swapped_binds(inside: &mut Inside) {
    let place = inside.place.clone();
    symlink("a", place.join("link")).expect("linked");
    let mut number = 0;
    race(
        ATTEMPTS,
        move |round| {
            symlink(["a", "d"][round % 2], place.join("next")).expect("linked");
            std::fs::rename(place.join("next"), place.join("link")).expect("renamed");
        },
        || {
            let socket = stream();
            match bind(socket, &unix(format!("link/{number}"))) {
                Ok(_) => assert_eq!(listen(socket, 1), Ok(0)),
                Err(_) => assert!(matches!(listen(socket, 1), Err(libc::EACCES | libc::EINVAL))),
            }
            number += 1;
        },
    );
    inside.tell();
    inside.wait();
}

fn play_swapped_binds() {
    let place = tempfile::tempdir_in("/tmp").expect("made");
    for name in ["a", "d"] {
        std::fs::create_dir(place.path().join(name)).expect("made");
    }
    let denied = place.path().join("d");
    let prefix = denied.to_str().expect("text").as_bytes().to_vec();
    let decide = move |asked: &Asked<'_>| {
        let inside = matches!(asked.address, Address::Path { path, .. } if path.starts_with(&prefix));
        let decision = if inside { Decision::Deny } else { Decision::Allow };
        Verdict { decision, rule: None }
    };
    let mut stage = Stage::new("swapped-binds", place.path(), decide);
    stage.hear();
    for entry in std::fs::read_dir(&denied).expect("read") {
        let path = entry.expect("read").path();
        assert!(UnixStream::connect(&path).is_err(), "{} answers", path.display());
    }
    let left = std::fs::read_dir(&denied).expect("read").count();
    if rustix::process::geteuid().is_root() {
        assert_eq!(left, 0, "what landed there was removed");
    }
    stage.link.write_all(b"!").expect("the scene listens");
    let seen = stage.finish();
    let bound = |decision| {
        seen.iter().filter(|op| op.operation == SocketOperation::Bind && op.decision == decision).count()
    };
    assert!(bound(Decision::Allow) > 0 && bound(Decision::Deny) > 0);
}

#[test]
fn a_bind_through_a_swapped_link_is_taken_back() {
    play_swapped_binds();
}

/// In the host's network: there the socket's file is not handed out, only told of.
#[test]
fn a_bind_through_a_swapped_link_is_dead_for_an_ordinary_user() {
    if ran_as_ordinary_user("powers::a_bind_through_a_swapped_link_is_dead_for_an_ordinary_user") {
        return;
    }
    play_swapped_binds();
}

/// A socket of the host takes the name of one that was just bound.
fn replaced_binds(inside: &mut Inside) {
    let place = inside.place.clone();
    let (mut own, mut denied) = (0, 0);
    // On a busy machine one of the two may win every time for a while.
    for _ in 0..ROUNDS {
        let place = place.clone();
        race(
            ATTEMPTS,
            move |_| {
                // The name is there or not.
                drop(std::fs::hard_link(place.join("host"), place.join("h")));
                drop(std::fs::rename(place.join("h"), place.join("s")));
            },
            || {
                drop(std::fs::remove_file("s"));
                let server = stream();
                if bind(server, &unix("s")).is_ok() {
                    own += 1;
                }
                match connect(stream(), &unix("s")) {
                    Ok(_) | Err(libc::ENOENT | libc::ECONNREFUSED) => {}
                    Err(errno) => {
                        assert_eq!(errno, libc::EACCES);
                        denied += 1;
                    }
                }
                raw::close(server);
            },
        );
        if own > 0 && denied > 0 {
            return;
        }
    }
    assert!(own > 0 && denied > 0, "{own} {denied}");
}

fn own_only(asked: &Asked<'_>) -> Verdict {
    let allowed = asked.own || asked.operation == SocketOperation::Bind;
    Verdict { decision: if allowed { Decision::Allow } else { Decision::Deny }, rule: None }
}

#[test]
fn a_socket_of_the_host_does_not_become_its_own() {
    if ran_as_ordinary_user("powers::a_socket_of_the_host_does_not_become_its_own") {
        return;
    }
    let place = tempfile::tempdir_in("/tmp").expect("made");
    let host = Server::at(&place.path().join("host"));
    std::fs::set_permissions(place.path().join("host"), std::fs::Permissions::from_mode(0o666)).expect("set");
    Stage::new("replaced-binds", place.path(), own_only).finish();
    assert_eq!(host.visits(), 0);
}
