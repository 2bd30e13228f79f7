//! Sandboxes that wait for the next request: each is used once, by a request that fits, and holds nothing of the one
//! before.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use stockade_frames::Stream;
use stockade_line_tests::{Executor, World, descendants, inits, pieces, request, skip, text, until};
use stockade_proto::{Outcome, Request, Stdin};

use super::with_executor;

/// The one sandbox that is left when nothing runs.
fn spare(executor: &Executor) -> u32 {
    until("one spare", || match inits(executor.running.pid()).as_slice() {
        [one] => Some(*one),
        _ => None,
    })
}

/// As `says`, in the sandbox that waits, or again if another was quicker: one that is seen may not be on the list yet.
async fn says_in(waiting: u32, executor: &Executor, request: Request) -> String {
    for _ in 0..10 {
        let said = says(executor, request.clone()).await;
        if spare(executor) != waiting {
            return said;
        }
    }
    panic!("the spare is not used");
}

pub(super) async fn says(executor: &Executor, request: Request) -> String {
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
        let second = says_in(waiting, executor, request(world, look)).await;
        assert_eq!(second.lines().next(), Some("0"), "{second}");
        // The same place in the same order: a process of a namespace of its own.
        assert_eq!(first.lines().last(), second.lines().last());
    });
}

/// Whoever asks next need not wait for the end of this one, nor for what comes after it.
#[test]
fn the_next_one_is_made_while_a_command_runs() {
    with_executor(async |world, executor| {
        let running = executor.execute(request(world, "echo on; until [ -e go ]; do sleep 0.05; done"));
        running.wait_for(Stream::Stdout, "on").await;
        until("a spare beside it", || (inits(executor.running.pid()).len() == 2).then_some(()));
        while executor.started(&running.id).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::write(world.work().join("go"), b"").expect("a file");
        let result = running.result().await;
        assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{result:?}");
        spare(executor);
    });
}

/// The mount namespaces that the executor has descriptors of.
fn held(executor: &Executor) -> HashSet<std::path::PathBuf> {
    let links = std::fs::read_dir(format!("/proc/{}/fd", executor.running.pid())).expect("there");
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("mnt:")).collect()
}

/// A sandbox's mounts are put away after the answer: soon, and all of them.
#[test]
fn mounts_of_those_that_ended_are_not_kept() {
    if !stockade_line_tests::am_root() {
        return skip("an executor's descriptors are nobody else's to see but root's");
    }
    with_executor(async |world, executor| {
        for _ in 0..5 {
            says(executor, request(world, "echo x > /tmp/x")).await;
        }
        until("their end", || (held(executor).len() <= inits(executor.running.pid()).len()).then_some(()));
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
        let said = says_in(waiting, executor, asked).await;
        assert_eq!(said, format!("{}\nonly-here\n", other.work().display()));
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
        // Its memory is gone before it is seen to be dead.
        until("its death", || {
            let status = std::fs::read_to_string(format!("/proc/{waiting}/status")).unwrap_or_default();
            let state = status.lines().find_map(|line| line.strip_prefix("State:\t"));
            state.is_none_or(|state| state.starts_with(['Z', 'X'])).then_some(())
        });
        assert_eq!(says(executor, request(world, "echo alive")).await, "alive\n");
    });
}

/// What its devices had carried, if anything.
const CARRIED: &str = "tail -n +3 /proc/net/dev | grep -v ' 0 *0 *0 *0 *0 *0 *0 *0 *0 *0 *0 *0 *0 *0 *0 *0$'";

/// What leaves a trace: a packet to nobody, one that goes nowhere, a label that lingers, a socket that others may find.
const TRACES: [&str; 4] = [
    "bash -c 'echo > /dev/tcp/127.0.0.1/9' 2> /dev/null",
    "bash -c 'echo > /dev/udp/192.0.2.1/9' 2> /dev/null",
    "perl -e 'socket(S, 10, 2, 17) or die; setsockopt(S, 41, 32, \
        pack(\"a16NCCSSSL\", \"walrus\", 0x12345, 0, 255, 1, 6, 60, 0)) or die $!'",
    "perl -e 'use Socket; socket(S, 1, 1, 0) or die; bind(S, sockaddr_un(\"found\")) or die $!' && rm found",
];

/// The kernel frees a closed socket a little later, and a namespace is used again when there is none.
const SETTLED: std::time::Duration = std::time::Duration::from_millis(1200);

/// The namespaces that the spares of some executions had. Held, so that no number comes twice.
#[derive(Default)]
struct Held(Vec<std::fs::File>);

impl Held {
    async fn run(&mut self, executor: &Executor, request: Request) {
        // By then the one that is seen is on the list, too.
        tokio::time::sleep(SETTLED).await;
        let file = std::fs::File::open(format!("/proc/{}/ns/net", spare(executor)));
        self.0.push(file.expect("it waits"));
        assert_eq!(says(executor, request).await, "", "a network that somebody used");
    }

    fn are_all_different(&self) -> bool {
        let number = |file: &std::fs::File| file.metadata().expect("open").ino();
        let numbers: HashSet<u64> = self.0.iter().map(number).collect();
        numbers.len() == self.0.len()
    }
}

#[test]
fn a_network_in_which_nothing_happened_may_be_used_again() {
    with_executor(async |world, executor| {
        says(executor, request(world, "true")).await;
        let mut held = Held::default();
        for _ in 0..5 {
            held.run(executor, request(world, &format!("{CARRIED}; true"))).await;
        }
        assert!(!held.are_all_different());
    });
}

#[test]
fn a_network_in_which_something_happened_is_nobody_elses() {
    with_executor(async |world, executor| {
        says(executor, request(world, "true")).await;
        let mut held = Held::default();
        for act in TRACES.into_iter().chain(TRACES) {
            held.run(executor, request(world, &format!("{CARRIED}; {act}; true"))).await;
        }
        assert!(held.are_all_different());
    });
}

#[test]
fn no_two_have_one_network_at_a_time() {
    with_executor(async |world, executor| {
        for _ in 0..3 {
            let begin = || executor.execute(request(world, "readlink /proc/self/ns/net; sleep 0.5"));
            let running: Vec<_> = (0..6).map(|_| begin()).collect();
            let mut seen = HashSet::new();
            for execution in running {
                let output = execution.output.clone();
                execution.result().await;
                seen.insert(text(&pieces(&output), Stream::Stdout));
            }
            assert_eq!(seen.len(), 6, "{seen:?}");
        }
    });
}
