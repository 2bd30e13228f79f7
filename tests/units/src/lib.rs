//! The units under a real systemd. Only in a guest of `cargo xtask vm`: they are installed, started, stopped and killed
//! there as nobody would on a machine that is in use. Every wait here has a deadline.

#![expect(clippy::expect_used, clippy::panic, reason = "a test's fixture fails by panicking")]

mod ask;
mod manager;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use ask::{Socket, post};
pub use manager::{Manager, said};

const PATIENCE: Duration = Duration::from_secs(60);

pub fn deadline() -> Duration {
    let slow = std::env::var("STOCKADE_TEST_SLOW").ok().and_then(|text| text.parse::<u32>().ok());
    PATIENCE * slow.unwrap_or(1).max(1)
}

#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {:?} for {what}", deadline());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Who may be asked of which test: the same guest runs all of them as root and as an ordinary user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Root,
    Ordinary,
}

/// One test at a time, as there is one service; none outside of a guest.
#[track_caller]
pub fn turn(who: Who) -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let guest = Path::new("/opt/stockade/guest-run").exists() && Path::new("/run/systemd/system").exists();
    if !guest {
        // Past libtest's capture; a closed stderr must not fail a test.
        drop(std::io::stderr().write_all(b"SKIP units: a guest of `cargo xtask vm` has what they need\n"));
        assert!(std::env::var_os("STOCKADE_TEST_NO_SKIP").is_none(), "not in a guest");
        return None;
    }
    let root = rustix::process::geteuid().is_root();
    (root == (who == Who::Root)).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Where the programs under test are.
pub fn programs() -> PathBuf {
    std::env::var_os("STOCKADE_BIN_DIR").map(PathBuf::from).expect("a guest says where the programs are")
}

/// A duration for `sleep` that no other process has.
pub fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("1000.{:07}{:03}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Whether a process has this word among its arguments.
pub fn is_running(word: &str) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    let own = std::process::id().to_string();
    entries.flatten().filter(|entry| entry.file_name().to_str() != Some(&own)).any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}
