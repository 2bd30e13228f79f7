//! setsid and a double fork: the usual way to outlive one's caller.

use stockade_escape_tests::{Sandbox, find_marked, kill_marked, settle};
use stockade_proto::Outcome;

#[test]
fn a_daemon_goes_with_its_command() {
    let sandbox = Sandbox::new();
    let bare = sandbox.bare("daemon drop walrus-bare-daemon");
    let lives = !find_marked("walrus-bare-daemon").is_empty();
    kill_marked("walrus-bare-daemon");
    bare.won();
    assert!(lives, "the daemon does not outlive its caller even without walls");
    let ran = sandbox.run_attack("daemon drop walrus-daemon");
    assert_eq!(ran.result().outcome, Outcome::Exited { code: 0 }, "{ran}");
    // Success means empty: no waiting here, it must be gone when stockade has ended.
    assert!(find_marked("walrus-daemon").is_empty(), "{ran}");
    assert!(ran.result().leaked_descendants >= 1, "nobody told of it: {ran}");
}

#[test]
fn a_daemon_goes_at_the_timeout() {
    let sandbox = Sandbox::new().profile("[limits]\ngrace = \"200ms\"").option("--timeout", "1s");
    let ran = sandbox.run(&["sh", "-c", "./attack daemon drop walrus-late; exec ./attack hold walrus-late"]);
    assert_eq!(ran.result().outcome, Outcome::TimedOut, "{ran}");
    assert!(find_marked("walrus-late").is_empty(), "{ran}");
}

#[test]
fn host_mode_leaves_nothing_either() {
    // RUN-7 holds for executions without walls as well: the cgroup is killed as a whole.
    let sandbox = Sandbox::new();
    let attack = sandbox.workspace().join("attack").display().to_string();
    let ran =
        sandbox.cli(&["run", "--profile", "host", "--", &attack, "daemon", "drop", "walrus-host-daemon"]);
    let left = find_marked("walrus-host-daemon");
    kill_marked("walrus-host-daemon");
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn with_a_pipe_in_its_hands() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_attack("daemon keep walrus-keeper");
    assert!(ran.pipes_closed, "{ran}");
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(settle("walrus-keeper").is_empty());
}
