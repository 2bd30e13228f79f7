//! Scheduling and limits of processes outside.

use stockade_escape_tests::{Sandbox, Victim, wall};

#[test]
fn limits_priority_and_affinity() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    for attack in ["prlimit", "affinity", "priority"] {
        wall(&sandbox, &format!("{attack} {}", victim.pid()));
    }
}
