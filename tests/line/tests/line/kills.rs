//! RUN-7, and the "nothing stays behind in any case": SIGKILL to each process in turn, the caller's death.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use stockade_line_tests::{
    Line, Running, World, cgroup_directories, children, command_line, descendants, find_marked, kill,
    kill_marked, settle, unique_sleep, until,
};
use stockade_proto::Outcome;

/// Started, with a command that sleeps and a child of it; the cgroups of the whole tree.
fn sleeping(world: &World, sleep: &str) -> (Running, Vec<PathBuf>) {
    let running = world.sh(&format!("sleep {sleep} & echo ready; sleep {sleep}")).start();
    running.wait_out("ready\n");
    let line = format!("sleep {sleep}");
    // The second one is started after the word.
    until("both sleepers", || {
        let sleeps = |pid: &u32| command_line(*pid).starts_with(&line);
        (descendants(running.pid()).iter().filter(|pid| sleeps(pid)).count() == 2).then_some(())
    });
    let groups = groups(&running);
    (running, groups)
}

fn groups(running: &Running) -> Vec<PathBuf> {
    let mut groups: Vec<PathBuf> =
        descendants(running.pid()).iter().flat_map(|pid| cgroup_directories(*pid)).collect();
    groups.sort();
    groups.dedup();
    groups.retain(|path| path.display().to_string().contains("stockade-x-"));
    groups
}

#[track_caller]
fn nothing_left(world: &World, sleep: &str, groups: &[PathBuf]) {
    let left = settle(sleep);
    assert!(left.is_empty(), "left behind: {left:?}");
    // The next start sweeps.
    let ran = world.line(&["true"]).go().ends_with(0);
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
    for group in groups {
        assert!(!group.exists(), "{} was left behind", group.display());
    }
    let entries: Vec<_> = std::fs::read_dir(world.work())
        .expect("the workspace")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(entries.is_empty(), "left in the workspace: {entries:?}");
}

#[test]
fn nothing_is_left_of_an_ordinary_end() {
    let world = World::new();
    let mut running = world.sh("echo ready; read line").flag("--stdin").input_open().start();
    running.wait_out("ready");
    let groups = groups(&running);
    assert!(!groups.is_empty(), "no cgroup named stockade-x-* was seen");
    running.close_stdin();
    let ran = running.finish();
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
    for group in groups {
        assert!(!group.exists(), "{} was left behind", group.display());
    }
    assert!(std::fs::read_dir(world.work()).expect("the workspace").next().is_none());
}

#[test]
fn sigkill_to_stockade() {
    let (world, sleep) = (World::new(), unique_sleep());
    let (running, groups) = sleeping(&world, &sleep);
    running.signal(Signal::KILL);
    let ran = running.finish();
    assert!(ran.status.code().is_none());
    nothing_left(&world, &sleep, &groups);
}

#[test]
fn sigkill_to_stockade_while_init_is_stopped() {
    // A stopped init can't notice that its socket closed: the kernel must end it.
    let (world, sleep) = (World::new(), unique_sleep());
    let (running, groups) = sleeping(&world, &sleep);
    let inits = children(running.pid());
    assert!(!inits.is_empty());
    for init in inits {
        kill(init, Signal::STOP);
    }
    running.signal(Signal::KILL);
    drop(running.finish());
    nothing_left(&world, &sleep, &groups);
}

#[test]
fn sigkill_to_init() {
    let (world, sleep) = (World::new(), unique_sleep());
    let (running, groups) = sleeping(&world, &sleep);
    let inits = children(running.pid());
    assert!(!inits.is_empty());
    for init in inits {
        kill(init, Signal::KILL);
    }
    let ran = running.finish();
    assert_eq!(ran.code(), 121, "{ran}");
    let Outcome::Lost { message } = ran.result().outcome else { panic!("{ran}") };
    assert!(message.contains("init was killed by signal 9"), "{ran}");
    assert!(ran.err().contains(&message), "{ran}");
    nothing_left(&world, &sleep, &groups);
}

#[test]
fn sigkill_to_the_command() {
    let (world, sleep) = (World::new(), unique_sleep());
    let (running, groups) = sleeping(&world, &sleep);
    let shell = descendants(running.pid())
        .into_iter()
        .find(|pid| command_line(*pid).starts_with("sh -c"))
        .expect("the command");
    kill(shell, Signal::KILL);
    let ran = running.finish().ends_with(137);
    assert_eq!(ran.result().outcome, Outcome::Signaled { signal: 9 }, "{ran}");
    assert_eq!(ran.result().leaked_descendants, 2, "{ran}");
    nothing_left(&world, &sleep, &groups);
}

#[test]
fn sigkill_to_a_stopped_stockade() {
    let (world, sleep) = (World::new(), unique_sleep());
    let (running, groups) = sleeping(&world, &sleep);
    running.signal(Signal::STOP);
    running.signal(Signal::KILL);
    drop(running.finish());
    nothing_left(&world, &sleep, &groups);
}

#[test]
fn sigkill_at_any_moment_of_the_start() {
    let (world, sleep) = (World::new(), unique_sleep());
    let mut groups = Vec::new();
    for step in 0..12u32 {
        let running = world.line(&["sleep", &sleep]).start();
        // Not a wait for something: a sweep over the moments of the start.
        std::thread::sleep(Duration::from_micros(1500) * step);
        groups.extend(self::groups(&running));
        running.signal(Signal::KILL);
        drop(running.finish());
    }
    nothing_left(&world, &sleep, &groups);
}

const OPEN: &str = "extends = \"host\"\n[limits]\ngrace = \"200ms\"\n";

/// No walls, no PID namespace: children that left their session, and their parents.
fn sleeping_on_the_host(world: &World, sleep: &str) -> Running {
    world.profile("open", OPEN);
    let script = format!(
        "(setsid sleep {sleep} &); setsid sh -c 'trap \"\" TERM HUP; sleep {sleep} & wait' & sleep {sleep} & \
         echo ready; wait"
    );
    let running = world.sh(&script).profile("open").start();
    running.wait_out("ready\n");
    until("three sleepers", || {
        let line = format!("sleep {sleep}");
        let there =
            find_marked(sleep).into_iter().filter(|pid| command_line(*pid).trim_end() == line).count();
        (there == 3).then_some(())
    });
    running
}

#[test]
fn sigkill_to_stockade_in_mode_host() {
    let (world, sleep) = (World::new(), unique_sleep());
    let running = sleeping_on_the_host(&world, &sleep);
    running.signal(Signal::KILL);
    drop(running.finish());
    nothing_left(&world, &sleep, &[]);
}

#[test]
fn sigkill_to_init_in_mode_host() {
    let (world, sleep) = (World::new(), unique_sleep());
    let running = sleeping_on_the_host(&world, &sleep);
    for init in children(running.pid()) {
        kill(init, Signal::KILL);
    }
    let ran = running.finish();
    let limits = ran.result().enforcement.into_iter().find(|one| one.layer == stockade_proto::Layer::Limits);
    if limits.is_none_or(|one| one.state != stockade_proto::State::Enforced) {
        kill_marked(&sleep);
        return stockade_line_tests::skip("without a cgroup nobody can find the children of a dead init");
    }
    assert_eq!(ran.code(), 121, "{ran}");
    nothing_left(&world, &sleep, &[]);
}

/// A shell between the test and `stockade`, which writes its own pid.
fn under_shell(line: &Line<'_>) -> Running {
    let inner = line.command();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "\"$@\"; :", "sh"]).arg(inner.get_program()).args(inner.get_args());
    shell.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = inner.get_current_dir() {
        shell.current_dir(directory);
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(shell, None)
}

#[test]
fn the_death_of_its_parent_ends_it() {
    let (world, sleep) = (World::new(), unique_sleep());
    world.profile("quick", "extends = \"default\"\n[limits]\ngrace = \"200ms\"\n");
    let json = world.base().join("orphan.json");
    let line =
        world.sh(&format!("echo ready; sleep {sleep}")).profile("quick").no_json().option("--json", &json);
    let running = under_shell(&line);
    running.wait_out("ready\n");
    running.signal(Signal::KILL);
    drop(running.finish());
    assert!(settle(&sleep).is_empty());
    let text = until("the result", || std::fs::read(&json).ok().filter(|text| text.ends_with(b"\n")));
    let value: serde_json::Value = serde_json::from_slice(&text).expect("a result");
    assert_eq!(value["outcome"], serde_json::json!({"kind": "cancelled", "by": "hangup"}));
    nothing_left(&world, &sleep, &[]);
}

#[test]
fn allow_orphan_lives_on() {
    let world = World::new();
    let sleep = unique_sleep();
    let json = world.base().join("orphan.json");
    let line = world
        .sh(&format!("echo ready; while [ ! -e go ]; do sleep 0.05; done; echo {sleep} > made"))
        .flag("--allow-orphan")
        .no_json()
        .option("--json", &json);
    let running = under_shell(&line);
    running.wait_out("ready\n");
    running.signal(Signal::KILL);
    let stockade: Vec<u32> = find_marked(&sleep);
    drop(running);
    assert!(!stockade.is_empty());
    std::fs::write(world.work().join("go"), "").expect("the sign");
    let text = until("the result", || std::fs::read(&json).ok().filter(|text| text.ends_with(b"\n")));
    let value: serde_json::Value = serde_json::from_slice(&text).expect("a result");
    assert_eq!(value["outcome"], serde_json::json!({"kind": "exited", "code": 0}), "{value}");
    assert_eq!(world.read("work/made"), format!("{sleep}\n"));
    kill_marked(&sleep);
}

#[test]
fn a_parent_that_was_gone_before_it_started() {
    // `sh -c 'stockade run ... &'`: the shell ends at once. It must end too, or finish, but not hang.
    let (world, sleep) = (World::new(), unique_sleep());
    world.profile("quick", "extends = \"default\"\n[limits]\ngrace = \"200ms\"\n");
    let ran = world
        .line(&["sleep", &sleep])
        .profile("quick")
        .timeout("2s")
        .no_json()
        .before(&["/bin/sh", "-c", "\"$@\" >/dev/null 2>&1 & exit 0", "sh"])
        .go();
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(settle(&sleep).is_empty());
}
