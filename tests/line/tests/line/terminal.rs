//! BOX-6: the caller's terminal is not the command's; Ctrl-C at it stops the execution.

use std::io::Write as _;
use std::time::Duration;

use stockade_line_tests::{World, await_process, have, read_until, settle, terminal, unique_sleep};

/// Starts a session whose terminal is stdin.
const IN_SESSION: [&str; 4] = ["setsid", "--ctty", "--wait", "--fork"];

#[test]
fn no_controlling_terminal_inside() {
    if !have(&["setsid"]) {
        return;
    }
    let world = World::new();
    let (_master, slave) = terminal();
    let script = "(: < /dev/tty) 2>/dev/null && echo has a terminal; cut -d' ' -f5-8 /proc/self/stat; \
                  for i in 0 1 2; do test -t $i && echo $i is a terminal; done; ls /dev/pts; exit 0";
    let ran = world.sh(script).before(&IN_SESSION).input_from(slave).go().ends_with(0);
    assert!(!ran.out().contains("terminal"), "{ran}");
    // pgrp, session, tty_nr, tpgid: no terminal, no foreground group.
    let first = ran.out().lines().next().map(str::to_owned).unwrap_or_default();
    assert!(first.ends_with(" 0 -1"), "{ran}");
    // Its own devpts: the caller's terminal has no name here.
    assert!(ran.out().lines().skip(1).all(|name| name == "ptmx"), "{ran}");
}

#[test]
fn a_terminal_as_all_three() {
    if !have(&["setsid"]) {
        return;
    }
    let world = World::new();
    let (mut master, slave) = terminal();
    let copies = [slave.try_clone().expect("a copy"), slave.try_clone().expect("a copy")];
    let [out, err] = copies;
    let running = world
        .sh("for i in 0 1 2; do test -t $i && echo $i is a terminal; done; stty 2>/dev/null && echo stty; echo end")
        .before(&IN_SESSION)
        .input_from(slave)
        .stdout_to(out)
        .stderr_to(err)
        .start();
    let shown = read_until(&mut master, "end");
    assert!(!shown.contains("is a terminal") && !shown.contains("stty"), "{shown}");
    drop(master);
    drop(running.finish());
}

#[test]
fn ctrl_c_stops_it() {
    if !have(&["setsid"]) {
        return;
    }
    let (world, sleep) = (World::new(), unique_sleep());
    let (mut master, slave) = terminal();
    let out = slave.try_clone().expect("a copy");
    let running = world
        .sh(&format!("trap 'echo stopping; exit 1' INT; echo ready; sleep {sleep} & wait"))
        .before(&IN_SESSION)
        .input_from(slave)
        .stdout_to(out)
        .start();
    read_until(&mut master, "ready");
    await_process(&format!("sleep {sleep}"));
    master.write_all(b"\x03").expect("a key");
    let shown = read_until(&mut master, "stopping");
    assert!(shown.contains("stopping"), "{shown}");
    assert!(running.ends_within(Duration::from_secs(20)));
    assert_eq!(running.finish().code(), 130);
    assert!(settle(&sleep).is_empty());
}

#[test]
fn a_terminal_that_hangs_up_ends_it() {
    if !have(&["setsid"]) {
        return;
    }
    let (world, sleep) = (World::new(), unique_sleep());
    world.profile("quick", "extends = \"default\"\n[limits]\ngrace = \"200ms\"\n");
    let (mut master, slave) = terminal();
    let out = slave.try_clone().expect("a copy");
    let running = world
        .sh(&format!("echo ready; sleep {sleep}"))
        .profile("quick")
        .before(&IN_SESSION)
        .input_from(slave)
        .stdout_to(out)
        .start();
    read_until(&mut master, "ready");
    drop(master);
    assert!(settle(&sleep).is_empty());
    drop(running.finish());
}

#[test]
fn colours_only_for_terminals() {
    let world = World::new();
    let ran = world.line(&["true"]).profile("no-such").go();
    assert!(!ran.stderr.contains(&0x1b), "{ran}");
    let ran = world.line(&["true"]).timeout("nonsense").go();
    assert!(!ran.stderr.contains(&0x1b), "{ran}");
}
