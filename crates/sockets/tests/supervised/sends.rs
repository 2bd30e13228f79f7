//! sendto, sendmsg and sendmmsg: names, bytes, descriptors.

use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use stockade_proto::{Decision, SocketOperation};

use crate::raw::{self, Head, control, datagram, send_to, stream, unix};
use crate::stage::{Inside, Scenes, Stage, by_name};

pub(crate) const SCENES: Scenes =
    &[("datagrams", datagrams), ("streams", streams), ("rights", rights), ("pipes", pipes)];

fn datagrams(inside: &mut Inside) {
    let (allowed, denied) = (unix(inside.path("allowed")), unix(inside.path("denied")));
    let socket = datagram();
    assert_eq!(send_to(socket, b"to", &allowed), Ok(2));
    assert_eq!(send_to(socket, b"to", &denied), Err(libc::EACCES));
    assert_eq!(send_to(socket, b"to", &unix(inside.path("missing"))), Err(libc::ENOENT));
    assert_eq!(send_to(socket, b"to", &unix(b"")), Err(libc::EINVAL));
    assert_eq!(send_to(socket, b"to", &[0, 0]), Err(libc::EINVAL));
    assert_eq!(Head::new(&allowed, b"msg", b"").send(socket, 0), Ok(3));
    assert_eq!(Head::new(&denied, b"msg", b"").send(socket, 0), Err(libc::EACCES));
    assert_eq!(Head::new(b"", b"msg", b"").send(socket, 0), Err(libc::ENOTCONN));
    let long = vec![7; 2 << 20];
    assert_eq!(Head::new(&allowed, &long, b"").send(socket, 0), Err(libc::EMSGSIZE));

    // Several at once: the first that is refused ends it, and the count says how far it got.
    let heads = [&allowed, &allowed, &denied, &allowed].map(|name| Head::new(name, b"many", b""));
    let mut words: Vec<usize> = heads.iter().flat_map(Head::words).collect();
    let fd = usize::try_from(socket).expect("open");
    let many = |words: &mut Vec<usize>, from: usize, count: usize| {
        let pointer = words.as_mut_ptr().addr() + from * 64;
        raw::call(libc::SYS_sendmmsg, &[fd, pointer, count, 0])
    };
    assert_eq!(many(&mut words, 0, 4), Ok(2));
    let lengths = |words: &[usize]| [7, 15, 23, 31].map(|at| words[at]);
    // SAFETY: the kernel's view of memory that the supervisor wrote to.
    std::hint::black_box(&mut words);
    assert_eq!(lengths(&words), [4, 4, 0, 0]);
    assert_eq!(many(&mut words, 2, 2), Err(libc::EACCES));
    assert_eq!(many(&mut words, 3, 1), Ok(1));
    assert_eq!(many(&mut words, 0, 0), Ok(0));

    // One end of a pair is as good a socket as any.
    let (pair, _other) = UnixDatagram::pair().expect("a pair");
    assert_eq!(send_to(pair.as_raw_fd(), b"pair", &denied), Err(libc::EACCES));
    assert_eq!(send_to(pair.as_raw_fd(), b"pair", &allowed), Ok(4));
    let raw_kind = raw::socket(libc::AF_UNIX, libc::SOCK_RAW);
    assert_eq!(send_to(raw_kind, b"raw", &denied), Err(libc::EACCES));
    // A receiver answers to the name that it is shown.
    let (named, answers) = (datagram(), inside.path("named"));
    assert_eq!(raw::bind(named, &unix(&answers)), Ok(0));
    assert_eq!(send_to(named, b"answer me", &allowed), Ok(9));
    assert_eq!(raw::receive(named).0, b"answer");
}

#[test]
fn datagrams_are_decided_one_by_one() {
    let place = tempfile::tempdir().expect("made");
    let (allowed, denied) = (
        UnixDatagram::bind(place.path().join("allowed")).expect("bound"),
        UnixDatagram::bind(place.path().join("denied")).expect("bound"),
    );
    denied.set_nonblocking(true).expect("set");
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        let mut bytes = [0; 64];
        loop {
            let (length, from) = allowed.recv_from(&mut bytes).expect("received");
            got.push(bytes[..length].to_vec());
            if &bytes[..length] == b"answer me" {
                allowed.send_to(b"answer", from.as_pathname().expect("a path")).expect("sent");
                return got;
            }
        }
    });
    let seen = Stage::new("datagrams", place.path(), by_name).finish();
    let expected: [&[u8]; 7] = [b"to", b"msg", b"many", b"many", b"many", b"pair", b"answer me"];
    assert_eq!(reader.join().expect("read"), expected);
    assert!(denied.recv(&mut [0]).is_err(), "nothing came");
    let sends = |decision| {
        seen.iter().filter(|op| op.operation == SocketOperation::Send && op.decision == decision).count()
    };
    assert_eq!(sends(Decision::Deny), 6, "{seen:#?}");
}

fn streams(_: &mut Inside) {
    let (mut reader, writer) = UnixStream::pair().expect("a pair");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let sent = bytes.clone();
    let thread = std::thread::spawn(move || {
        // A pair has no name; its messages are performed without a decision.
        assert_eq!(Head::new(b"", &sent, b"").send(writer.as_raw_fd(), 0), Ok(sent.len()));
        assert_eq!(Head::new(&unix("/x"), b"", b"").send(writer.as_raw_fd(), 0), Err(libc::EISCONN));
        drop(writer);
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).expect("read");
    thread.join().expect("ended");
    assert!(got == bytes, "every byte in its place");
    assert_eq!(Head::new(&unix("/x"), b"", b"").send(stream(), 0), Err(libc::EOPNOTSUPP));
    // A socket that does not block takes what fits.
    let (full, _keep) = UnixStream::pair().expect("a pair");
    full.set_nonblocking(true).expect("set");
    let part = Head::new(b"", &bytes, b"").send(full.as_raw_fd(), 0).expect("some");
    assert!(part > 0 && part < bytes.len(), "{part}");
    assert_eq!(Head::new(b"", &bytes, b"").send(full.as_raw_fd(), 0), Err(libc::EAGAIN));
    // Bytes up to the end of what is mapped.
    let edge = raw::edge();
    let pieces = [edge - 10, 20];
    let head = [0, 0, pieces.as_ptr().addr(), 1, 0, 0, 0];
    let (mut one, two) = UnixStream::pair().expect("a pair");
    let fd = usize::try_from(two.as_raw_fd()).expect("open");
    let sent = raw::call(libc::SYS_sendmsg, &[fd, head.as_ptr().addr(), 0]);
    match sent {
        Ok(count) => one.read_exact(&mut vec![0; count]).expect("as many came"),
        Err(errno) => assert_eq!(errno, libc::EFAULT),
    }
    let pieces = [edge, 20];
    let head = [0, 0, pieces.as_ptr().addr(), 1, 0, 0, 0];
    assert_eq!(raw::call(libc::SYS_sendmsg, &[fd, head.as_ptr().addr(), 0]), Err(libc::EFAULT));
    let head = [0, 0, pieces.as_ptr().addr(), 1025, 0, 0, 0];
    assert_eq!(raw::call(libc::SYS_sendmsg, &[fd, head.as_ptr().addr(), 0]), Err(libc::EMSGSIZE));
}

#[test]
fn streams_arrive_whole() {
    let place = tempfile::tempdir().expect("made");
    assert_eq!(Stage::new("streams", place.path(), by_name).finish(), []);
}

fn rights(inside: &mut Inside) {
    let mut file = std::fs::File::create_new(inside.place.join("passed")).expect("made");
    let passed = control(libc::SOL_SOCKET, libc::SCM_RIGHTS, &file.as_raw_fd().to_ne_bytes());
    let (one, two) = UnixStream::pair().expect("a pair");
    assert_eq!(Head::new(b"", b"take it", &passed).send(one.as_raw_fd(), 0), Ok(7));
    let (bytes, number, _) = raw::receive(two.as_raw_fd());
    assert_eq!(bytes, b"take it");
    // SAFETY: just received, and nobody else has it.
    let mut copy = unsafe { std::fs::File::from_raw_fd(number.expect("a descriptor")) };
    copy.write_all(b"through the other").expect("written");
    file.rewind().expect("back");
    assert_eq!(std::fs::read(inside.place.join("passed")).expect("read"), b"through the other");
    let refused = |control: &[u8]| Head::new(b"", b"x", control).send(one.as_raw_fd(), 0);
    let bad = control(libc::SOL_SOCKET, libc::SCM_RIGHTS, &999_i32.to_ne_bytes());
    assert_eq!(refused(&bad), Err(libc::EBADF));
    let me = [std::process::id(), 0, 0].map(u32::to_ne_bytes).concat();
    assert_eq!(refused(&control(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, &me)), Err(libc::EPERM));
    assert_eq!(refused(&control(libc::SOL_SOCKET, 99, &me)), Err(libc::EINVAL));
    let mut short = passed.clone();
    short[0] = 8;
    assert_eq!(refused(&short), Err(libc::EINVAL));
    let all: Vec<u8> = std::iter::repeat_n(file.as_raw_fd().to_ne_bytes(), 253).flatten().collect();
    assert_eq!(refused(&control(libc::SOL_SOCKET, libc::SCM_RIGHTS, &all)), Ok(1));
    let more: Vec<u8> = std::iter::repeat_n(file.as_raw_fd().to_ne_bytes(), 254).flatten().collect();
    assert_eq!(refused(&control(libc::SOL_SOCKET, libc::SCM_RIGHTS, &more)), Err(libc::EINVAL));
}

#[test]
fn descriptors_are_passed_on() {
    let place = tempfile::tempdir().expect("made");
    Stage::new("rights", place.path(), by_name).finish();
}

static BROKEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    BROKEN.fetch_add(1, Ordering::SeqCst);
}

fn pipes(_: &mut Inside) {
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGPIPE, (count as extern "C" fn(libc::c_int)) as usize) };
    let (one, two) = UnixStream::pair().expect("a pair");
    drop(two);
    let head = Head::new(b"", b"x", b"");
    assert_eq!(head.send(one.as_raw_fd(), libc::MSG_NOSIGNAL), Err(libc::EPIPE));
    assert_eq!(BROKEN.load(Ordering::SeqCst), 0);
    assert_eq!(head.send(one.as_raw_fd(), 0), Err(libc::EPIPE));
    assert_eq!(BROKEN.load(Ordering::SeqCst), 1, "to the thread that wrote, before its call returned");
}

#[test]
fn a_broken_pipe_is_the_callers() {
    let place = tempfile::tempdir().expect("made");
    Stage::new("pipes", place.path(), by_name).finish();
}
