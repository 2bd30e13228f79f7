//! Signals to processes outside, by every call that sends one.

use stockade_escape_tests::{Sandbox, Victim};

/// SIGUSR1: the victim dies of it, the attacker can ignore it.
const SIGUSR1: i32 = 10;

#[track_caller]
fn misses(attack: &str) {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    let steps = attack.replace("PID", &victim.pid().to_string());
    let verdict = sandbox.attack(&steps);
    assert!(victim.is_alive(), "{attack}: the victim outside was hit: {verdict:?}");
    assert!(!verdict.is_won(), "{attack}: {verdict:?}");
    sandbox.bare(&steps).won();
    assert!(victim.has_died(), "{attack} does not work without walls");
}

#[test]
fn kill() {
    misses(&format!("kill PID {SIGUSR1}"));
}

#[test]
fn tgkill_and_tkill() {
    misses(&format!("tgkill PID {SIGUSR1}"));
    misses(&format!("tkill PID {SIGUSR1}"));
}

#[test]
fn sigqueue() {
    misses(&format!("sigqueue PID {SIGUSR1}"));
}

#[test]
fn pidfd_send_signal() {
    misses(&format!("pidfd-signal PID {SIGUSR1}"));
}

#[test]
fn process_group_by_number() {
    misses(&format!("kill-pgid PID {SIGUSR1}"));
}

#[test]
fn owner_of_a_descriptor() {
    misses(&format!("setown PID {SIGUSR1}"));
}

/// A process group crosses PID namespaces when it is shared: `stockade` runs in the victim's group, as
/// it does in any shell pipeline.
#[test]
fn own_group_of_the_caller() {
    let base = Sandbox::new();
    let victim = Victim::start(&base);
    let sandbox = base.in_group(victim.pid());
    let ran = sandbox.run_attack(&format!("kill-group {SIGUSR1}"));
    assert!(victim.is_alive(), "kill(0) crossed: {ran}");
    assert!(ran.stdout_text().contains("VERDICT won sent"), "{ran}");
    assert_eq!(ran.code(), 0, "{ran}");
    sandbox.bare(&format!("kill-group {SIGUSR1}")).won();
    assert!(victim.has_died());
}

#[test]
fn everybody() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    // Without the wall, in an arena of its own: this one must never run on a host.
    let bare = sandbox.bare("arena-kill-all");
    if !bare.is_won() {
        stockade_escape_tests::skip(&format!("no arena for kill(-1): {bare:?}"));
    }
    let ran = sandbox.run_attack("kill-all 9");
    assert!(victim.is_alive(), "kill(-1) crossed: {ran}");
    assert!(ran.result.is_some(), "stockade itself was hit: {ran}");
}

#[test]
fn the_supervisor() {
    // The parent of PID 1 is outside: getppid() there is 0 and nothing above 1 can be named.
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&[
        "sh",
        "-c",
        "for p in $(seq 1 400); do kill -USR1 $p 2>/dev/null; done; kill -USR1 0; true",
    ]);
    assert!(ran.result.is_some(), "stockade itself was hit: {ran}");
}
