//! A command that does what it can to confuse: storms, deaths, unreadable memory.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use stockade_proto::Decision;

use crate::raw::{self, Head, connect, datagram, send_to, stream, unix};
use crate::stage::{Inside, Scenes, Server, Stage, by_name, ran_as_ordinary_user};

pub(crate) const SCENES: Scenes = &[("storm", storm), ("flood", flood), ("hidden", hidden), ("hoard", hoard)];

/// Children that call and are killed in the middle, over and over.
fn storm(inside: &mut Inside) {
    let address = unix(inside.path("allowed"));
    let begun = Instant::now();
    let mut children = 0;
    while children < 300 && begun.elapsed() < Duration::from_secs(6) {
        // SAFETY: the child makes system calls only, until it is killed or leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            for _ in 0..20 {
                let socket = raw::call(libc::SYS_socket, &[1, 1, 0]).unwrap_or(usize::MAX);
                let arguments = [socket, address.as_ptr().addr(), address.len()];
                if raw::call(libc::SYS_connect, &arguments).is_err() {
                    break;
                }
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        assert!(pid > 0);
        if children % 3 == 0 {
            std::thread::sleep(Duration::from_micros(300));
            // SAFETY: a child of ours that is not reaped yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        // SAFETY: waits for that child.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        children += 1;
    }
    assert!(children >= 50, "{children}");
    assert_eq!(connect(stream(), &address), Ok(0), "still served");
}

#[test]
fn a_storm_of_dying_children_passes() {
    let place = tempfile::tempdir().expect("made");
    let _server = Server::at(&place.path().join("allowed"));
    Stage::new("storm", place.path(), by_name).finish();
}

/// Nonsense from many threads.
fn flood(inside: &mut Inside) {
    let address = unix(inside.path("denied"));
    let threads: Vec<_> = (0..8_usize)
        .map(|seed| {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                let mut random = move || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                };
                let numbers = [42, 44, 46, 49, 50, 307];
                let sockets = [stream(), datagram(), raw::socket(libc::AF_INET, libc::SOCK_DGRAM)];
                for _ in 0..400 {
                    let pick = random();
                    let pointer = match pick % 3 {
                        0 => address.as_ptr().addr(),
                        1 => pick,
                        _ => 0,
                    };
                    let socket = usize::try_from(sockets[pick / 7 % 3]).expect("open");
                    let arguments = [
                        if pick % 11 == 0 { pick } else { socket },
                        pointer,
                        [0, 2, 3, 64, 110, 0xffff_ffff, usize::MAX][pick / 13 % 7],
                        pick & 0x40,
                        pointer,
                        random() % 200,
                    ];
                    // Whatever it answers, it answers; a wrong number is no success.
                    match raw::call(numbers[pick / 17 % 6], &arguments) {
                        Ok(_) | Err(_) => {}
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("ended");
    }
    assert_eq!(connect(stream(), &address), Err(libc::EACCES));
    assert_eq!(connect(stream(), &unix(inside.path("allowed"))), Ok(0));
}

#[test]
fn a_flood_of_nonsense_is_answered() {
    let place = tempfile::tempdir().expect("made");
    let _server = Server::at(&place.path().join("allowed"));
    let denied = Server::at(&place.path().join("denied"));
    Stage::new("flood", place.path(), by_name).finish();
    assert_eq!(denied.visits(), 0);
}

fn hidden(inside: &mut Inside) {
    let allowed = unix(inside.path("allowed"));
    assert_eq!(connect(stream(), &allowed), Ok(0));
    raw::call(libc::SYS_prctl, &[4, 0, 0, 0, 0]).expect("PR_SET_DUMPABLE");
    assert_eq!(connect(stream(), &allowed), Err(libc::EACCES));
    assert_eq!(send_to(datagram(), b"x", &allowed), Err(libc::EACCES));
    assert_eq!(raw::bind(stream(), &allowed), Err(libc::EACCES));
    assert_eq!(raw::listen(stream(), 1), Err(libc::EACCES));
}

#[test]
fn memory_that_can_not_be_read_is_a_denial() {
    if ran_as_ordinary_user("hostile::memory_that_can_not_be_read_is_a_denial") {
        return;
    }
    let place = tempfile::tempdir_in("/tmp").expect("made");
    let _server = Server::at(&place.path().join("allowed"));
    let seen = Stage::new("hidden", place.path(), by_name).finish();
    let refused: Vec<_> = seen.iter().filter(|op| op.decision == Decision::Deny).collect();
    assert_eq!(refused.len(), 4, "{seen:#?}");
    assert!(refused.iter().all(|op| op.detail.is_some()));
}

/// Fills one socket after the other and reads none of them.
fn hoard(inside: &mut Inside) {
    let fill = || {
        let (from, to) = UnixStream::pair().expect("a pair");
        Head::new(b"", &[7; 1000], b"").send(from.as_raw_fd(), 0).map(|_| (from, to))
    };
    let mut full = Vec::new();
    let refusal = loop {
        assert!(full.len() < 4000, "there is a bound");
        match fill() {
            Ok(pair) => full.push(pair),
            Err(errno) => break errno,
        }
    };
    assert_eq!(refusal, libc::ENOBUFS);
    // More from a socket that is counted already, and from the command itself, is no matter.
    assert_eq!(Head::new(b"", b"more", b"").send(full[0].0.as_raw_fd(), 0), Ok(4));
    let (from, _to) = UnixStream::pair().expect("a pair");
    assert_eq!(raw::call(libc::SYS_sendto, &[raw::number(&from), b"x".as_ptr().addr(), 1, 0, 0, 0]), Ok(1));

    // What is read makes room, and for one only.
    full[0].1.read_exact(&mut [0; 1004]).expect("read");
    let (first, second) = (fill(), fill().map(drop));
    assert!(first.is_ok());
    assert_eq!(second, Err(libc::ENOBUFS));
    // The bytes of a sender that is gone still lie with its peer.
    let (from, to) = full.pop().expect("many");
    drop(from);
    assert_eq!(fill().map(drop), Err(libc::ENOBUFS));
    drop((to, first));
    full.clear();
    assert!(fill().is_ok());

    // Closed before anyone accepts it, and again where nobody is left to send to: many times the bound.
    let server = UnixListener::bind(inside.place.join("busy")).expect("bound");
    for _ in 0..500 {
        let client = stream();
        assert_eq!(connect(client, &unix(inside.path("busy"))), Ok(0));
        assert_eq!(Head::new(b"", b"said and gone", b"").send(client, 0), Ok(13));
        raw::close(client);
        let (mut accepted, _) = server.accept().expect("accepted");
        assert_eq!(accepted.read(&mut [0; 64]).expect("read"), 13);
        let (from, to) = UnixStream::pair().expect("a pair");
        drop(to);
        let flags = libc::MSG_NOSIGNAL;
        assert_eq!(Head::new(b"", b"x", b"").send(from.as_raw_fd(), flags), Err(libc::EPIPE));
    }
    // Where nobody accepts, they are counted.
    let unheard = (0..500).find_map(|_| {
        let client = stream();
        connect(client, &unix(inside.path("busy"))).expect("room in the queue");
        let answer = Head::new(b"", b"unheard", b"").send(client, 0);
        raw::close(client);
        answer.err()
    });
    assert_eq!(unheard, Some(libc::ENOBUFS));
    drop(server);

    // Datagrams: to a name, by a socket that is closed at once.
    let place = inside.path("inbox");
    let receiver = UnixDatagram::bind(inside.place.join("inbox")).expect("bound");
    for _ in 0..1000 {
        let sender = datagram();
        assert_eq!(send_to(sender, b"d", &unix(&place)), Ok(1));
        raw::close(sender);
        assert_eq!(receiver.recv(&mut [0; 8]).expect("received"), 1);
    }
}

/// Memory that the sandbox's limit does not see is bounded.
#[test]
fn unread_messages_are_bounded() {
    let place = tempfile::tempdir().expect("made");
    Stage::new("hoard", place.path(), by_name).finish();
}
