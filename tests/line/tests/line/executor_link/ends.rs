//! How it ends: by order, with the executor, with the daemon. Nothing stays.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_frames::Stream;
use stockade_line_tests::{
    Execution, Executor, Running, World, cgroup_directories, command_line, descendants, pieces, request,
    settle, slowness, text, unique_sleep, until,
};
use stockade_proto::link::{Shutdown, method};
use stockade_proto::{Cancel, Outcome};
use stockade_rpc::CallError;

use super::with_executor;

/// A tree that ignores what it is asked, with a child in a session of its own, and a grandchild.
fn stubborn(world: &World, executor: &Executor, sleep: &str) -> Execution {
    let script = format!(
        "trap '' TERM INT HUP; setsid sh -c \"trap '' TERM INT HUP; sleep {sleep} & sleep {sleep}\" & \
         echo up; while :; do sleep {sleep}; done"
    );
    let mut asked = request(world, &script);
    asked.profile = "quick".to_owned();
    executor.execute(asked)
}

async fn quick(executor: &Executor) {
    executor.profile("quick", "limits.grace = \"300ms\"\n").await;
}

fn all_asleep(executor: &Running, sleep: &str) -> Vec<PathBuf> {
    until("three sleepers", || {
        let line = format!("sleep {sleep} ");
        let sleeps = |pid: &u32| command_line(*pid) == line;
        (descendants(executor.pid()).iter().filter(|pid| sleeps(pid)).count() == 3).then_some(())
    });
    let mut groups: Vec<PathBuf> =
        descendants(executor.pid()).iter().flat_map(|pid| cgroup_directories(*pid)).collect();
    groups.sort();
    groups.dedup();
    groups.retain(|path| path.display().to_string().contains("stockade-x-"));
    groups
}

#[track_caller]
fn nothing_left(sleep: &str, groups: &[PathBuf]) {
    let left = settle(sleep);
    assert!(left.is_empty(), "left behind: {left:?}");
    for group in groups {
        until("the groups to be gone", || (!group.exists()).then_some(()));
    }
}

#[test]
fn stop_ends_a_tree_that_ignores_it() {
    with_executor(async |world, executor| {
        quick(executor).await;
        let sleep = unique_sleep();
        let execution = stubborn(world, executor, &sleep);
        let id = execution.id.clone();
        let groups = {
            execution.wait_for(Stream::Stdout, "up").await;
            all_asleep(&executor.running, &sleep)
        };
        let stop = json!({ "execution": id, "by": "terminate" });
        let asked = Instant::now();
        for _ in 0..3 {
            // Said again it does not cut the grace short.
            executor.call::<Value>(method::STOP, &stop).await.expect("taken");
        }
        let result = execution.result().await;
        assert_eq!(result.outcome, Outcome::Cancelled { by: Cancel::Terminate }, "{result:?}");
        assert!(asked.elapsed() >= Duration::from_millis(300), "{:?}", asked.elapsed());
        assert!(result.cleanup_faults.is_empty(), "{result:?}");
        assert_eq!(text(&pieces(&world.base().join("outputs").join(&id)), Stream::Stdout), "up\n");
        nothing_left(&sleep, &groups);
    });
}

#[test]
fn an_interrupt_is_the_commands_to_handle() {
    with_executor(async |world, executor| {
        let execution = executor
            .execute(request(world, "trap 'echo caught; exit 7' INT; echo up; while :; do sleep 0.1; done"));
        let (id, output) = (execution.id.clone(), execution.output.clone());
        execution.wait_for(Stream::Stdout, "up").await;
        let stop = json!({ "execution": id, "by": "interrupt" });
        executor.call::<Value>(method::STOP, &stop).await.expect("taken");
        let result = execution.result().await;
        assert_eq!(result.outcome, Outcome::Cancelled { by: Cancel::Interrupt }, "{result:?}");
        assert!(text(&pieces(&output), Stream::Stdout).contains("caught"));
    });
}

#[test]
fn a_killed_executor_leaves_no_process() {
    with_executor(async |world, executor| {
        quick(executor).await;
        let sleep = unique_sleep();
        let execution = stubborn(world, executor, &sleep);
        execution.wait_for(Stream::Stdout, "up").await;
        let groups = all_asleep(&executor.running, &sleep);
        executor.running.signal(Signal::KILL);
        assert_eq!(execution.answer().await, Err(CallError::Closed));
        let left = settle(&sleep);
        assert!(left.is_empty(), "left behind: {left:?}");
        // The next one sweeps what a killed one could not.
        let next = Executor::start(world, Vec::new()).await;
        assert_eq!(next.execute(request(world, "true")).result().await.exit_code, 0);
        nothing_left(&sleep, &groups);
    });
}

#[test]
fn a_closed_link_ends_everything() {
    super::within(async {
        let world = World::new();
        let executor = Executor::start(&world, Vec::new()).await;
        quick(&executor).await;
        let sleep = unique_sleep();
        let execution = stubborn(&world, &executor, &sleep);
        execution.wait_for(Stream::Stdout, "up").await;
        let groups = all_asleep(&executor.running, &sleep);
        // One that is only being made, too.
        let _young = executor.execute(request(&world, &format!("sleep {sleep}")));
        tokio::task::yield_now().await;
        let running = executor.abandon().await;
        assert!(running.ends_within(Duration::from_secs(10) * slowness()), "still there");
        assert_eq!(running.finish().status.code(), Some(0));
        nothing_left(&sleep, &groups);
        assert!(pieces(&execution.output).iter().any(|piece| piece.stream == Stream::End));
    });
}

#[test]
fn shutdown_stops_all_and_answers_them_first() {
    with_executor(async |world, executor| {
        quick(executor).await;
        let sleep = unique_sleep();
        let execution = stubborn(world, executor, &sleep);
        execution.wait_for(Stream::Stdout, "up").await;
        let groups = all_asleep(&executor.running, &sleep);
        let polite = executor.execute(request(world, &format!("echo up; exec sleep {sleep}")));
        polite.wait_for(Stream::Stdout, "up").await;
        executor.call::<Value>(method::SHUTDOWN, &Shutdown { timeout_ms: 10_000 }).await.expect("an answer");
        for execution in [execution, polite] {
            let result = execution.result().await;
            assert_eq!(result.outcome, Outcome::Cancelled { by: Cancel::Terminate }, "{result:?}");
        }
        assert!(executor.running.ends_within(Duration::from_secs(10)));
        nothing_left(&sleep, &groups);
    });
}

#[test]
fn shutdown_does_not_wait_beyond_its_time() {
    with_executor(async |world, executor| {
        // The profile's own grace is longer.
        executor.profile("quick", "limits.grace = \"60s\"\n").await;
        let sleep = unique_sleep();
        let execution = stubborn(world, executor, &sleep);
        execution.wait_for(Stream::Stdout, "up").await;
        let groups = all_asleep(&executor.running, &sleep);
        let asked = Instant::now();
        executor.call::<Value>(method::SHUTDOWN, &Shutdown { timeout_ms: 200 }).await.expect("an answer");
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        assert_eq!(execution.result().await.outcome, Outcome::Cancelled { by: Cancel::Terminate });
        assert!(executor.running.ends_within(Duration::from_secs(10)));
        nothing_left(&sleep, &groups);
    });
}

#[test]
fn of_signals_only_terminate_ends_it() {
    with_executor(async |world, executor| {
        let execution = executor.execute(request(world, "echo up; sleep 1000"));
        execution.wait_for(Stream::Stdout, "up").await;
        for signal in [Signal::INT, Signal::HUP, Signal::QUIT, Signal::PIPE] {
            executor.running.signal(signal);
        }
        executor.call::<Value>(method::PING, &json!({})).await.expect("a pong");
        executor.running.signal(Signal::TERM);
        let result = execution.result().await;
        assert_eq!(result.outcome, Outcome::Cancelled { by: Cancel::Terminate }, "{result:?}");
        assert!(executor.running.ends_within(Duration::from_secs(10)));
    });
}
