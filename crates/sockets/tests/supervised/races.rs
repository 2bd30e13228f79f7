//! A sibling thread changes what the call is about while it is decided. Nothing denied is ever reached; a
//! supervisor that looks and lets go is shown to lose the same race.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stockade_proto::SocketOperation;
use stockade_sys::notify::{self, Notification};

use crate::charges::{far_away, let_go};
use crate::raw::{self, Head, bind, connect, datagram, listen, stream, unix};
use crate::stage::{Cast, Inside, Scenes, Server, Stage, by_name, end, raise};

pub(crate) const SCENES: Scenes = &[
    ("rewrites", rewrites),
    ("heads", heads),
    ("swaps", swaps),
    ("links", links),
    ("moves", moves),
    ("reuses", reuses),
    ("late-binds", late_binds),
    ("renames", renames),
    ("renames-on", renames_on),
];

const ATTEMPTS: usize = 20_000;
const TIME: Duration = Duration::from_secs(6);
/// More than the files that are held where descriptors are few.
const ROUNDS: usize = 300;
/// For a race that needs few attempts.
const SHORT: Duration = Duration::from_secs(3);
/// On an emulated machine with other work a race gets this far in its time; elsewhere to the end.
const ENOUGH: usize = 50;

/// Repeats `attempt`, so often at most, while another thread repeats `change`.
pub(crate) fn race(most: usize, mut change: impl FnMut(usize) + Send + 'static, mut attempt: impl FnMut()) {
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    let other = std::thread::spawn(move || {
        let mut round = 0;
        while !seen.load(Ordering::Relaxed) {
            change(round);
            round += 1;
        }
    });
    let begun = Instant::now();
    let mut attempts = 0;
    while attempts < most && begun.elapsed() < TIME {
        attempt();
        attempts += 1;
    }
    over.store(true, Ordering::Relaxed);
    other.join().expect("ended");
    assert!(attempts >= ENOUGH, "{attempts}");
}

/// The last byte of the name flips, between a socket that is allowed and one that is not.
fn rewrites(inside: &mut Inside) {
    let [good, bad] = ["raced-a", "raced-d"].map(|name| unix([&inside.path(name)[..], b"\0"].concat()));
    let at = good.len() - 2;
    let address: Arc<Vec<AtomicU8>> = Arc::new(good.iter().map(|byte| AtomicU8::new(*byte)).collect());
    let shared = Arc::clone(&address);
    let bytes = [good[at], bad[at]];
    race(
        ATTEMPTS,
        move |round| shared[at].store(bytes[round % 2], Ordering::Relaxed),
        || {
            let socket = stream();
            let fd = usize::try_from(socket).expect("open");
            let answer = raw::call(libc::SYS_connect, &[fd, address.as_ptr().addr(), address.len()]);
            assert!(matches!(answer, Ok(0) | Err(libc::EACCES)), "{answer:?}");
            raw::close(socket);
        },
    );
}

fn servers(place: &Path) -> (Server, Server) {
    (Server::at(&place.join("raced-a")), Server::at(&place.join("raced-d")))
}

fn deny_d(asked: &stockade_sockets::Asked<'_>) -> stockade_sockets::Verdict {
    let denied =
        matches!(asked.address, stockade_sockets::Address::Path { path, .. } if path.ends_with(b"raced-d"));
    let decision = if denied { stockade_proto::Decision::Deny } else { stockade_proto::Decision::Allow };
    stockade_sockets::Verdict { decision, rule: None }
}

#[test]
fn a_rewritten_address_reaches_nothing_denied() {
    let place = tempfile::tempdir().expect("made");
    let (good, bad) = servers(place.path());
    let seen = Stage::new("rewrites", place.path(), deny_d).finish();
    println!("{} raced decisions", seen.len());
    assert_eq!(bad.visits(), 0, "of {} decisions", seen.len());
    assert!(good.visits() > 0 && seen.iter().any(|op| op.decision == stockade_proto::Decision::Deny));
}

/// The attacks of a scene on a supervisor that looks, and lets go what it does not deny: it loses.
fn looking_and_letting_go(
    scene: &str,
    place: &Path,
    denied: impl Fn(&Notification) -> bool + Send + 'static,
    lost: impl Fn() -> bool,
) {
    let (mut child, mut link, listener) = raise(&Cast::plain(scene, place));
    std::thread::spawn(move || {
        while let Ok(note) = notify::receive(listener.as_fd()) {
            let answered = if denied(&note) {
                notify::answer(listener.as_fd(), note.id, Err(libc::EACCES))
            } else {
                notify::let_go(listener.as_fd(), note.id)
            };
            if answered.is_err() {
                continue;
            }
        }
    });
    link.write_all(b"!").expect("the scene listens");
    let begun = Instant::now();
    let mut won = lost();
    while !won && begun.elapsed() < 6 * TIME {
        std::thread::sleep(Duration::from_millis(1));
        won = lost();
    }
    child.kill().expect("killed");
    end(&mut child);
    assert!(won, "{scene}: the attack is not strong enough to show anything");
}

fn read(note: &Notification, address: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).expect("small")];
    match notify::read_memory_all(note.tid, address, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => b"raced-d".to_vec(),
    }
}

/// Where the path of a connect leads, at this moment.
fn leads_to(note: &Notification) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    let address = read(note, note.args[1], note.args[2]);
    let name = address.get(2..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    let path = Path::new(&format!("/proc/{}/cwd", note.tid)).join(std::ffi::OsStr::from_bytes(name));
    std::fs::canonicalize(path).unwrap_or_default()
}

#[test]
fn looking_and_letting_go_loses_a_rewritten_address() {
    let place = tempfile::tempdir().expect("made");
    let (_good, bad) = servers(place.path());
    let denied = |note: &Notification| read(note, note.args[1], note.args[2]).ends_with(b"raced-d\0");
    looking_and_letting_go("rewrites", place.path(), denied, || bad.visits() > 0);
}

#[test]
fn looking_and_letting_go_loses_a_rewritten_header() {
    let place = tempfile::tempdir().expect("made");
    let [good, bad] =
        ["raced-a", "raced-d"].map(|name| UnixDatagram::bind(place.path().join(name)).expect("bound"));
    bad.set_nonblocking(true).expect("set");
    good.set_read_timeout(Some(TIME)).expect("set");
    std::thread::spawn(move || while let Ok(1) = good.recv(&mut [0; 8]) {});
    let denied = |note: &Notification| {
        const HEAD: u64 = 64;
        let heads = if i64::from(note.number) == libc::SYS_sendmmsg { 2 } else { 1 };
        (0..heads).any(|nth| {
            let head = read(note, note.args[1] + nth * HEAD, 16);
            let word = |at: usize| head.get(at..at + 8).and_then(|word| word.try_into().ok());
            let word = |at| word(at).map(u64::from_ne_bytes).unwrap_or_default();
            read(note, word(0), word(8) & 0xff).ends_with(b"raced-d")
        })
    };
    looking_and_letting_go("heads", place.path(), denied, || bad.recv(&mut [0]).is_ok());
}

#[test]
fn looking_and_letting_go_loses_a_swapped_socket() {
    let place = tempfile::tempdir().expect("made");
    let bad = Server::at(&place.path().join("denied"));
    let denied = |note: &Notification| {
        let look = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", note.tid)).ok()?;
            let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
            let pid = rustix::process::Pid::from_raw(leader.trim().parse().ok()?)?;
            let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
            let number = i32::try_from(note.args[0]).ok()?;
            let socket =
                rustix::process::pidfd_getfd(pidfd, number, rustix::process::PidfdGetfdFlags::empty())
                    .ok()?;
            rustix::net::sockopt::socket_domain(socket).ok()
        };
        look() != Some(rustix::net::AddressFamily::INET)
    };
    looking_and_letting_go("swaps", place.path(), denied, || bad.visits() > 0);
}

#[test]
fn looking_and_letting_go_loses_a_swapped_link() {
    let place = tempfile::tempdir().expect("made");
    let (_good, bad) = servers(place.path());
    let denied = |note: &Notification| !leads_to(note).ends_with("raced-a");
    looking_and_letting_go("links", place.path(), denied, || bad.visits() > 0);
}

#[test]
fn looking_and_letting_go_loses_a_changing_directory() {
    let place = tempfile::tempdir().expect("made");
    let (_good, bad) = in_two_directories(place.path());
    let denied = |note: &Notification| !leads_to(note).ends_with("a/sock");
    looking_and_letting_go("moves", place.path(), denied, || bad.visits() > 0);
}

/// The header points to one name at one moment and to another at the next, and so does its length; it lies in
/// an array for sendmmsg too.
fn heads(inside: &mut Inside) {
    let [good, bad] = ["raced-a", "raced-d"].map(|name| Head::new(&unix(inside.path(name)), b"m", b""));
    let words = [good.words(), bad.words()];
    let head: Arc<Vec<AtomicUsize>> =
        Arc::new([words[0], words[0]].concat().into_iter().map(AtomicUsize::new).collect());
    let shared = Arc::clone(&head);
    let socket = usize::try_from(datagram()).expect("open");
    let pointer = head.as_ptr().addr();
    let mut attempts = 0_usize;
    race(
        ATTEMPTS,
        move |round| {
            for (at, word) in [(0, 0), (1, 1), (8, 0), (9, 1)] {
                shared[at].store(words[round % 2][word], Ordering::Relaxed);
            }
        },
        || {
            attempts += 1;
            let answer = if attempts.is_multiple_of(2) {
                raw::call(libc::SYS_sendmsg, &[socket, pointer, 0])
            } else {
                raw::call(libc::SYS_sendmmsg, &[socket, pointer, 2, 0])
            };
            assert!(matches!(answer, Ok(1 | 2) | Err(libc::EACCES)), "{answer:?}");
        },
    );
}

#[test]
fn a_rewritten_header_reaches_nothing_denied() {
    let place = tempfile::tempdir().expect("made");
    let [good, bad] =
        ["raced-a", "raced-d"].map(|name| UnixDatagram::bind(place.path().join(name)).expect("bound"));
    bad.set_nonblocking(true).expect("set");
    good.set_read_timeout(Some(TIME)).expect("set");
    let reader = std::thread::spawn(move || {
        let mut count = 0_usize;
        while let Ok(1) = good.recv(&mut [0; 8]) {
            count += 1;
        }
        count
    });
    let seen = Stage::new("heads", place.path(), deny_d).finish();
    assert!(bad.recv(&mut [0]).is_err(), "of {} decisions", seen.len());
    assert!(seen.iter().any(|op| op.decision == stockade_proto::Decision::Deny));
    assert!(reader.join().expect("read") > 0);
}

/// The number means a socket of another family at one moment and an AF_UNIX socket at the next.
fn swaps(inside: &mut Inside) {
    let bad = unix(inside.path("denied"));
    let place = stream();
    let number = usize::try_from(place).expect("open");
    let inet = usize::try_from(raw::socket(libc::AF_INET, libc::SOCK_STREAM)).expect("open");
    race(
        ATTEMPTS,
        move |_| {
            let fresh = stream();
            for source in [inet, usize::try_from(fresh).expect("open")] {
                raw::call(libc::SYS_dup2, &[source, number]).expect("moved");
            }
            raw::close(fresh);
        },
        || assert!(connect(place, &bad).is_err()),
    );
}

#[test]
fn a_swapped_socket_reaches_nothing_denied() {
    let place = tempfile::tempdir().expect("made");
    let bad = Server::at(&place.path().join("denied"));
    Stage::new("swaps", place.path(), by_name).finish();
    assert_eq!(bad.visits(), 0);
}

/// A symbolic link that is replaced all the time.
fn links(inside: &mut Inside) {
    let place = inside.place.clone();
    let link = unix(inside.path("link"));
    symlink("raced-a", place.join("link")).expect("linked");
    race(
        ATTEMPTS,
        move |round| {
            let target = if round % 2 == 0 { "raced-d" } else { "raced-a" };
            symlink(target, place.join("next")).expect("linked");
            std::fs::rename(place.join("next"), place.join("link")).expect("renamed");
        },
        || {
            let socket = stream();
            let answer = connect(socket, &link);
            assert!(matches!(answer, Ok(0) | Err(libc::EACCES)), "{answer:?}");
            raw::close(socket);
        },
    );
}

#[test]
fn a_swapped_link_reaches_nothing_denied() {
    let place = tempfile::tempdir().expect("made");
    let (good, bad) = servers(place.path());
    let seen = Stage::new("links", place.path(), deny_d).finish();
    assert_eq!(bad.visits(), 0);
    assert!(good.visits() > 0 && seen.iter().any(|op| op.decision == stockade_proto::Decision::Deny));
}

/// The directory of the whole process changes, and with it what a relative name means.
fn moves(inside: &mut Inside) {
    let place = inside.place.clone();
    race(
        ATTEMPTS,
        move |round| {
            let name = if round % 2 == 0 { "a" } else { "d" };
            std::env::set_current_dir(place.join(name)).expect("there");
        },
        || {
            for name in ["sock", "../a/../d/sock", "./sock"] {
                let socket = stream();
                let answer = connect(socket, &unix(name));
                assert!(matches!(answer, Ok(0) | Err(libc::EACCES | libc::ENOENT)), "{answer:?}");
                raw::close(socket);
            }
        },
    );
}

fn in_two_directories(place: &Path) -> (Server, Server) {
    for name in ["a", "d"] {
        std::fs::create_dir(place.join(name)).expect("made");
    }
    (Server::at(&place.join("a/sock")), Server::at(&place.join("d/sock")))
}

#[test]
fn a_changing_directory_reaches_nothing_denied() {
    let place = tempfile::tempdir().expect("made");
    let (good, bad) = in_two_directories(place.path());
    let decide = |asked: &stockade_sockets::Asked<'_>| {
        let denied = matches!(asked.address, stockade_sockets::Address::Path { path, .. } if path.ends_with(b"/d/sock"));
        let decision = if denied { stockade_proto::Decision::Deny } else { stockade_proto::Decision::Allow };
        stockade_sockets::Verdict { decision, rule: None }
    };
    let seen = Stage::new("moves", place.path(), decide).finish();
    assert_eq!(bad.visits(), 0);
    assert!(good.visits() > 0 && seen.iter().any(|op| op.decision == stockade_proto::Decision::Deny));
}

/// Binds a file and frees its number, for the socket that the host makes at that moment.
fn reuses(inside: &mut Inside) {
    let [own, host] = ["own", "denied"].map(|name| unix(inside.path(name)));
    for _ in 0..ROUNDS {
        let socket = stream();
        assert_eq!(bind(socket, &own), Ok(0));
        raw::close(socket);
        std::fs::remove_file(inside.place.join("own")).expect("removed");
        inside.tell();
        inside.wait();
        let socket = stream();
        assert_eq!(connect(socket, &host), Err(libc::EACCES), "it is not the command's own");
        raw::close(socket);
        inside.tell();
        inside.wait();
    }
}

/// A file system gives the number of a file that is gone to the next one, and both are born in one tick.
#[test]
fn a_number_that_was_freed_does_not_make_a_socket_its_own() {
    let place = tempfile::tempdir().expect("made");
    let path = place.path().join("denied");
    let decide = |asked: &stockade_sockets::Asked<'_>| {
        if asked.own {
            stockade_sockets::Verdict { decision: stockade_proto::Decision::Allow, rule: None }
        } else {
            by_name(asked)
        }
    };
    let mut stage = Stage::new("reuses", place.path(), decide);
    for _ in 0..ROUNDS {
        stage.hear();
        let listener = UnixListener::bind(&path).expect("bound");
        // Open to everyone: only the rules stand before it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, open).expect("set");
        stage.link.write_all(b"!").expect("the scene listens");
        stage.hear();
        drop(listener);
        std::fs::remove_file(&path).expect("removed");
        stage.link.write_all(b"!").expect("the scene listens");
    }
    let seen = stage.finish();
    let refused = seen.iter().filter(|op| op.decision == stockade_proto::Decision::Deny).count();
    assert_eq!(refused, ROUNDS);
}

/// One thread binds while another already listens on the same socket.
fn late_binds(_: &mut Inside) {
    let begun = Instant::now();
    while begun.elapsed() < SHORT {
        let socket = stream();
        let binds = std::thread::spawn(move || bind(socket, &unix(b"")));
        let mut answer = listen(socket, 1);
        while answer == Err(libc::EINVAL) && begun.elapsed() < 2 * TIME {
            answer = listen(socket, 1);
        }
        assert_eq!(answer, Err(libc::EACCES));
        assert_eq!(binds.join().expect("ended"), Ok(0));
        raw::close(socket);
    }
}

/// A socket that has no name when it is looked at may have one when it is to listen.
#[test]
fn a_socket_that_is_bound_late_does_not_listen() {
    let place = tempfile::tempdir().expect("made");
    let decide = |asked: &stockade_sockets::Asked<'_>| {
        let decision = match asked.operation {
            SocketOperation::Listen => stockade_proto::Decision::Deny,
            SocketOperation::Bind | SocketOperation::Connect | SocketOperation::Send => {
                // Until another thread of the supervisor takes the calls that follow.
                std::thread::sleep(Duration::from_millis(12));
                stockade_proto::Decision::Allow
            }
        };
        stockade_sockets::Verdict { decision, rule: None }
    };
    let seen = Stage::new("late-binds", place.path(), decide).finish();
    assert!(seen.iter().filter(|op| op.operation == SocketOperation::Listen).count() > 20);
}

/// Renames a file to and fro, nowhere near any path that is looked up: the kernel looks it up anew, and so must whoever
/// calls for it.
struct Renaming {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Renaming {
    fn in_place(place: &Path) -> Self {
        let (a, b) = (place.join("a"), place.join("b"));
        std::fs::write(&a, b"").expect("made");
        std::fs::rename(&a, &b).expect("renamed");
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                std::fs::rename(&b, &a).expect("renamed");
                std::fs::rename(&a, &b).expect("renamed");
            }
        });
        Self { over, thread: Some(thread) }
    }

    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().expect("running").join().expect("ended");
    }
}

/// Sends over a long path, and is answered every time.
fn sends_for(inside: &mut Inside, time: Duration) {
    let receiver = far_away("sink");
    inside.tell();
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert_eq!(Head::new(&unix("link0"), b"x", b"").send(datagram(), 0), Ok(1));
        assert_eq!(receiver.recv(&mut [0; 9]).expect("it came"), 1);
    }
}

fn renames(inside: &mut Inside) {
    sends_for(inside, SHORT);
}

fn renames_on(inside: &mut Inside) {
    sends_for(inside, TIME * 10);
}

#[test]
fn a_long_path_is_found_while_others_are_renamed() {
    let (place, other) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    let renaming = Renaming::in_place(other.path());
    let stage = Stage::new("renames", place.path(), by_name);
    std::thread::sleep(SHORT);
    // A path may be found only now.
    renaming.end();
    stage.finish();
}

/// However long it takes, it is not done for nobody.
#[test]
fn a_path_that_is_looked_up_again_and_again_dies_with_its_caller() {
    let (place, other) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    let renaming = Renaming::in_place(other.path());
    let mut stage = Stage::new("renames-on", place.path(), by_name);
    stage.hear();
    std::thread::sleep(Duration::from_millis(300));
    let_go(stage);
    renaming.end();
}
