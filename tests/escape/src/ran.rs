//! Programs that are started and waited for, always with a deadline: a test that hangs hides its reason.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use stockade_proto::ExecutionResult;

/// How long anything may take on a machine of ordinary speed. `STOCKADE_TEST_SLOW` multiplies it: an
/// emulated processor is 10 to 20 times slower.
const PATIENCE: Duration = Duration::from_secs(60);

/// More of one stream than this is counted, not kept.
const KEEP_BYTES: usize = 16 << 20;

pub fn deadline() -> Duration {
    scaled(PATIENCE)
}

/// A time on a machine of ordinary speed, on this one.
pub fn scaled(ordinary: Duration) -> Duration {
    let slow = std::env::var("STOCKADE_TEST_SLOW").ok().and_then(|text| text.parse::<u32>().ok());
    ordinary * slow.unwrap_or(1).max(1)
}

#[derive(Debug, Default)]
struct Stream {
    kept: Vec<u8>,
    total: u64,
}

#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub stdout_total: u64,
    pub wall: Duration,
    /// Nobody held stdout or stderr open when the program had ended.
    pub pipes_closed: bool,
    pub result: Option<ExecutionResult>,
    /// What the program itself used, all its threads and none of its children: for `stockade`, what the sandbox's
    /// limits do not see.
    pub own_cpu: Duration,
}

impl Ran {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
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
    pub fn result(&self) -> &ExecutionResult {
        match &self.result {
            Some(result) => result,
            None => panic!("no --json result: {self}"),
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]).into_owned();
        write!(
            f,
            "{} after {:?}\n--- stdout\n{}\n--- stderr\n{}\n--- result\n{:?}",
            self.status,
            self.wall,
            shown(&self.stdout),
            shown(&self.stderr),
            self.result
        )
    }
}

/// A program under way. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    started: Instant,
    lines: Receiver<String>,
    stdout: Receiver<Stream>,
    stderr: Receiver<Stream>,
    json: Option<std::path::PathBuf>,
    done: bool,
}

/// Of a process that was not reaped, in hundredths of a second.
fn own_cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a child that is not reaped");
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u32 = words.skip(11).take(2).filter_map(|word| word.parse::<u32>().ok()).sum();
    Duration::from_millis(10) * ticks
}

fn collect(mut from: impl Read + Send + 'static) -> Receiver<Stream> {
    let (give, take) = channel();
    std::thread::spawn(move || {
        let mut stream = Stream::default();
        let mut buffer = vec![0u8; 1 << 16];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            stream.total += u64::try_from(got).unwrap_or(0);
            let room = KEEP_BYTES.saturating_sub(stream.kept.len());
            stream.kept.extend_from_slice(&buffer[..got.min(room)]);
        }
        // The test may have given up; then nobody takes it.
        drop(give.send(stream));
    });
    take
}

/// As `collect`, and hands out the first lines as they come.
fn collect_lines(from: impl Read + Send + 'static) -> (Receiver<String>, Receiver<Stream>) {
    let ((give_line, lines), (give, take)) = (channel(), channel());
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut stream = Stream::default();
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            match reader.by_ref().take(1 << 16).read_until(b'\n', &mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(got) => stream.total += u64::try_from(got).unwrap_or(0),
            }
            if stream.kept.len() < KEEP_BYTES {
                stream.kept.extend_from_slice(&buffer);
                drop(give_line.send(String::from_utf8_lossy(&buffer).trim_end().to_owned()));
            }
        }
        drop(give.send(stream));
    });
    (lines, take)
}

impl Running {
    #[track_caller]
    pub(crate) fn start(mut command: Command, json: Option<std::path::PathBuf>) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{command:?}: {error}"),
        };
        let (lines, stdout) = collect_lines(child.stdout.take().expect("stdout was piped"));
        let stderr = collect(child.stderr.take().expect("stderr was piped"));
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a child that is not reaped has a pidfd");
        Self { child, pidfd, started, lines, stdout, stderr, json, done: false }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line on stdout that starts with these words.
    #[track_caller]
    pub fn wait_line(&self, start: &str) -> String {
        let end = Instant::now() + deadline();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with(start) => return line,
                Ok(_) => {}
                Err(error) => {
                    let said = self.stderr.recv_timeout(Duration::from_millis(100)).unwrap_or_default();
                    panic!("no line {start:?} ({error}); stderr: {}", String::from_utf8_lossy(&said.kept));
                }
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        // Gone already is as good as signalled.
        let _gone = kill_process(Pid::from_child(&self.child), signal);
    }

    /// True if the program ended within that time.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
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
        let ended = self.ends_within(deadline());
        let wall = self.started.elapsed();
        if !ended {
            self.signal(Signal::KILL);
        }
        let own_cpu = own_cpu(self.pid());
        let status = self.child.wait().expect("the child is ours to wait for");
        self.done = true;
        // With the program gone its pipes close at once, unless somebody it left behind holds them.
        let grace = Duration::from_secs(2);
        let stdout = self.stdout.recv_timeout(grace);
        let stderr = self.stderr.recv_timeout(grace);
        let pipes_closed = stdout.is_ok() && stderr.is_ok();
        let (stdout, stderr) = (stdout.unwrap_or_default(), stderr.unwrap_or_default());
        let text = self.json.as_ref().and_then(|path| std::fs::read(path).ok());
        let result = text.and_then(|text| serde_json::from_slice(&text).ok());
        let ran = Ran {
            status,
            stdout: stdout.kept,
            stderr: stderr.kept,
            stdout_total: stdout.total,
            wall,
            pipes_closed,
            result,
            own_cpu,
        };
        assert!(ended, "still running after {:?}: {ran}", deadline());
        ran
    }

    /// The status of a program that a test ended by force.
    pub fn reap(mut self) -> ExitStatus {
        let ended = self.ends_within(deadline());
        assert!(ended, "did not end after its kill");
        self.done = true;
        self.child.wait().expect("the child is ours to wait for")
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
