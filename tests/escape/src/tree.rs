//! Who is still there: processes by a marker in their command line, and the cgroups they were in.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::ran::deadline;

/// Pids of all processes whose command line holds the marker.
pub fn find_marked(marker: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.windows(marker.len()).any(|window| window == marker.as_bytes()))
        })
        .collect()
}

/// Ends what the bare half of a test left behind.
pub fn kill_marked(marker: &str) {
    for pid in find_marked(marker) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _gone_already = kill_process(pid, Signal::KILL);
        }
    }
}

/// Waits until every process with the marker has ended; those that have not are returned.
pub fn settle(marker: &str) -> Vec<u32> {
    let end = Instant::now() + deadline();
    loop {
        let left = find_marked(marker);
        let Some(first) = left.first() else { return left };
        let now = Instant::now();
        if now >= end {
            return left;
        }
        // Wait for one of them, then look again: new ones may have appeared in between.
        wait_for(*first, end - now);
    }
}

fn stat(pid: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some((name, parent))
}

fn processes() -> Vec<(u32, String, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| stat(pid).map(|(name, parent)| (pid, name, parent)))
        .collect()
}

/// All processes below this one, parents before children.
pub fn descendants(of: u32) -> Vec<u32> {
    let all = processes();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, _, above)| *above == parent).map(|(pid, _, _)| *pid));
        at += 1;
    }
    found.remove(0);
    found
}

/// Inits whose `stockade` is gone. They have until the deadline to notice.
pub fn orphaned_inits() -> Vec<u32> {
    let end = Instant::now() + deadline();
    loop {
        let all = processes();
        let left: Vec<u32> = all
            .iter()
            .filter(|(_, name, parent)| {
                let above = all.iter().find(|(pid, _, _)| pid == parent);
                name.starts_with("stockade-init")
                    && !above.is_some_and(|(_, name, _)| name.starts_with("stockade"))
            })
            .map(|(pid, _, _)| *pid)
            .collect();
        let Some(first) = left.first() else { return left };
        let now = Instant::now();
        if now >= end {
            return left;
        }
        wait_for(*first, end - now);
    }
}

fn wait_for(pid: u32, limit: Duration) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    let timeout = Timespec::try_from(limit).ok();
    let mut waits = [PollFd::new(&pidfd, PollFlags::IN)];
    let _again = poll(&mut waits, timeout.as_ref());
}

/// Where the kernel shows the cgroups of a process, for each hierarchy that is mounted.
pub fn cgroup_directories(pid: u32) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        // Where it shares our own group there is nothing to clean up.
        if own.lines().any(|mine| mine == line) {
            continue;
        }
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        let name = controllers.trim_start_matches("name=");
        for mount in [
            Path::new("/sys/fs/cgroup").join(name),
            PathBuf::from("/sys/fs/cgroup"),
            PathBuf::from("/sys/fs/cgroup/unified"),
        ] {
            let directory = mount.join(path);
            if !path.is_empty() && directory.join("cgroup.procs").exists() && !found.contains(&directory) {
                found.push(directory);
            }
        }
    }
    found
}
