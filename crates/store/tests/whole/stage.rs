//! Directories to work in, and other processes that play a part in them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

pub(crate) const PART: &str = "STOCKADE_STORE_TEST_PART";
const DIRECTORY: &str = "STOCKADE_STORE_TEST_DIRECTORY";

/// In memory where that is possible: these tests sync thousands of times, and no power is cut here.
pub(crate) fn room() -> TempDir {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder.prefix("stockade-store").permissions(Permissions::from_mode(0o700));
    builder.tempdir_in(memory).or_else(|_| builder.tempdir()).unwrap()
}

pub(crate) fn directory() -> PathBuf {
    std::env::var_os(DIRECTORY).unwrap().into()
}

/// Ended and reaped when it is dropped.
pub(crate) struct Actor(pub(crate) Child);

impl Actor {
    pub(crate) fn start(part: &str, directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "scene", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env(DIRECTORY, directory);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// SIGSTOP, and it does nothing more when it returns.
    pub(crate) fn stand_still(&self) {
        self.signal(rustix::process::Signal::STOP);
        let status = format!("/proc/{}/task", self.0.id());
        let stands = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !std::fs::read_dir(&status).unwrap().all(|task| task.is_ok_and(stands)) {
            assert!(std::time::Instant::now() < end, "it does not stand still");
            std::thread::yield_now();
        }
    }

    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// SIGKILL, and gone when it returns.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Says loudly that a test did not happen. With `STOCKADE_TEST_NO_SKIP` set it is a failure: then another
/// machine must have shown it.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIP {why}");
    assert!(std::env::var_os("STOCKADE_TEST_NO_SKIP").is_none(), "{why}");
}
