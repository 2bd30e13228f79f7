//! The executor of an earlier daemon. It ends by itself when its link breaks, but what it runs may take a moment to
//! go; until it has, its executions are not over and its output files not whole. So a new daemon waits for it, and
//! makes it leave in the end. A process is known by its id, when it started and in which boot.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tracing::{info, warn};

/// As long as an executor takes to end what it runs.
const LEAVES: Duration = Duration::from_secs(15);
/// From a kill to the end.
const DIES: Duration = Duration::from_secs(5);

/// The file in the state directory that names the executor of this daemon.
#[derive(Debug, Clone)]
pub struct Mark {
    path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: i32,
    /// In the kernel's ticks since the boot.
    started: u64,
    boot: String,
}

impl Mark {
    pub(crate) fn new(state: &Path) -> Self {
        Self { path: state.join("executor") }
    }

    /// One that is gone already leaves no mark.
    pub(crate) fn set(&self, pid: Option<u32>) -> io::Result<()> {
        let Some(process) = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Process::of) else {
            return Ok(());
        };
        let unfinished = self.path.with_extension("new");
        fs::write(&unfinished, format!("{} {} {}\n", process.pid, process.started, process.boot))?;
        fs::rename(&unfinished, &self.path)
    }

    pub(crate) fn clear(&self) {
        match fs::remove_file(&self.path) {
            // A mark of a process that is gone says nothing.
            Ok(()) | Err(_) => {}
        }
    }

    /// Returns when no executor of an earlier daemon is there any more. Blocks for a bounded time.
    pub(crate) fn outlive(&self) -> io::Result<()> {
        let Some(process) = self.read() else { return Ok(()) };
        if let Some(pidfd) = process.open() {
            info!(pid = process.pid, "waiting for the executor of an earlier run to end");
            if !gone_within(&pidfd, LEAVES)? {
                warn!(pid = process.pid, "it does not leave: killed");
                match pidfd_send_signal(&pidfd, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(errno) => return Err(errno.into()),
                }
                if !gone_within(&pidfd, DIES)? {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
            }
        }
        self.clear();
        Ok(())
    }

    /// A mark that can't be read is none: it was not finished, and so no executor had said hello.
    fn read(&self) -> Option<Process> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut words = text.split_whitespace();
        let (pid, started, boot) = (words.next()?, words.next()?, words.next()?);
        Some(Process { pid: pid.parse().ok()?, started: started.parse().ok()?, boot: boot.to_owned() })
    }
}

impl Process {
    fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may hold anything; what follows are numbers, the start is the 22nd field.
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self { pid, started, boot: boot.trim().to_owned() })
    }

    /// This very process, if it is there. The descriptor comes first, so that the comparison is with what it holds.
    fn open(&self) -> Option<OwnedFd> {
        let pid = Some(self.pid).filter(|pid| *pid > 0).and_then(Pid::from_raw)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (Self::of(self.pid)? == *self).then_some(pidfd)
    }
}

fn gone_within(pidfd: &OwnedFd, within: Duration) -> io::Result<bool> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn child(seconds: &str) -> std::process::Child {
        Command::new("sleep").arg(seconds).stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_marked_process_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mark = Mark::new(directory.path());
        let mut child = child("0.3");
        mark.set(Some(child.id())).unwrap();
        // A zombie is gone as far as a pidfd is concerned: nobody has to reap it first.
        mark.outlive().unwrap();
        assert!(child.try_wait().unwrap().is_some());
        assert!(!mark.path.exists());
    }

    #[test]
    fn another_process_of_that_number_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mark = Mark::new(directory.path());
        let mut child = child("60");
        let real = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        for text in [
            format!("{} {} {}", real.pid, real.started + 1, real.boot),
            format!("{} {} another-boot", real.pid, real.started),
            format!("{} {}", real.pid, real.started),
            "0 0 x".to_owned(),
            "-1 1 x".to_owned(),
            String::new(),
        ] {
            fs::write(&mark.path, &text).unwrap();
            let begun = Instant::now();
            mark.outlive().unwrap();
            assert!(begun.elapsed() < Duration::from_secs(5), "{text}");
            assert!(child.try_wait().unwrap().is_none(), "{text}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
