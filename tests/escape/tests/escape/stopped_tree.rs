//! A tree that has stopped itself can't run a handler; it must go all the same.

use stockade_escape_tests::{Sandbox, settle};
use stockade_proto::Outcome;

#[test]
fn sigstop_and_a_timeout() {
    let sandbox = Sandbox::new().profile("[limits]\ngrace = \"300ms\"").option("--timeout", "1s");
    let ran = sandbox.run_attack("stop-tree walrus-stopped");
    assert_eq!(ran.result().outcome, Outcome::TimedOut, "{ran}");
    assert!(settle("walrus-stopped").is_empty());
}

#[test]
fn sigstop_and_the_end_of_the_command() {
    // The command itself ends; stopped children must not keep the sandbox.
    let sandbox = Sandbox::new();
    let script = "./attack stop-tree walrus-rest & read line <&3; exit 3";
    let ran = sandbox.run(&["sh", "-c", &format!("mkfifo p; exec 3<>p; echo x >&3; {script}")]);
    assert_eq!(ran.code(), 3, "{ran}");
    assert!(settle("walrus-rest").is_empty());
}

#[test]
fn stopped_from_outside_and_cancelled() {
    let sandbox = Sandbox::new().profile("[limits]\ngrace = \"300ms\"");
    let running = sandbox.start_attack("stop-tree walrus-outside");
    running.wait_line("READY");
    running.signal(rustix::process::Signal::INT);
    let ran = running.finish();
    assert_eq!(ran.code(), 130, "{ran}");
    assert!(settle("walrus-outside").is_empty());
}
