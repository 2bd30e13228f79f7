//! A tree that ignores every polite signal, and a timeout.

use std::time::Duration;

use stockade_escape_tests::{Sandbox, kill_marked, scaled, settle};
use stockade_proto::{LimitKind, Outcome, exit};

#[test]
fn ignored_sigterm() {
    // Long enough for the attacker to be deaf before the polite signal comes.
    let timeout = scaled(Duration::from_secs(1));
    let sandbox = Sandbox::new()
        .profile("[limits]\ngrace = \"300ms\"")
        .option("--timeout", &format!("{}ms", timeout.as_millis()));
    // Without the wall: it lives on after SIGTERM.
    let bare = sandbox.start_bare("ignore-term walrus-ignoring");
    bare.wait_line("READY");
    bare.signal(rustix::process::Signal::TERM);
    assert!(!bare.ends_within(Duration::from_millis(300)), "it did not ignore SIGTERM");
    kill_marked("walrus-ignoring");
    let ran = sandbox.run_attack("ignore-term walrus-stubborn");
    assert_eq!(ran.code(), i32::from(exit::TIMED_OUT), "{ran}");
    assert_eq!(ran.result().outcome, Outcome::TimedOut, "{ran}");
    assert!(ran.wall >= timeout + Duration::from_millis(300), "killed without grace: {ran}");
    assert!(settle("walrus-stubborn").is_empty());
}

#[test]
fn cancelled_by_sigterm_to_stockade() {
    let sandbox = Sandbox::new().profile("[limits]\ngrace = \"300ms\"");
    let running = sandbox.start_attack("ignore-term walrus-cancel");
    running.wait_line("READY");
    running.signal(rustix::process::Signal::TERM);
    let ran = running.finish();
    assert_eq!(ran.code(), 143, "{ran}");
    assert!(matches!(ran.result().outcome, Outcome::Cancelled { .. }), "{ran}");
    assert!(settle("walrus-cancel").is_empty());
}

#[test]
fn cpu_without_end() {
    let sandbox = Sandbox::new().profile("[limits]\ncpu-seconds = 1").option("--timeout", "30s");
    let ran = sandbox.run_attack("burn");
    assert_eq!(ran.result().outcome, Outcome::Limit { which: LimitKind::CpuSeconds }, "{ran}");
    assert_eq!(ran.code(), i32::from(exit::LIMIT), "{ran}");
}

#[test]
fn cpu_spread_over_children() {
    // RLIMIT_CPU counts one process: many that each stay below it are a tree that does not.
    let sandbox = Sandbox::new().profile("[limits]\ncpu-seconds = 2").option("--timeout", "40s");
    let script =
        "i=0; while [ $i -lt 60 ]; do timeout 0.7 ./attack burn >/dev/null; i=$((i+1)); done; echo done";
    let ran = sandbox.run(&["sh", "-c", script]);
    assert_eq!(ran.result().outcome, Outcome::Limit { which: LimitKind::CpuSeconds }, "{ran}");
}
