//! Who is still there: processes by a marker in their command line, by descent, and their cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::{LOOK_AGAIN, deadline};

fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The command line, its words parted by spaces.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Pids of all processes whose command line holds the marker.
pub fn find_marked(marker: &str) -> Vec<u32> {
    pids().into_iter().filter(|pid| command_line(*pid).contains(marker)).collect()
}

/// Waits until a process with exactly this command line is there.
#[track_caller]
pub fn await_process(line: &str) -> u32 {
    crate::until(line, || pids().into_iter().find(|pid| command_line(*pid).trim_end() == line))
}

pub fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone_already = kill_process(pid, signal);
    }
}

pub fn kill_marked(marker: &str) {
    for pid in find_marked(marker) {
        kill(pid, Signal::KILL);
    }
}

/// Waits until every process with the marker has ended; those that have not are returned.
pub fn settle(marker: &str) -> Vec<u32> {
    let end = Instant::now() + deadline();
    loop {
        let left = find_marked(marker);
        if left.is_empty() || Instant::now() >= end {
            return left;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

pub fn children(of: u32) -> Vec<u32> {
    pids().into_iter().filter(|pid| parent(*pid) == Some(of)).collect()
}

/// All processes below this one, parents before children.
pub fn descendants(of: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = pids().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(above) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        at += 1;
    }
    found.remove(0);
    found
}

/// Those of them that are the first of a PID namespace of their own: inits of sandboxes.
pub fn inits(below: u32) -> Vec<u32> {
    let is_first = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let mut numbers = numbers.split_whitespace();
        numbers.next().is_some() && numbers.next_back() == Some("1")
    };
    descendants(below).into_iter().filter(is_first).collect()
}

/// A line such as `VmHWM:` of `/proc/PID/status`, in KiB.
pub fn status_kib(pid: u32, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The cgroups of a process that are not this test's own, as directories, in each hierarchy that is mounted.
pub fn cgroup_directories(pid: u32) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !own.lines().any(|mine| mine == *line)) {
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
