//! SIGKILL to each process of an execution in turn: nothing stays behind, and who is left tells of it.

use rustix::process::{Pid, Signal, kill_process};
use stockade_escape_tests::{
    Sandbox, cgroup_directories, descendants, find_marked, kill_marked, orphaned_inits, settle,
};

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    let _gone_already = kill_process(pid, Signal::KILL);
}

#[test]
fn stockade_itself() {
    let sandbox = Sandbox::new();
    let running = sandbox.start_attack("spread 3 walrus-top");
    running.wait_line("READY");
    let tree = descendants(running.pid());
    assert!(tree.len() >= 2, "{tree:?}");
    let groups: Vec<_> = tree.iter().flat_map(|pid| cgroup_directories(*pid)).collect();
    running.signal(Signal::KILL);
    running.reap();
    let left = settle("walrus-top");
    assert!(left.is_empty(), "left behind: {left:?}");
    assert!(orphaned_inits().is_empty());
    // The next start sweeps the groups.
    assert_eq!(sandbox.run(&["true"]).code(), 0);
    for group in groups {
        assert!(!group.exists(), "{} was left behind", group.display());
    }
}

#[test]
fn every_other_process_of_the_tree() {
    let sandbox = Sandbox::new();
    let mut depth = 0;
    // The tree has the same shape each time: stockade, init (and whatever stands between), the command.
    loop {
        let running = sandbox.start_attack("hold walrus-each");
        running.wait_line("READY");
        let tree = descendants(running.pid());
        let Some(target) = tree.get(depth) else {
            running.signal(Signal::KILL);
            running.reap();
            break;
        };
        let groups: Vec<_> = tree.iter().flat_map(|pid| cgroup_directories(*pid)).collect();
        kill(*target);
        let ran = running.finish();
        assert_ne!(ran.code(), 0, "process {depth} of {tree:?}: {ran}");
        assert!(ran.result.is_some(), "no result after the kill of process {depth} of {tree:?}: {ran}");
        assert!(find_marked("walrus-each").is_empty(), "process {depth} of {tree:?}: left behind");
        for group in groups {
            assert!(!group.exists(), "process {depth}: {} was left behind", group.display());
        }
        depth += 1;
    }
    assert!(depth >= 2, "an init and a command were expected, {depth} were killed");
    assert!(settle("walrus-each").is_empty());
}

#[test]
fn the_callers_own_parent() {
    // `stockade` dies cleanly when who started it is gone: here a shell that is killed.
    let sandbox = Sandbox::new();
    let running = sandbox.start_under_shell("hold walrus-orphan");
    running.wait_line("READY");
    running.signal(Signal::KILL);
    running.reap();
    let left = settle("walrus-orphan");
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn host_mode_is_swept_at_the_next_start() {
    // No PID namespace takes the tree along; its cgroup names it for the next start.
    let sandbox = Sandbox::new();
    let attack = sandbox.workspace().join("attack").display().to_string();
    let running = sandbox.start_cli(&[
        "run",
        "--profile",
        "host",
        "--",
        &attack,
        "spread",
        "2",
        "walrus-spread-on-host",
    ]);
    running.wait_line("READY");
    running.signal(Signal::KILL);
    running.reap();
    let ran = sandbox.cli(&["run", "--profile", "host", "--", "true"]);
    let left = find_marked("walrus-spread-on-host");
    kill_marked("walrus-spread-on-host");
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(left.is_empty(), "left behind: {left:?}");
}
