//! Sandboxes that wait for the next request: each is used once, by a request that fits, and holds nothing of the one
//! before.

use stockade_frames::Stream;
use stockade_line_tests::{Executor, World, descendants, pieces, request, text, until};
use stockade_proto::{Outcome, Request, Stdin};

use super::with_executor;

/// The one process that is left when nothing runs.
fn spare(executor: &Executor) -> u32 {
    until("one spare", || match descendants(executor.running.pid()).as_slice() {
        [one] => Some(*one),
        _ => None,
    })
}

/// Another one than this, which may take a moment to go.
fn another(executor: &Executor, than: u32) {
    until("another spare", || match descendants(executor.running.pid()).as_slice() {
        [one] if *one != than => Some(()),
        _ => None,
    });
}

async fn says(executor: &Executor, request: Request) -> String {
    let execution = executor.execute(request);
    let output = execution.output.clone();
    let result = execution.result().await;
    assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{result:?}");
    assert!(result.cleanup_faults.is_empty(), "{result:?}");
    text(&pieces(&output), Stream::Stdout)
}

#[test]
fn a_spare_is_used_once_and_holds_nothing_of_the_one_before() {
    with_executor(async |world, executor| {
        let leave = "echo x > /tmp/left; echo x > /dev/shm/left; (sleep 1000 &) ; echo $$";
        let first = says(executor, request(world, leave)).await;
        let waiting = spare(executor);
        let look = "ls -A /tmp /dev/shm | grep left; ps -e | grep -c sleep; echo $$";
        let second = says(executor, request(world, look)).await;
        assert_eq!(second.lines().next(), Some("0"), "{second}");
        // The same place in the same order: a process of a namespace of its own.
        assert_eq!(first.lines().last(), second.lines().last());
        another(executor, waiting);
    });
}

#[test]
fn a_spare_serves_another_workspace_and_another_deadline() {
    with_executor(async |world, executor| {
        says(executor, request(world, "pwd")).await;
        let waiting = spare(executor);
        let other = World::new();
        let asked = Request { timeout_ms: Some(54_321), ..request(&other, "pwd; ls") };
        std::fs::write(other.work().join("only-here"), b"").expect("a file");
        let said = says(executor, asked).await;
        assert_eq!(said, format!("{}\nonly-here\n", other.work().display()));
        another(executor, waiting);
    });
}

#[test]
fn what_does_not_fit_gets_a_sandbox_of_its_own() {
    with_executor(async |world, executor| {
        says(executor, request(world, "true")).await;
        let waiting = spare(executor);
        let piped = Request { stdin: Stdin::Piped, ..request(world, "true") };
        says(executor, piped).await;
        until("the other spare to be let go", || {
            (!descendants(executor.running.pid()).contains(&waiting)).then_some(())
        });
        executor.profile("small", "extends = \"default\"\n[limits]\nmemory = \"64M\"\n").await;
        let small =
            Request { profile: "small".to_owned(), ..request(world, "cat /proc/self/limits >/dev/null") };
        says(executor, small).await;
    });
}

/// A spare whose init was killed is not what a request gets.
#[test]
fn a_dead_spare_is_not_used() {
    with_executor(async |world, executor| {
        says(executor, request(world, "true")).await;
        let waiting = spare(executor);
        let pid = rustix::process::Pid::from_raw(i32::try_from(waiting).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("ours");
        until("its death", || (!descendants(executor.running.pid()).contains(&waiting)).then_some(()));
        assert_eq!(says(executor, request(world, "echo alive")).await, "alive\n");
    });
}
