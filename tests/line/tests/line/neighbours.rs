//! Several executions in one workspace: what protects it lasts until the last of them ends, and then is gone.

use rustix::process::Signal;
use stockade_line_tests::{Line, Ran, Running, World, settle, unique_sleep};

/// Waits for a sign, then tries what its walls forbid.
const ATTEMPT: &str = "echo ready; while [ ! -e go ]; do sleep 0.02; done; mkdir .stockade; \
                       echo 'fs = \"inherit\"' > .stockade/default.toml; mkdir -p .git/hooks; echo evil > .git/hooks/post-commit; exit 0";

/// A workspace with a repository that has no hooks yet.
fn world() -> World {
    let world = World::new();
    world.plant("work/.git/HEAD", "ref: refs/heads/main\n");
    world.plant("work/.git/config", "[core]\n\tbare = false\n");
    for name in ["objects", "refs"] {
        std::fs::create_dir(world.work().join(".git").join(name)).expect("a fresh directory");
    }
    world
}

fn ready(line: Line<'_>) -> Running {
    let running = line.start();
    running.wait_out("ready\n");
    running
}

#[track_caller]
fn held(world: &World, ran: &Ran) {
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
    assert!(!world.work().join(".stockade/default.toml").exists(), "a profile was planted: {ran}");
    assert!(!world.work().join(".git/hooks/post-commit").exists(), "a hook was planted: {ran}");
    for name in [".stockade", ".git/hooks"] {
        assert!(!world.work().join(name).exists(), "a placeholder was left: {name}: {ran}");
    }
}

fn waiting(world: &World) -> Running {
    ready(world.sh("echo ready; read line; exit 0").flag("--stdin").input_open())
}

#[test]
fn the_first_to_start_ends_first() {
    let world = world();
    let mut first = waiting(&world);
    let second = ready(world.sh(ATTEMPT));
    first.close_stdin();
    first.finish().ends_with(0);
    world.plant("work/go", "");
    held(&world, &second.finish());
}

#[test]
fn the_first_to_start_ends_last() {
    let world = world();
    let first = ready(world.sh(ATTEMPT));
    world.line(&["true"]).go().ends_with(0);
    world.plant("work/go", "");
    held(&world, &first.finish());
}

#[test]
fn one_is_killed_and_the_next_one_sweeps() {
    let world = world();
    let first = waiting(&world);
    let second = ready(world.sh(ATTEMPT));
    first.signal(Signal::KILL);
    drop(first.finish());
    world.line(&["true"]).go().ends_with(0);
    world.plant("work/go", "");
    held(&world, &second.finish());
}

#[test]
fn their_callers_have_different_runtime_directories() {
    let world = world();
    let runtime = world.base().join("run");
    std::fs::create_dir(&runtime).expect("a fresh directory");
    if std::env::var_os("XDG_RUNTIME_DIR").is_some() && !stockade_line_tests::am_root() {
        return stockade_line_tests::skip("this user's own systemd is behind its runtime directory");
    }
    let mut first = ready(
        world
            .sh("echo ready; read line; exit 0")
            .flag("--stdin")
            .input_open()
            .caller_env("XDG_RUNTIME_DIR", &runtime),
    );
    let second = ready(world.sh(ATTEMPT));
    first.close_stdin();
    first.finish().ends_with(0);
    world.plant("work/go", "");
    held(&world, &second.finish());
}

#[test]
fn what_was_there_before_stays() {
    let world = World::new();
    std::fs::create_dir(world.work().join(".stockade")).expect("a fresh directory");
    world.line(&["true"]).go().ends_with(0);
    assert!(world.work().join(".stockade").exists(), "an empty directory of the user's own was removed");
}

#[test]
fn one_does_not_see_the_other() {
    let (world, sleep) = (World::new(), unique_sleep());
    let first = ready(world.sh(&format!("echo x > /tmp/mine; echo ready; sleep {sleep}")));
    let ran = world.sh("ls -A /tmp; cat /proc/*/cmdline | tr '\\0' ' '").go().ends_with(0);
    assert!(!ran.out().contains("mine") && !ran.out().contains(&sleep), "{ran}");
    first.signal(Signal::TERM);
    drop(first.finish());
    assert!(settle(&sleep).is_empty());
}
