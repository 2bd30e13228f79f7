//! Sandboxes whose walls stand before their request is there: what they stand on may be taken away meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_line_tests::{Executor, World, inits, kill, request, skip, slowness, until};
use stockade_proto::{Bytes, Outcome, Request, Variable};

use super::spares::says;
use super::stems::stem;
use super::with_executor;

/// Of what somebody who mounts something on this host can spoil.
const TRIES: usize = 10;

/// All walls stand.
fn is_walled(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let says = |line: &str| status.lines().any(|found| found.split_whitespace().eq(line.split_whitespace()));
    says("Seccomp: 2") && says("NoNewPrivs: 1") && says("CapEff: 0000000000000000")
}

/// The one sandbox that waits, with its walls. None where no stem bears any.
async fn walled(executor: &Executor, world: &World) -> Option<Waiting> {
    for _ in 0..TRIES {
        says(executor, request(world, "true")).await;
        let waits = until("one spare", || match inits(executor.running.pid()).as_slice() {
            [one] => Some(*one),
            _ => None,
        });
        // On the list by then.
        tokio::time::sleep(Duration::from_millis(100) * slowness()).await;
        if is_walled(waits) {
            let mounts = std::fs::read_link(format!("/proc/{waits}/ns/mnt")).ok();
            return Some(Waiting { pid: waits, mounts });
        }
    }
    assert_eq!(stem(executor), None, "a stem stands, and no walls");
    skip("no sandbox has its walls ahead here");
    None
}

struct Waiting {
    pid: u32,
    /// Its namespace, where we may see that.
    mounts: Option<PathBuf>,
}

impl Waiting {
    /// Whether what a command says of its namespace is said in this one.
    fn is(&self, said: &str) -> bool {
        self.mounts.as_ref().is_none_or(|mounts| mounts.as_os_str() == said)
    }
}

/// What a command says last.
const WHERE: &str = "readlink /proc/self/ns/mnt";

fn replace(directory: &Path) {
    std::fs::remove_dir_all(directory).expect("removed");
    std::fs::create_dir(directory).expect("a directory");
}

/// What such a command says, run in the sandbox that waits. If somebody mounts something on this host between the look and the
/// command, that one is left aside, as it should be: then it is tried again.
async fn said_there(executor: &Executor, world: &World, asked: &Request) -> Option<String> {
    for _ in 0..TRIES {
        let waiting = walled(executor, world).await?;
        let said = says(executor, asked.clone()).await;
        let (said, there) = said.trim_end().rsplit_once('\n').expect(&said);
        if waiting.is(there) {
            return Some(said.to_owned());
        }
    }
    panic!("it was the one in none of {TRIES} tries");
}

#[test]
fn another_command_runs_in_the_one_that_waits() {
    with_executor(async |world, executor| {
        let sub = world.work().join("sub");
        std::fs::create_dir(&sub).expect("a directory");
        let asked = Request {
            env: vec![Variable::Set { name: Bytes::from("HERE"), value: Bytes::from("sea") }],
            timeout_ms: Some(54_321),
            ..request(world, &format!("cd sub && echo $HERE; pwd; touch ../made; ulimit -c; {WHERE}"))
        };
        let Some(said) = said_there(executor, world, &asked).await else { return };
        assert_eq!(said, format!("sea\n{}\n0", sub.display()));
        assert!(world.work().join("made").exists());
    });
}

/// Some fit the packet that they come in, and some don't.
#[test]
fn commands_of_every_length_come_whole() {
    with_executor(async |world, executor| {
        for length in [1, 2000, 3500, 4000, 4096, 5000, 100_000] {
            let script = format!("set -- {}; echo ${{#1}}; {WHERE}", "x".repeat(length));
            let Some(said) = said_there(executor, world, &request(world, &script)).await else { return };
            assert_eq!(said, length.to_string());
        }
    });
}

/// A name that is replaced takes the mount on the old one along.
#[test]
fn what_was_replaced_meanwhile_is_protected_and_hidden() {
    with_executor(async |world, executor| {
        let (own, env) = (world.work().join(".stockade"), world.work().join(".env"));
        std::fs::create_dir(&own).expect("a directory");
        std::fs::write(&env, b"walrus").expect("a file");
        let attack = "cat .env; echo x > .stockade/x; mkdir .stockade/y; echo walls";
        for _ in 0..TRIES {
            if walled(executor, world).await.is_none() {
                return;
            }
            replace(&own);
            std::fs::remove_file(&env).expect("removed");
            std::fs::write(&env, b"walrus").expect("a file");
            assert_eq!(says(executor, request(world, attack)).await, "walls\n");
            assert_eq!(std::fs::read_dir(&own).expect("a directory").count(), 0);
        }
    });
}

/// As above, when nobody outside looks any more: init itself does.
#[test]
fn what_is_replaced_in_the_last_moment_starts_nothing() {
    with_executor(async |world, executor| {
        let own = world.work().join(".stockade");
        std::fs::create_dir(&own).expect("a directory");
        let Some(waiting) = walled(executor, world).await else { return };
        kill(waiting.pid, rustix::process::Signal::STOP);
        let execution = executor.execute(request(world, "echo x > .stockade/x; touch ran"));
        tokio::time::sleep(Duration::from_millis(300) * slowness()).await;
        replace(&own);
        kill(waiting.pid, rustix::process::Signal::CONT);
        let result = execution.result().await;
        let Outcome::LaunchFailed { stage, message, .. } = &result.outcome else { panic!("{result:?}") };
        assert_eq!(stage, "order", "{result:?}");
        assert!(message.contains(".stockade was replaced") && message.contains("again"), "{result:?}");
        assert!(!own.join("x").exists() && !world.work().join("ran").exists());
    });
}

/// A file of the workspace that is shown by itself can be unlinked and linked again, the same file without its mount.
#[test]
fn what_is_shown_inside_of_the_workspace_is_proven_for_each_command() {
    with_executor(async |world, executor| {
        let (file, other) = (world.work().join("file"), world.work().join("other"));
        std::fs::write(&file, b"as it was").expect("a file");
        executor.profile("inner", &format!("extends = \"default\"\nreadable = [{file:?}]")).await;
        let asked = |script: &str| Request { profile: "inner".to_owned(), ..request(world, script) };
        for _ in 0..TRIES {
            // What was made before the last change may be of no use; that is told once.
            drop(executor.execute(asked("true")).answer().await);
            says(executor, asked("true")).await;
            tokio::time::sleep(Duration::from_millis(100) * slowness()).await;
            std::fs::hard_link(&file, &other).expect("linked");
            std::fs::remove_file(&file).expect("removed");
            std::fs::rename(&other, &file).expect("renamed");
            let execution = executor.execute(asked("echo x > file; true"));
            // Refused or not, it is not written.
            drop(execution.answer().await);
            assert_eq!(std::fs::read(&file).expect("a file"), b"as it was");
        }
    });
}
