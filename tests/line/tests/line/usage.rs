//! RUN-8: what it used, what leaked, what was enforced: numbers that can be true.

use stockade_line_tests::{World, skip, unique_sleep};
use stockade_proto::{Layer, Outcome, State};

#[test]
fn wall_and_cpu_time() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.3";
    let ran = world.sh(script).go().ends_with(0);
    let usage = ran.result().usage;
    assert!(usage.wall_ms >= 300, "{ran}");
    assert!(u128::from(usage.wall_ms) <= ran.wall.as_millis(), "{ran}");
    let cpu = usage.cpu_user_ms + usage.cpu_system_ms;
    assert!(cpu >= 20, "a loop of 300,000 steps for {cpu} ms: {ran}");
    // One core: CPU time can't be more than the wall clock.
    assert!(cpu <= usage.wall_ms + 200, "{ran}");
}

#[test]
fn an_idle_command_uses_little() {
    let world = World::new();
    let ran = world.line(&["sleep", "0.5"]).go().ends_with(0);
    let usage = ran.result().usage;
    let cpu = usage.cpu_user_ms + usage.cpu_system_ms;
    assert!(cpu < 300 * u64::from(stockade_line_tests::slowness()), "{ran}");
    assert!((500..10_000 * u64::from(stockade_line_tests::slowness())).contains(&usage.wall_ms), "{ran}");
}

#[test]
fn peak_memory() {
    let world = World::new();
    let ran = world.sh("head -c 100000000 /dev/zero | tail | wc -c").go().ends_with(0);
    let peak = ran.result().usage.memory_peak_bytes;
    assert!((80_000_000..400_000_000).contains(&peak), "{peak}: {ran}");
    let ran = world.line(&["true"]).go().ends_with(0);
    let peak = ran.result().usage.memory_peak_bytes;
    assert!((1..50_000_000).contains(&peak), "{peak}: {ran}");
}

#[test]
fn leaked_descendants_are_counted() {
    let world = World::new();
    let sleep = unique_sleep();
    for (count, script) in [
        (0, "sleep 0.01 & wait".to_owned()),
        (1, format!("sleep {sleep} &")),
        (3, format!("sleep {sleep} & sleep {sleep} & (sleep {sleep} &)")),
    ] {
        let ran = world.sh(&script).go().ends_with(0);
        assert_eq!(ran.result().leaked_descendants, count, "{ran}");
        assert_eq!(ran.err(), "", "only a person at a terminal is told: {ran}");
    }
}

#[test]
fn enforcement_says_how() {
    let world = World::new();
    let result = world.line(&["true"]).go().ends_with(0).result();
    for (layer, word) in [
        (Layer::Filesystem, "mount namespace"),
        (Layer::Landlock, "Landlock ABI"),
        (Layer::Process, "no_new_privs"),
        (Layer::Network, "network namespace"),
        (Layer::Seccomp, "filter"),
        (Layer::Limits, "cgroup v"),
    ] {
        let one = result.enforcement.iter().find(|one| one.layer == layer).expect("each layer");
        assert_eq!(one.state, State::Enforced, "{one:?}");
        assert!(one.detail.contains(word), "{one:?}");
    }
}

#[test]
fn a_layer_that_a_person_turned_off_is_off_in_the_result() {
    let world = World::new();
    world.profile(
        "some",
        "extends = \"default\"\nnetwork = \"inherit\"\n[layers]\nseccomp = \"off\"\nsockets = \"off\"\n",
    );
    let result = world.line(&["true"]).profile("some").go().ends_with(0).result();
    for one in &result.enforcement {
        let expected = match one.layer {
            Layer::Network | Layer::Seccomp | Layer::Sockets => State::Off,
            Layer::Filesystem | Layer::Landlock | Layer::Process | Layer::Limits => State::Enforced,
        };
        assert_eq!(one.state, expected, "{one:?}");
    }
}

#[test]
fn mode_host_has_no_walls_and_says_so() {
    let world = World::new();
    let ran = world.sh("cat ../beside 2>&1; exit 4").profile("host").go();
    let result = ran.result();
    assert_eq!(result.outcome, Outcome::Exited { code: 4 }, "{ran}");
    for one in &result.enforcement {
        if one.layer == Layer::Limits {
            assert_ne!(one.state, State::Missing, "{one:?}");
        } else {
            assert_eq!(one.state, State::Off, "{one:?}");
        }
    }
    if result.enforcement.len() != Layer::ALL.len() {
        skip("a layer is not listed");
    }
}
