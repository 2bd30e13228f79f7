//! The ground of the contract suite: the real `stockaded` with a state directory of its own, raw sockets to it, and
//! replies taken apart byte by byte. No HTTP library: one would tidy up what is to be looked at. Every wait here has
//! a deadline.

#![expect(clippy::expect_used, clippy::panic, reason = "a test's fixture fails by panicking")]

mod answer;
mod service;

use std::time::{Duration, Instant};

pub use answer::{Answer, Event, events, pattern};
pub use service::{Options, Service, programs, stockaded};

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

/// A duration for `sleep` that no other process has, so that it can be found by it.
pub fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("1000.{:07}{:03}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Whether a process with this word among its arguments is alive.
pub fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc is mounted");
    let command_line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    processes.filter_map(Result::ok).filter_map(command_line).any(|line| {
        // As an argument of its own: the shell that started it has it within a longer one.
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}

/// Says loudly that a test did not happen. With `STOCKADE_TEST_NO_SKIP` set it is a failure: then another machine must
/// have shown it.
#[track_caller]
pub fn skip(why: &str) {
    let place = std::panic::Location::caller();
    let line = format!("SKIP {}:{}: {why}\n", place.file(), place.line());
    // A closed stderr must not fail a test.
    drop(std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()));
    assert!(std::env::var_os("STOCKADE_TEST_NO_SKIP").is_none(), "{line}");
}
