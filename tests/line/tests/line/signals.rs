//! Signals to `stockade run`: stop, grace, kill, and the code a shell expects.

use std::time::Duration;

use rustix::process::Signal;
use stockade_line_tests::{Running, World, await_process, settle, slowness, unique_sleep};
use stockade_proto::{Cancel, Outcome};

fn world(grace: &str) -> World {
    let world = World::new();
    world.profile("graced", &format!("extends = \"default\"\n[limits]\ngrace = \"{grace}\"\n"));
    world
}

/// Under way, its `sleep` too: there is somebody to be polite to.
fn start(world: &World, sleep: &str, script: &str) -> Running {
    let running = world.sh(script).profile("graced").start();
    running.wait_out("ready\n");
    await_process(&format!("sleep {sleep}"));
    running
}

#[test]
fn each_is_forwarded_and_has_its_code() {
    let world = world("20s");
    for (signal, name, code, by) in [
        (Signal::INT, "INT", 130, Cancel::Interrupt),
        (Signal::TERM, "TERM", 143, Cancel::Terminate),
        (Signal::HUP, "HUP", 129, Cancel::Hangup),
    ] {
        let sleep = unique_sleep();
        let script = format!("trap 'echo got {name}; exit 9' {name}; echo ready; sleep {sleep} & wait");
        let running = start(&world, &sleep, &script);
        running.signal(signal);
        let ran = running.finish().ends_with(code);
        assert_eq!(ran.out(), format!("ready\ngot {name}\n"), "{ran}");
        assert_eq!(ran.result().outcome, Outcome::Cancelled { by }, "{ran}");
        assert!(settle(&sleep).is_empty());
    }
}

#[test]
fn a_signal_right_after_the_first_output_is_polite_too() {
    // What has written something is running, whether its init has said so yet or not.
    let world = world("20s");
    for _ in 0..20 {
        let running = world
            .sh("trap 'echo polite; exit 9' TERM; echo ready; while :; do sleep 0.01; done")
            .profile("graced")
            .start();
        running.wait_out("ready\n");
        running.signal(Signal::TERM);
        let ran = running.finish().ends_with(143);
        assert_eq!(ran.out(), "ready\npolite\n", "killed without being asked: {ran}");
    }
}

#[test]
fn quit_stops_it_as_well() {
    let (world, sleep) = (world("20s"), unique_sleep());
    let running = start(&world, &sleep, &format!("echo ready; sleep {sleep}"));
    running.signal(Signal::QUIT);
    let ran = running.finish();
    assert!([130, 131].contains(&ran.code()), "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn once_asks_twice_kills() {
    let (world, sleep) = (world("10m"), unique_sleep());
    let script = format!("trap 'echo ignored' INT TERM; echo ready; sleep {sleep} & while :; do wait; done");
    let running = start(&world, &sleep, &script);
    running.signal(Signal::INT);
    running.wait_out("ignored");
    running.signal(Signal::INT);
    assert!(running.ends_within(Duration::from_secs(10)), "the second one did not kill it");
    let ran = running.finish().ends_with(130);
    assert_eq!(ran.result().outcome, Outcome::Cancelled { by: Cancel::Interrupt }, "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn the_grace_ends() {
    let (world, sleep) = (world("300ms"), unique_sleep());
    let running = start(&world, &sleep, &format!("trap '' TERM; echo ready; sleep {sleep}"));
    running.signal(Signal::TERM);
    let ran = running.finish().ends_with(143);
    assert!(ran.wall < Duration::from_secs(10) * slowness(), "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn the_whole_tree_is_asked() {
    let (world, sleep) = (world("20s"), unique_sleep());
    let script = format!(
        "trap 'wait; exit' TERM; (trap 'echo child; exit' TERM; echo ready; sleep {sleep} & wait) & wait"
    );
    let running = start(&world, &sleep, &script);
    running.signal(Signal::TERM);
    let ran = running.finish().ends_with(143);
    assert_eq!(ran.out(), "ready\nchild\n", "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn signals_that_are_not_for_it() {
    // SIGPIPE, SIGUSR1, SIGWINCH, SIGCONT to `stockade`: a terminal's resize must not end an execution.
    let world = world("1s");
    let mut running = world.sh("echo ready; read line; echo end").flag("--stdin").input_open().start();
    running.wait_out("ready\n");
    for signal in [Signal::PIPE, Signal::WINCH, Signal::CONT, Signal::URG, Signal::CHILD] {
        running.signal(signal);
    }
    running.close_stdin();
    let ran = running.finish().ends_with(0);
    assert_eq!(ran.out(), "ready\nend\n", "{ran}");
}

#[test]
fn ignored_signals_of_the_caller_are_not_inherited_by_the_command() {
    // `nohup`, and shells that start background jobs with SIGINT ignored.
    let (world, sleep) = (world("1s"), unique_sleep());
    let ran = world
        .sh("grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t'; kill -INT $$; echo survived")
        .before(&["/bin/sh", "-c", "trap '' INT QUIT PIPE USR1; exec \"$@\"", "sh"])
        .go();
    assert!(ran.out().contains("SigBlk:0000000000000000"), "{ran}");
    assert!(ran.out().contains("SigIgn:0000000000000000"), "{ran}");
    assert!(!ran.out().contains("survived"), "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn a_cancelled_result_has_everything_in_it() {
    let (world, sleep) = (world("1s"), unique_sleep());
    let running = start(&world, &sleep, &format!("echo ready; echo more >&2; sleep {sleep}"));
    running.signal(Signal::TERM);
    let ran = running.finish().ends_with(143);
    let result = ran.result();
    assert_eq!((result.stdout.bytes, result.exit_code), (6, 143), "{ran}");
    assert_eq!(result.enforcement.len(), 7, "{ran}");
}
