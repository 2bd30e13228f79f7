//! What a decided connect costs, against the barest loop that could decide one: receive, copy, take the
//! socket, connect by the name, answer. And against the barest that can't be raced, which holds the object that it would decide on,
//! sees that the call still waits, and connects to what it holds. All on the same sockets, in turns, medians of batches.
//! Beside it, what a call costs that the filter lets pass. As root it is decided for another user, as the
//! supervisor does nothing as root. `cargo run --release -p stockade-sockets --example round_trip`;
//! `--figures` prints lines of numbers for `cargo xtask bench`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_charge::Charge;
use stockade_proto::{Decision, UnixSocketOp};
use stockade_sockets::{Asked, Config, Sandbox, Supervisor, Verdict, Witness};
use stockade_sys::notify;

const WORD: &str = "STOCKADE_ROUND_TRIP";
const CALLS: usize = 400;
const ROUNDS: usize = 5;
const TURNS: usize = 10;
const PLAIN_CALLS: u32 = 200_000;

struct Nobody;

impl Witness for Nobody {
    fn saw(&self, _: UnixSocketOp) {}
}

/// In microseconds, at that many hundredths.
fn at(times: &[Duration], part: usize) -> f64 {
    times.get(times.len() * part / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// Child: connects when told to, in batches, and prints each batch's median and 99th percentile.
fn client(path: &str) -> std::io::Result<()> {
    let filter = stockade_seccomp::filter("sockets").ok_or(std::io::ErrorKind::NotFound)?;
    let native = batch(path)?;
    let unfiltered = plain();
    let listener = notify::listen_to_myself(&filter.program_bytes())?;
    println!("{}", listener.as_raw_fd());
    println!("{native}");
    println!("{unfiltered} {}", plain());
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        println!("{}", batch(path)?);
        std::io::stdout().flush()?;
        line.clear();
    }
    Ok(())
}

/// Microseconds of a call that does nothing.
fn plain() -> f64 {
    let begun = Instant::now();
    for _ in 0..PLAIN_CALLS {
        std::hint::black_box(rustix::process::getppid());
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(PLAIN_CALLS)
}

fn batch(path: &str) -> std::io::Result<String> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)?;
        let address = rustix::net::SocketAddrUnix::new(path)?;
        let begun = Instant::now();
        rustix::net::connect(&socket, &address)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(format!("{} {}", at(&times, 50), at(&times, 99)))
}

/// The object that an address means to a process with that root, and an address that means it alone.
fn hold(root: &OwnedFd, address: &[u8]) -> std::io::Result<(OwnedFd, Vec<u8>)> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    let path = address.get(2..).and_then(|path| path.split(|byte| *byte == 0).next()).unwrap_or_default();
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let object = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how)?;
    let mut own = address.get(..2).unwrap_or_default().to_vec();
    own.extend_from_slice(format!("/proc/self/fd/{}\0", object.as_raw_fd()).as_bytes());
    Ok((object, own))
}

/// As little as a supervisor can do that performs the call itself; and, with `care`, that can't be raced.
fn bare(listener: OwnedFd, stop: OwnedFd, care: bool) -> std::io::Result<()> {
    let mut pidfd: Option<(OwnedFd, OwnedFd)> = None;
    loop {
        let mut fds = [
            rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN),
            rustix::event::PollFd::new(&stop, rustix::event::PollFlags::IN),
        ];
        // Only between batches: inside one the loop blocks in the receive itself.
        rustix::event::poll(&mut fds, None)?;
        if !fds[0].revents().contains(rustix::event::PollFlags::IN) {
            return Ok(());
        }
        for _ in 0..CALLS {
            let note = notify::receive(listener.as_fd())?;
            let mut address = [0; 128];
            let length = usize::try_from(note.args[2]).unwrap_or(0).min(128);
            let address = address.get_mut(..length).unwrap_or_default();
            notify::read_memory_all(note.tid, note.args[1], address)?;
            let (process, root) = match &pidfd {
                Some(known) => known,
                None => {
                    let root = std::fs::File::open(format!("/proc/{}/root", note.tid))?;
                    pidfd.insert((notify::thread_pidfd(note.tid)?, root.into()))
                }
            };
            let number = i32::try_from(note.args[0]).unwrap_or(-1);
            let flags = rustix::process::PidfdGetfdFlags::empty();
            let socket = rustix::process::pidfd_getfd(process, number, flags)?;
            let result = if care {
                let (_held, own) = hold(root, address)?;
                if !notify::still_waits(listener.as_fd(), note.id) {
                    continue;
                }
                notify::connect(socket.as_fd(), &own)
            } else {
                notify::connect(socket.as_fd(), address)
            };
            notify::answer(listener.as_fd(), note.id, result.map(|()| 0).map_err(|_| 111))?;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(path) = std::env::var(WORD) {
        client(&path)?;
        return Ok(());
    }
    // In the open: root's connects as nobody.
    let place = tempfile::tempdir()?;
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let path = place.path().join("server");
    let server = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    std::thread::spawn(move || {
        for stream in server.incoming() {
            drop(stream)
        }
    });
    let is_root = rustix::process::geteuid().is_root();
    let kinds = [Kind::Bare, Kind::Careful, Kind::Decided(is_root.then_some((65534, 65534)))];
    let mut results = kinds.map(|_| Vec::new());
    let (mut native, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        for (kind, result) in kinds.into_iter().zip(&mut results) {
            let (first, call, rest) = run(&path, kind)?;
            native.push(first);
            calls.push(call);
            result.extend(rest);
        }
    }
    let [bare, careful, decided] = results;
    if std::env::args().any(|word| word == "--figures") {
        let figures = [
            ("native", &native),
            ("bare", &bare),
            ("careful", &careful),
            ("decided", &decided),
            ("plain", &calls),
        ];
        for (name, pairs) in figures {
            let (first, second) = pick(pairs, 50);
            println!("{name} {first} {second}");
        }
        return Ok(());
    }
    let (unfiltered, filtered) = pick(&calls, 50);
    println!("a call that passes, µs: {unfiltered:.3} without the filter, {filtered:.3} with it");
    let table = [("native", native), ("bare loop", bare), ("without races", careful), ("decided", decided)];
    // On a machine with other work the low end says what the calls cost, the middle what the machine did.
    for part in [10, 50] {
        println!("p{part} of the batches, µs: median and p99 of a connect, ratio to the bare loop");
        let base = pick(&table[1].1, part).0;
        for (name, batches) in &table {
            let (median, tail) = pick(batches, part);
            println!("{name:>26} {median:8.2} {tail:8.2} {:8.3}", median / base);
        }
    }
    Ok(())
}

/// Of both numbers, what lies at that many hundredths.
fn pick(pairs: &[(f64, f64)], part: usize) -> (f64, f64) {
    let at = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() * part / 100).copied().unwrap_or(0.0)
    };
    (at(pairs.iter().map(|one| one.0).collect()), at(pairs.iter().map(|one| one.1).collect()))
}

/// Who answers.
#[derive(Clone, Copy)]
enum Kind {
    Bare,
    /// The same without races.
    Careful,
    Decided(Option<(u32, u32)>),
}

type Batches = ((f64, f64), (f64, f64), Vec<(f64, f64)>);

fn pair(line: &str) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let (median, tail) = line.split_once(' ').ok_or("two numbers")?;
    Ok((median.parse()?, tail.parse()?))
}

/// One client under one kind of supervisor: its native median, what a plain call costs it, and its batches.
fn run(path: &std::path::Path, kind: Kind) -> Result<Batches, Box<dyn std::error::Error>> {
    use std::io::BufRead as _;
    let mut child = Command::new(std::env::current_exe()?)
        .env(WORD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = std::io::BufReader::new(child.stdout.take().ok_or("stdout")?).lines();
    let mut input = child.stdin.take().ok_or("stdin")?;
    let mut next = || -> Result<String, Box<dyn std::error::Error>> { Ok(lines.next().ok_or("ended")??) };
    let number: i32 = next()?.parse()?;
    let native = pair(&next()?)?;
    let plain = pair(&next()?)?;
    let pidfd = notify::thread_pidfd(child.id())?;
    let listener = rustix::process::pidfd_getfd(&pidfd, number, rustix::process::PidfdGetfdFlags::empty())?;
    let (stop, stopped) = UnixStream::pair()?;
    let allow = |_: &Asked<'_>| Verdict { decision: Decision::Allow, rule: None };
    let mut supervisor = None;
    let mut thread = None;
    if let Kind::Decided(identity) = kind {
        let prepared = Supervisor::prepare(Config {
            execution: "bench".into(),
            decide: Arc::new(allow),
            witness: Arc::new(Nobody),
            // As the default profile has it.
            charge: Arc::new(Charge::new(Some(1000))),
            identity,
        })?;
        let diagnosis = stockade_sockets::diagnosis()?;
        let mut awake = prepared.start(Sandbox { listener, landlock: None, diagnosis });
        awake.wake()?;
        supervisor = Some(awake);
    } else {
        notify::switch_on_one_cpu(listener.as_fd())?;
        let care = matches!(kind, Kind::Careful);
        thread = Some(std::thread::spawn(move || bare(listener, stopped.into(), care)));
    }
    let mut batches = Vec::new();
    for _ in 0..ROUNDS {
        input.write_all(b"\n")?;
        batches.push(pair(&next()?)?);
    }
    drop(input);
    child.wait()?;
    drop(stop);
    if let Some(supervisor) = supervisor {
        supervisor.stop()?;
    }
    if let Some(thread) = thread {
        thread.join().map_err(|_| "the bare loop panicked")??;
    }
    Ok((native, plain, batches))
}
