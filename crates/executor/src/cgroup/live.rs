//! Against the kernel of this machine, v1 or v2: as root, or as a user with a delegated group. Skipped
//! loudly where that can't be.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use stockade_proto::Limits;

use super::error::CgroupError;
use super::fake::limits;
use super::layout::TreeKill;
use super::name::Owner;
use super::{Group, Host, sweep};

/// Emulated machines are slow; a test that hangs must still end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The host, if these limits can be held here.
fn host(limits: &Limits, tree: TreeKill) -> Option<Host> {
    let host = Host::detect().unwrap();
    match host.availability(limits, tree) {
        Ok(_) => Some(host),
        Err(why) => {
            eprintln!("SKIP cgroup::live: {why}; {}", why.remedy());
            None
        }
    }
}

/// Leaves nothing behind, whatever assertion fails.
struct Kept(Option<Group>);

impl std::ops::Deref for Kept {
    type Target = Group;
    fn deref(&self) -> &Group {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            group.kill().ok();
            group.wait_empty(Instant::now() + PATIENCE).ok();
            group.remove().ok();
        }
    }
}

fn create(host: &Host, limits: &Limits, tree: TreeKill) -> Kept {
    Kept(Some(host.create(limits, tree).unwrap()))
}

/// `sh -c SCRIPT`, held at a pipe until it is in the group.
fn start(group: &Kept, script: &str) -> Child {
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("read gate; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    group.place(child.id()).unwrap();
    use std::io::Write;
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    child
}

fn directories(group: &Kept) -> Vec<PathBuf> {
    group.parts.iter().map(|part| group.path(part)).collect()
}

fn end(mut group: Kept) {
    let directories = directories(&group);
    let group = group.0.take().unwrap();
    group.kill().unwrap();
    assert!(group.wait_empty(Instant::now() + PATIENCE).unwrap());
    group.remove().unwrap();
    for directory in directories {
        assert!(!directory.exists(), "{}", directory.display());
    }
}

/// Every way a group can be put together here.
fn variants() -> Vec<(Limits, TreeKill)> {
    let timed = Limits { cpu_seconds: Some(1), ..limits() };
    vec![
        (limits(), TreeKill::PidNamespace),
        (limits(), TreeKill::Needed),
        (timed.clone(), TreeKill::PidNamespace),
        (timed, TreeKill::Needed),
    ]
}

#[test]
fn kill_empties_and_remove_leaves_nothing() {
    for (limits, tree) in variants() {
        let Some(host) = host(&limits, tree) else { return };
        let group = create(&host, &limits, tree);
        assert_eq!(group.detail(), host.availability(&limits, tree).unwrap());
        // Children that left the session are still in the group.
        let mut child = start(&group, "sleep 1000 & setsid sleep 1000 & sleep 1000");
        assert!(!group.wait_empty(Instant::now()).unwrap(), "{}", group.detail());
        // A shell that is refused a fork by the kill says so, and exits.
        let (deadline, members) = (Instant::now() + PATIENCE, directories(&group)[0].join("cgroup.procs"));
        while std::fs::read_to_string(&members).unwrap().lines().count() < 4 {
            assert!(Instant::now() < deadline, "{}", group.detail());
            std::thread::yield_now();
        }
        end(group);
        // A v1 group is killed process by process: the shell may first see its own sleep killed, and exit.
        let ended = child.wait().unwrap();
        assert!(ended.signal() == Some(9) || ended.code() == Some(128 + 9), "{ended}");
    }
}

#[test]
fn a_live_tree_blocks_removal_and_a_bound_ends_the_attempt() {
    let Some(host) = host(&limits(), TreeKill::PidNamespace) else { return };
    let mut group = create(&host, &limits(), TreeKill::PidNamespace);
    let directories = directories(&group);
    let mut child = start(&group, "exec sleep 1000");
    let removed = group.0.take().unwrap().remove();
    child.kill().unwrap();
    child.wait().unwrap();
    for directory in directories {
        std::fs::remove_dir(&directory).unwrap();
    }
    assert!(matches!(removed, Err(CgroupError::Remove { .. })), "{removed:?}");
}

#[test]
fn a_fork_bomb_is_killed_whole() {
    for tree in [TreeKill::PidNamespace, TreeKill::Needed] {
        let Some(host) = host(&limits(), tree) else { return };
        let group = create(&host, &limits(), tree);
        let mut child = start(&group, "f() { f & f; }; f");
        let deadline = Instant::now() + PATIENCE;
        while group.counters().unwrap().pids_max_hits == 0 {
            assert!(Instant::now() < deadline, "the bomb never met the limit");
            std::thread::yield_now();
        }
        end(group);
        child.wait().unwrap();
    }
}

#[test]
fn the_process_limit_is_counted_and_killing_adds_nothing() {
    let limits = Limits { processes: Some(4), ..limits() };
    let Some(host) = host(&limits, TreeKill::PidNamespace) else { return };
    let group = create(&host, &limits, TreeKill::PidNamespace);
    let mut child = start(&group, "sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & wait");
    let deadline = Instant::now() + PATIENCE;
    while group.counters().unwrap().pids_max_hits == 0 {
        assert!(Instant::now() < deadline, "no hit");
        std::thread::yield_now();
    }
    child.stdin.take();
    group.kill().unwrap();
    assert!(group.wait_empty(Instant::now() + PATIENCE).unwrap());
    end(group);
    child.wait().unwrap();

    // Far from the limit nothing is counted, though the kill refuses forks.
    let group = create(&host, &Limits { processes: Some(50), ..limits }, TreeKill::PidNamespace);
    let mut child = start(&group, "while :; do /bin/true; done");
    group.kill().unwrap();
    assert!(group.wait_empty(Instant::now() + PATIENCE).unwrap());
    assert_eq!(group.counters().unwrap().pids_max_hits, 0);
    end(group);
    child.wait().unwrap();
}

#[test]
fn running_out_of_memory_is_counted_and_told() {
    for (limits, tree) in variants() {
        let Some(host) = host(&limits, tree) else { return };
        let group = create(&host, &limits, tree);
        // The shell survives on v1, where the kernel kills one process.
        let mut child = start(&group, "tail /dev/zero; sleep 1000");
        if let Some(oom) = group.oom_fd() {
            let timeout = Timespec::try_from(PATIENCE).unwrap();
            let ready = rustix::event::poll(&mut [PollFd::new(&oom, PollFlags::IN)], Some(&timeout)).unwrap();
            assert_eq!(ready, 1, "no OOM event");
            assert!(group.oom_struck().unwrap());
            assert!(!group.oom_struck().unwrap(), "an event is taken once");
            assert!(child.try_wait().unwrap().is_none());
            group.kill().unwrap();
        }
        assert!(group.wait_empty(Instant::now() + PATIENCE).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(9), "{}", group.detail());
        let counters = group.counters().unwrap();
        assert!(counters.oom_kills > 0, "{counters:?}");
        assert!(
            counters.memory_peak_bytes.is_none_or(|peak| peak > 16 << 20 && peak <= 32 << 20),
            "{counters:?}"
        );
        end(group);
    }
}

#[test]
fn counters_are_of_this_tree_alone() {
    let Some(host) = host(&limits(), TreeKill::PidNamespace) else { return };
    let quiet = create(&host, &limits(), TreeKill::PidNamespace);
    let loud = create(&host, &limits(), TreeKill::PidNamespace);
    let mut child = start(&loud, "tail /dev/zero; exit 0");
    child.wait().unwrap();
    assert!(loud.counters().unwrap().oom_kills > 0);
    assert_eq!(quiet.counters().unwrap().oom_kills, 0);
    assert!(!quiet.oom_struck().unwrap());
    end(loud);
    end(quiet);
}

#[test]
fn the_tree_has_a_clock_where_cpu_seconds_are_limited() {
    let limits = Limits { cpu_seconds: Some(1), ..limits() };
    let Some(host) = host(&limits, TreeKill::PidNamespace) else { return };
    let group = create(&host, &limits, TreeKill::PidNamespace);
    let mut child = start(&group, "while :; do :; done");
    let deadline = Instant::now() + PATIENCE;
    while group.cpu_usage_us().unwrap().unwrap() < 20_000 {
        assert!(Instant::now() < deadline, "the clock stands");
        std::thread::yield_now();
    }
    let counters = group.counters().unwrap();
    assert!(counters.cpu_user_us.is_some() && counters.cpu_system_us.is_some());
    end(group);
    child.wait().unwrap();
}

#[test]
fn a_limit_beyond_the_kernels_is_told_and_leaves_nothing() {
    for (limits, file) in [
        (Limits { processes: Some(u64::MAX), ..limits() }, "pids.max"),
        (Limits { cpu_millicores: Some(1), ..limits() }, "cpu"),
    ] {
        let Some(host) = host(&limits, TreeKill::PidNamespace) else { return };
        let before = super::SEQUENCE.load(std::sync::atomic::Ordering::Relaxed);
        let fault = host.create(&limits, TreeKill::PidNamespace).unwrap_err();
        let CgroupError::LimitRejected { path, .. } = &fault else { panic!("{fault:?}") };
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with(file), "{fault}");
        assert!(!path.parent().unwrap().exists());
        for hierarchy in &host.v1 {
            for sequence in before..before + 8 {
                let leftover = hierarchy.own.as_ref().unwrap().join(host.owner.group_name(sequence));
                let is_this = leftover.file_name() == path.parent().unwrap().file_name();
                assert!(!(is_this && leftover.exists()), "{}", leftover.display());
            }
        }
    }
}

#[test]
fn groups_that_the_tree_made_are_killed_and_removed_too() {
    for tree in [TreeKill::PidNamespace, TreeKill::Needed] {
        let Some(host) = host(&limits(), tree) else { return };
        let group = create(&host, &limits(), tree);
        let mut child = start(&group, "sleep 1000");
        for directory in directories(&group) {
            let inner = directory.join("inner");
            std::fs::create_dir(&inner).unwrap();
            // With controllers of ours enabled above, v2 lets a process in all the same: the inner group has none.
            std::fs::write(inner.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        assert!(!group.wait_empty(Instant::now()).unwrap());
        end(group);
        child.wait().unwrap();
    }
}

#[test]
fn a_sweep_ends_a_dead_executors_tree_and_no_live_one() {
    for tree in [TreeKill::PidNamespace, TreeKill::Needed] {
        let Some(mut host) = host(&limits(), tree) else { return };
        let alive = create(&host, &limits(), tree);
        let here = host.owner;
        host.owner = Owner { started: here.started + 1, ..here };
        let dead = create(&host, &limits(), tree);
        host.owner = here;
        let mut orphan = start(&dead, "sleep 1000 & sleep 1000");
        let mut kept = start(&alive, "sleep 1000");
        let name = dead.name().to_owned();
        let left = directories(&dead);

        // Other tests of this process may sweep at the same time: either may be the one that removes it.
        let again = Host::detect().unwrap();
        let reports = std::thread::scope(|threads| {
            [threads.spawn(|| sweep(&host)), threads.spawn(|| sweep(&again))]
                .map(|thread| thread.join().unwrap())
        });
        for report in &reports {
            assert!(report.faults.is_empty(), "{report:?}");
        }
        assert!(reports.iter().any(|report| report.removed.contains(&name)), "{reports:?}");
        assert_eq!(orphan.wait().unwrap().signal(), Some(9));
        assert!(left.iter().all(|directory| !directory.exists()));
        assert!(kept.try_wait().unwrap().is_none());
        end(alive);
        kept.wait().unwrap();
    }
}

#[test]
fn dropping_a_group_removes_it() {
    let Some(host) = host(&limits(), TreeKill::Needed) else { return };
    let mut group = create(&host, &limits(), TreeKill::Needed);
    let directories = directories(&group);
    assert!(!directories.is_empty());
    drop(group.0.take());
    assert!(directories.iter().all(|directory| !directory.exists()));
}
