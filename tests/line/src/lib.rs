//! The ground the end-to-end suite stands on: a temporary world per test, `stockade` started in it with
//! what the test says and nothing else, and ways to see who is left afterwards. It holds no promise:
//! those are in `tests/line/`, one file per theme. Every wait here has a deadline.

#![expect(clippy::expect_used, clippy::panic, reason = "a test's fixture fails by panicking")]

mod executor;
mod line;
mod peers;
mod ran;
mod service;
mod terminal;
mod tree;
mod world;

use std::io::Write as _;
use std::time::{Duration, Instant};

pub use executor::{Execution, Executor, Piece, execute, pieces, request, text};
pub use line::Line;
pub use peers::{Daemon, Identity, Peers, shell};
pub use ran::{Ran, Running, said_no};
pub use service::Service;
pub use terminal::{read_to_close, read_until, terminal};
pub use tree::{
    await_process, cgroup_directories, children, command_line, descendants, find_marked, inits, kill,
    kill_marked, settle, status_kib,
};
pub use world::{World, files_below, programs, stockade};

/// How long anything may take on a machine of ordinary speed. `STOCKADE_TEST_SLOW` multiplies it: an
/// emulated processor is 10 to 20 times slower.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that has no event to wait on.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub fn slowness() -> u32 {
    std::env::var("STOCKADE_TEST_SLOW").ok().and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

pub fn deadline() -> Duration {
    PATIENCE * slowness()
}

/// A time for `--timeout` within which a shell has started and said something; more on slow machines.
pub fn millis(ordinary: u32) -> String {
    format!("{}ms", ordinary * slowness())
}

/// Looks until there is something, for at most the deadline.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {:?} for {what}", deadline());
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Says loudly that (part of) a test did not happen, past libtest's capture. With
/// `STOCKADE_TEST_NO_SKIP` set it is a failure: then another machine must have shown it.
#[track_caller]
pub fn skip(why: &str) {
    let place = std::panic::Location::caller();
    let thread = std::thread::current();
    let name = match thread.name() {
        Some("main") | None => format!("{}:{}", place.file(), place.line()),
        Some(name) => name.to_owned(),
    };
    let line = format!("SKIP {name}: {why}\n");
    // A closed stderr must not fail a test.
    drop(std::io::stderr().write_all(line.as_bytes()));
    assert!(std::env::var_os("STOCKADE_TEST_NO_SKIP").is_none(), "{line}");
}

pub fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where a program is on this test's own PATH.
pub fn which(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| world::PLAIN_PATH.into());
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// True if every one of these is there; says which is not.
#[track_caller]
pub fn have(names: &[&str]) -> bool {
    match names.iter().find(|name| which(name).is_none()) {
        None => true,
        Some(name) => {
            skip(&format!("{name} is not installed"));
            false
        }
    }
}

/// A word that no other test and no other run of this one has.
pub fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A duration for `sleep` that no other process has, so that it can be found by it.
pub fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("1000.{:07}{:03}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
