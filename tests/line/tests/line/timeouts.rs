//! RUN-7: stop, grace, kill: the whole tree, whatever it does, and nobody is left.

use std::time::Duration;

use stockade_line_tests::{Ran, World, find_marked, millis, settle, slowness, unique_sleep};
use stockade_proto::{Outcome, exit};

fn world() -> World {
    let world = World::new();
    world.profile("quick", "extends = \"default\"\n[limits]\ngrace = \"300ms\"\n");
    world
}

#[track_caller]
fn timed_out(ran: &Ran, marker: &str) {
    assert_eq!(ran.code(), i32::from(exit::TIMED_OUT), "{ran}");
    assert_eq!(ran.result().outcome, Outcome::TimedOut, "{ran}");
    assert!(ran.pipes_closed, "somebody holds the pipes: {ran}");
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
    assert!(ran.wall < Duration::from_secs(12) * slowness(), "{ran}");
    let left = find_marked(marker);
    assert!(left.is_empty(), "left behind: {left:?}: {ran}");
}

#[test]
fn a_command_that_takes_too_long() {
    let (world, sleep) = (world(), unique_sleep());
    let ran = world.line(&["sleep", &sleep]).profile("quick").timeout(&millis(300)).go();
    timed_out(&ran, &sleep);
    assert!(ran.wall >= Duration::from_millis(300), "{ran}");
    assert!(ran.err().contains("timed out after"), "{ran}");
}

#[test]
fn a_command_that_ends_on_sigterm_may_clean_up() {
    let (world, sleep) = (world(), unique_sleep());
    let script = format!("trap 'echo cleaned; exit 3' TERM; echo ready; sleep {sleep} & wait");
    let ran = world.sh(&script).profile("quick").timeout(&millis(500)).go();
    timed_out(&ran, &sleep);
    assert_eq!(ran.out(), "ready\ncleaned\n", "{ran}");
}

#[test]
fn ignored_sigterm_costs_the_grace_and_no_more() {
    let (world, sleep) = (world(), unique_sleep());
    let ran = world
        .sh(&format!(
            "trap '' TERM HUP INT; echo ready; sleep {sleep} & wait; wait; while :; do sleep 1; done"
        ))
        .profile("quick")
        .timeout(&millis(500))
        .go();
    timed_out(&ran, &sleep);
    assert!(ran.wall >= Duration::from_millis(800), "killed without grace: {ran}");
}

#[test]
fn setsid_and_double_fork_that_hold_the_pipe() {
    if !stockade_line_tests::have(&["setsid"]) {
        return;
    }
    let (world, sleep) = (world(), unique_sleep());
    let script = format!(
        "trap '' TERM; setsid sh -c '(trap \"\" TERM; (setsid sleep {sleep} &) ; sleep {sleep}) & sleep {sleep}' & \
         (sleep {sleep} &) & echo ready; sleep {sleep}"
    );
    let ran = world.sh(&script).profile("quick").timeout(&millis(500)).go();
    timed_out(&ran, &sleep);
    assert_eq!(ran.out(), "ready\n");
}

#[test]
fn a_stopped_tree() {
    let (world, sleep) = (world(), unique_sleep());
    let script = format!("sleep {sleep} & echo ready; kill -STOP $!; kill -STOP $$; sleep {sleep}");
    let ran = world.sh(&script).profile("quick").timeout(&millis(500)).go();
    timed_out(&ran, &sleep);
}

#[test]
fn a_fork_bomb_at_the_end_of_its_time() {
    let world = world();
    let sleep = unique_sleep();
    let script =
        format!("trap '' TERM; f() {{ sleep {sleep} & f & f & wait; }}; f 2>/dev/null; sleep {sleep}");
    let ran = world.sh(&script).profile("quick").timeout(&millis(700)).go();
    // It may run into the process limit first; nobody may be left either way.
    assert!([123, 124].contains(&ran.code()), "{ran}");
    assert!(settle(&sleep).is_empty());
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
}

#[test]
fn background_children_do_not_hold_the_result() {
    let (world, sleep) = (world(), unique_sleep());
    let script = format!("sleep {sleep} & (sleep {sleep} &) ; echo done");
    let ran = world.sh(&script).profile("quick").go().ends_with(0);
    assert_eq!(ran.out(), "done\n");
    assert!(ran.wall < Duration::from_secs(10) * slowness(), "{ran}");
    assert!(ran.pipes_closed, "{ran}");
    assert_eq!(ran.result().leaked_descendants, 2, "{ran}");
    assert!(find_marked(&sleep).is_empty());
}

#[test]
fn a_background_child_that_holds_the_pipe_in_mode_host() {
    // No PID namespace there: init and the cgroup end the tree.
    let (world, sleep) = (world(), unique_sleep());
    world.profile("open", "extends = \"host\"\n[limits]\ngrace = \"300ms\"\n");
    let script = format!("setsid sh -c 'sleep {sleep} & sleep {sleep}' & (sleep {sleep} &) ; echo done");
    let ran = world.sh(&script).profile("open").go().ends_with(0);
    assert!(ran.wall < Duration::from_secs(10) * slowness(), "{ran}");
    assert!(settle(&sleep).is_empty(), "{ran}");
    let ran = world.sh(&format!("{script}; sleep {sleep}")).profile("open").timeout(&millis(400)).go();
    assert_eq!(ran.code(), 124, "{ran}");
    assert!(settle(&sleep).is_empty(), "{ran}");
}

#[test]
fn the_line_says_how_long_not_the_profile() {
    // Who types the line has the last word, in both directions.
    let (world, sleep) = (world(), unique_sleep());
    world.profile("short", "extends = \"default\"\n[limits]\nwall = \"200ms\"\ngrace = \"200ms\"\n");
    world.line(&["sleep", "0.6"]).profile("short").timeout("50s").go().ends_with(0);
    let ran = world.line(&["sleep", &sleep]).profile("short").go();
    timed_out(&ran, &sleep);
}

#[test]
fn times_that_are_no_times() {
    let world = world();
    for time in ["0", "0s", "0ms", "5", "-1s", "1.5s", "1d", "s", "", "ten seconds", "99999999999999999999h"]
    {
        let ran = world.line(&["touch", "ran"]).flag(&format!("--timeout={time}")).go();
        let refusal = ran.refused(stockade_proto::Code::OptionInvalid);
        assert!(refusal.message.contains("--timeout"), "{ran}");
        assert!(!world.work().join("ran").exists(), "{time}");
    }
    for time in ["59s", "5000ms", "1m", "1h"] {
        world.line(&["true"]).timeout(time).go().ends_with(0);
    }
}
