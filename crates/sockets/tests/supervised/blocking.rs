//! Calls that block: they stall nobody else, and end with a signal, with their caller or with the supervisor.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::raw::{self, Head, bind, connect, listen, stream, unix};
use crate::stage::{Inside, Scenes, Server, Stage, by_name, end, until};

pub(crate) const SCENES: Scenes =
    &[("backlog", backlog), ("signals", signals), ("killed", killed), ("stopped", stopped), ("crowd", crowd)];

/// A server whose queue is full: the next connect blocks.
fn full_server(name: &str) -> i32 {
    let server = stream();
    assert_eq!(bind(server, &unix(name)), Ok(0));
    assert_eq!(listen(server, 0), Ok(0));
    let socket = raw::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
    assert_eq!(connect(socket, &unix(name)), Ok(0));
    let next = raw::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
    assert_eq!(connect(next, &unix(name)), Err(libc::EAGAIN), "does not block, as it was asked");
    server
}

fn accept(server: i32) {
    raw::call(libc::SYS_accept4, &[usize::try_from(server).expect("open"), 0, 0, 0]).expect("accepted");
}

fn backlog(inside: &mut Inside) {
    let server = full_server("full");
    let blocked: Vec<_> = (0..8).map(|_| std::thread::spawn(|| connect(stream(), &unix("full")))).collect();
    let (full, _keep) = UnixDatagram::pair().expect("a pair");
    let sender = std::thread::spawn(move || {
        for _ in 0..10_000 {
            if Head::new(b"", b"x", b"").send(full.as_raw_fd(), 0).is_err() {
                return;
            }
        }
    });
    // Others go on meanwhile, each in a moment.
    let begun = Instant::now();
    for _ in 0..200 {
        let socket = stream();
        assert_eq!(connect(socket, &unix(inside.path("allowed"))), Ok(0));
        raw::close(socket);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(blocked.iter().all(|thread| !thread.is_finished()), "still blocked");
    for _ in 0..9 {
        accept(server);
    }
    for thread in blocked {
        assert_eq!(thread.join().expect("ended"), Ok(0), "once there was room");
    }
    drop(sender);
}

#[test]
fn a_blocked_call_stalls_no_other() {
    let place = tempfile::tempdir().expect("made");
    let server = Server::at(&place.path().join("allowed"));
    Stage::new("backlog", place.path(), by_name).finish();
    until(|| server.visits() == 200);
}

static CAUGHT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::SeqCst);
}

fn handle(flags: libc::c_int) {
    // SAFETY: plain numbers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = (count as extern "C" fn(libc::c_int)) as usize;
    action.sa_flags = flags;
    // SAFETY: a whole struct; the handler only counts.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
}

fn signals(_: &mut Inside) {
    let server = full_server("full");
    let blocked = |flags| {
        handle(flags);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("heard");
            connect(stream(), &unix("full"))
        });
        let tid = usize::try_from(told.recv().expect("told")).expect("a thread");
        let process = usize::try_from(std::process::id()).expect("a process");
        let before = CAUGHT.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        raw::call(libc::SYS_tgkill, &[process, tid, 10]).expect("sent");
        until(|| CAUGHT.load(Ordering::SeqCst) > before);
        thread
    };
    assert_eq!(blocked(0).join().expect("ended"), Err(libc::EINTR));
    let again = blocked(libc::SA_RESTART);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!again.is_finished(), "its call was begun again");
    accept(server);
    assert_eq!(again.join().expect("ended"), Ok(0));
}

#[test]
fn a_signal_interrupts_a_blocked_call() {
    let place = tempfile::tempdir().expect("made");
    Stage::new("signals", place.path(), by_name).finish();
}

fn killed(inside: &mut Inside) {
    let _server = full_server("full");
    inside.tell();
    connect(stream(), &unix("full")).expect("never");
}

#[test]
fn a_killed_caller_is_let_go() {
    let place = tempfile::tempdir().expect("made");
    let mut stage = Stage::new("killed", place.path(), by_name);
    stage.hear();
    std::thread::sleep(Duration::from_millis(100));
    stage.child.kill().expect("killed");
    assert!(!end(&mut stage.child));
    let supervisor = stage.supervisor.take().expect("running");
    assert!(!supervisor.failed().is_some_and(crate::stage::is_readable));
    let begun = Instant::now();
    supervisor.stop().expect("stopped");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

fn stopped(inside: &mut Inside) {
    let _server = full_server("full");
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| connect(stream(), &unix("full")))).collect();
    std::thread::sleep(Duration::from_millis(50));
    inside.tell();
    for thread in threads {
        let answer = thread.join().expect("ended");
        assert!(matches!(answer, Err(libc::EINTR | libc::ENOSYS)), "{answer:?}");
    }
    assert_eq!(connect(stream(), &unix("full")), Err(libc::ENOSYS), "nobody is there to ask");
}

#[test]
fn stopping_ends_what_is_blocked() {
    let place = tempfile::tempdir().expect("made");
    let mut stage = Stage::new("stopped", place.path(), by_name);
    stage.hear();
    let begun = Instant::now();
    stage.supervisor.take().expect("running").stop().expect("stopped");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(end(&mut stage.child));
}

/// More blocked calls than there may be: the rest is refused, and the next one after is served.
fn crowd(inside: &mut Inside) {
    let server = full_server("full");
    let threads: Vec<_> = (0..150)
        .map(|_| {
            std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn(|| connect(stream(), &unix("full")))
                .expect("started")
        })
        .collect();
    until(|| threads.iter().any(std::thread::JoinHandle::is_finished));
    assert_eq!(connect(stream(), &unix(inside.path("allowed"))), Ok(0));
    let mut refused = 0;
    for _ in 0..400 {
        if threads.iter().all(std::thread::JoinHandle::is_finished) {
            break;
        }
        let fd = usize::try_from(server).expect("open");
        raw::call(libc::SYS_fcntl, &[fd, 4, 0o4000]).expect("set");
        if raw::call(libc::SYS_accept4, &[fd, 0, 0, 0]).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    for thread in threads {
        match thread.join().expect("ended") {
            Ok(_) => {}
            Err(errno) => {
                assert_eq!(errno, libc::ENOBUFS);
                refused += 1;
            }
        }
    }
    assert!((1..=22).contains(&refused), "{refused}");
}

#[test]
fn a_crowd_is_bounded() {
    let place = tempfile::tempdir().expect("made");
    let _server = Server::at(&place.path().join("allowed"));
    Stage::new("crowd", place.path(), by_name).finish();
}

/// Nothing is left open in the test's process by what came and went.
#[test]
fn nothing_is_left_behind() {
    let count = || std::fs::read_dir("/proc/self/fd").expect("read").count();
    let place = tempfile::tempdir().expect("made");
    let _server = Server::at(&place.path().join("allowed"));
    let kept: (UnixStream, UnixStream) = UnixStream::pair().expect("a pair");
    let before = count();
    let stage = Stage::new("backlog", place.path(), by_name);
    stage.finish();
    until(|| count() <= before);
    drop(OwnedFd::from(kept.0));
}
