//! Programs that are started and waited for, always with a deadline: a test that hangs hides its reason.

use std::fmt;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use stockade_proto::{Code, ExecutionResult, Fault, Refusal};

use crate::{deadline, slowness};

#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub wall: Duration,
    /// Nobody held stdout or stderr open when the program had ended.
    pub pipes_closed: bool,
    /// What `--json` wrote.
    pub json: Option<Vec<u8>>,
}

impl Ran {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    #[track_caller]
    pub fn code(&self) -> i32 {
        match self.status.code() {
            Some(code) => code,
            None => panic!("died of a signal: {self}"),
        }
    }

    #[track_caller]
    pub fn value(&self) -> serde_json::Value {
        let Some(json) = &self.json else { panic!("no --json: {self}") };
        match serde_json::from_slice(json) {
            Ok(value) => value,
            Err(error) => panic!("--json wrote no JSON ({error}): {self}"),
        }
    }

    #[track_caller]
    pub fn result(&self) -> ExecutionResult {
        match serde_json::from_value(self.value()) {
            Ok(result) => result,
            Err(error) => panic!("no result ({error}): {self}"),
        }
    }

    #[track_caller]
    pub fn refusal(&self) -> Refusal {
        match serde_json::from_value(self.value()["refusal"].clone()) {
            Ok(refusal) => refusal,
            Err(error) => panic!("no refusal ({error}): {self}"),
        }
    }

    #[track_caller]
    pub fn fault(&self) -> Fault {
        match serde_json::from_value(self.value()["fault"].clone()) {
            Ok(fault) => fault,
            Err(error) => panic!("no fault ({error}): {self}"),
        }
    }

    /// It exited with this code; what it said otherwise is in the panic.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self}");
        self
    }

    /// A refusal with this code, a sentence for people with the code in it, and what to do next; on
    /// stdout nothing.
    #[track_caller]
    pub fn refused(&self, code: Code) -> Refusal {
        assert_eq!(self.code(), 125, "{self}");
        let refusal = self.refusal();
        assert_eq!(refusal.code, code, "{self}");
        assert!(refusal.message.len() > 10 && !refusal.message.contains('\n'), "no sentence: {self}");
        assert!(!refusal.remedy.is_empty(), "no remedy: {self}");
        said_no(self, code.id());
        assert!(self.stdout.is_empty(), "{self}");
        refusal
    }
}

/// stderr names the code and is not a panic or a backtrace.
#[track_caller]
pub fn said_no(ran: &Ran, id: &str) {
    let said = ran.err();
    assert!(said.contains(id), "stderr does not name {id}: {ran}");
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{ran}");
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]).into_owned();
        write!(
            f,
            "{} after {:?}\n--- stdout ({} bytes)\n{}\n--- stderr\n{}\n--- json\n{}",
            self.status,
            self.wall,
            self.stdout.len(),
            shown(&self.stdout),
            shown(&self.stderr),
            self.json.as_deref().map(shown).unwrap_or_default()
        )
    }
}

#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    closed: bool,
}

/// What has come so far, and a bell for more.
#[derive(Debug, Default)]
struct Tap {
    stream: Mutex<Stream>,
    more: Condvar,
}

impl Tap {
    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(from: Option<impl Read + Send + 'static>) -> Arc<Self> {
        let tap = Arc::new(Self::default());
        let Some(mut from) = from else {
            tap.lock().closed = true;
            return tap;
        };
        let filling = Arc::clone(&tap);
        std::thread::spawn(move || {
            let mut buffer = vec![0u8; 1 << 18];
            while let Ok(got @ 1..) = from.read(&mut buffer) {
                filling.lock().bytes.extend_from_slice(&buffer[..got]);
                filling.more.notify_all();
            }
            filling.lock().closed = true;
            filling.more.notify_all();
        });
        tap
    }

    /// False if it did not come to that in time.
    fn wait(&self, limit: Duration, done: impl Fn(&Stream) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut stream = self.lock();
        while !done(&stream) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            stream = self.more.wait_timeout(stream, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// A program under way. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    started: Instant,
    stdout: Arc<Tap>,
    stderr: Arc<Tap>,
    stdin: Option<ChildStdin>,
    json: Option<PathBuf>,
    done: bool,
}

impl Running {
    /// How many sockets it has open by now.
    pub fn sockets(&self) -> usize {
        let Ok(fds) = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())) else { return 0 };
        let targets = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    #[track_caller]
    pub fn start(mut command: Command, json: Option<PathBuf>) -> Self {
        let started = Instant::now();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{:?}: {error}", command.get_program()),
        };
        // Copies of the caller's descriptors in `command` would hold pipes open.
        drop(command);
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        Self {
            pidfd: pidfd.expect("a child that is not reaped has a pidfd"),
            started,
            stdout: Tap::open(child.stdout.take()),
            stderr: Tap::open(child.stderr.take()),
            stdin: child.stdin.take(),
            child,
            json,
            done: false,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Writes all of it and closes stdin, on a thread of its own: the reader may be slow or gone.
    pub(crate) fn feed(&mut self, bytes: Vec<u8>) {
        if let Some(mut stdin) = self.stdin.take() {
            std::thread::spawn(move || drop(stdin.write_all(&bytes)));
        }
    }

    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(bytes).expect("somebody reads it");
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until stdout holds this.
    #[track_caller]
    pub fn wait_out(&self, needle: &str) {
        let came =
            self.stdout.wait(deadline(), |stream| stream.closed || holds(&stream.bytes, needle.as_bytes()));
        let stream = self.stdout.lock();
        let found = holds(&stream.bytes, needle.as_bytes());
        assert!(
            came && found,
            "no {needle:?} on stdout, but {:?}; stderr: {:?}",
            String::from_utf8_lossy(&stream.bytes),
            String::from_utf8_lossy(&self.stderr.lock().bytes)
        );
    }

    /// Waits until stderr holds this, and gives all of it so far.
    #[track_caller]
    pub fn wait_err(&self, needle: &str) -> String {
        let came =
            self.stderr.wait(deadline(), |stream| stream.closed || holds(&stream.bytes, needle.as_bytes()));
        let text = String::from_utf8_lossy(&self.stderr.lock().bytes).into_owned();
        assert!(came && text.contains(needle), "no {needle:?} on stderr, but {text:?}");
        text
    }

    /// True if stdout holds this within that time.
    pub fn out_within(&self, needle: &str, limit: Duration) -> bool {
        self.stdout.wait(limit * slowness(), |stream| holds(&stream.bytes, needle.as_bytes()))
    }

    /// True if stdout has that many bytes before the deadline.
    pub fn out_reaches(&self, count: usize) -> bool {
        self.stdout.wait(deadline(), |stream| stream.closed || stream.bytes.len() >= count)
            && self.stdout.lock().bytes.len() >= count
    }

    pub fn out_now(&self) -> String {
        String::from_utf8_lossy(&self.stdout.lock().bytes).into_owned()
    }

    pub fn signal(&self, signal: Signal) {
        // Gone already is as good as signalled.
        let _gone = kill_process(Pid::from_child(&self.child), signal);
    }

    /// True if the program ended within that time (more on slow machines).
    pub fn ends_within(&self, limit: Duration) -> bool {
        self.ends_by(Instant::now() + limit * slowness())
    }

    fn ends_by(&self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut waits = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let timeout = Timespec::try_from(left).expect("a deadline fits a timespec");
            match poll(&mut waits, Some(&timeout)) {
                Ok(0) if left.is_zero() => return false,
                Ok(1..) => return true,
                Ok(0) | Err(_) => {}
            }
        }
    }

    #[track_caller]
    pub fn finish(mut self) -> Ran {
        let ended = self.ends_by(Instant::now() + deadline());
        let wall = self.started.elapsed();
        if !ended {
            self.signal(Signal::KILL);
        }
        let status = self.child.wait().expect("the child is ours to wait for");
        self.done = true;
        // With the program gone its pipes close at once, unless somebody it left behind holds them.
        let grace = Duration::from_secs(5) * slowness();
        let pipes_closed =
            [&self.stdout, &self.stderr].iter().all(|tap| tap.wait(grace, |stream| stream.closed));
        let take = |tap: &Tap| std::mem::take(&mut tap.lock().bytes);
        let ran = Ran {
            status,
            stdout: take(&self.stdout),
            stderr: take(&self.stderr),
            wall,
            pipes_closed,
            json: self.json.as_ref().and_then(|path| std::fs::read(path).ok()),
        };
        assert!(ended, "still running after {:?}: {ran}", deadline());
        ran
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.done {
            self.signal(Signal::KILL);
            drop(self.child.wait());
        }
    }
}
