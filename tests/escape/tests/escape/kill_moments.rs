//! SIGKILL to `stockade` at random moments, from before its first system call to after its last.

use std::time::Duration;

use rustix::process::Signal;
use stockade_escape_tests::{Sandbox, orphaned_inits, scaled, settle};

const ROUNDS: u32 = 40;

/// A generator is enough: the moments must spread, not surprise.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn nothing_stays_behind() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let start = u64::from(now.subsec_nanos());
    let mut seed = start;
    let sandbox = Sandbox::new();
    for round in 0..ROUNDS {
        let marker = format!("walrus-moment-{round}-");
        let running = sandbox.start_attack(&format!("spread 2 {marker}"));
        // Twice the time that a start takes on an idle machine: some kills come before the command runs.
        let moment = scaled(Duration::from_micros(next(&mut seed) % 60_000));
        running.ends_within(moment);
        running.signal(Signal::KILL);
        running.reap();
        let left = settle(&marker);
        assert!(left.is_empty(), "seed {start}, round {round}, after {moment:?}: left behind {left:?}");
    }
    let inits = orphaned_inits();
    assert!(inits.is_empty(), "seed {start}: inits without a parent: {inits:?}");
    // Leftovers of all of them are swept by the next start, which works as if nothing had been.
    let ran = sandbox.run(&["true"]);
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
    assert!(!sandbox.workspace().join(".stockade").exists(), "a placeholder was left behind");
}

#[test]
fn polite_signals_at_random_moments() {
    let mut seed = 7;
    let sandbox = Sandbox::new().profile("[limits]\ngrace = \"200ms\"");
    for round in 0..ROUNDS / 2 {
        let signal = [Signal::INT, Signal::TERM, Signal::HUP][usize::try_from(round % 3).unwrap_or(0)];
        let marker = format!("walrus-polite-{round}-");
        let running = sandbox.start_attack(&format!("spread 1 {marker}"));
        let moment = scaled(Duration::from_micros(next(&mut seed) % 60_000));
        running.ends_within(moment);
        running.signal(signal);
        let status = running.reap();
        assert!(!status.success(), "round {round}: {status}");
        let left = settle(&marker);
        assert!(left.is_empty(), "round {round}, {signal:?} after {moment:?}: left behind {left:?}");
    }
}
