//! Ends the tree of a group: kill every process, see that none is left, remove the directories. Every
//! wait has a deadline. "Killed" is never taken for "empty": `cgroup.kill` on an empty group succeeds,
//! and a process may hang in the kernel.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::dir::{gone, read_control};
use super::error::CgroupError;
use super::group::{Group, Part};
use super::layout::{Controller, Version};

/// Rounds of list-and-signal. With forks stopped two are enough; without, a fork bomb that outruns this
/// many is reported, not chased.
const KILL_ROUNDS: usize = 64;
/// An empty group can be busy for a moment while its last process is torn down.
const REMOVE_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks where the kernel sends no event, doubling up to the longest.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(5);

impl Group {
    /// Sends SIGKILL to every process of the tree. `wait_empty` tells whether that ended them.
    pub fn kill(&self) -> Result<(), CgroupError> {
        self.killed.store(true, Ordering::Relaxed);
        let v2 = self.parts.iter().find(|part| part.version == Version::V2);
        if let Some(part) = v2 {
            match part.base.write(&self.file("cgroup.kill"), "1") {
                Ok(()) => return Ok(()),
                // Before Linux 5.14 there is none; and a group that is gone has nobody to kill.
                Err(source) if gone(&source) => {}
                Err(source) => return Err(CgroupError::Kill { path: self.path(part), source }),
            }
        }
        // Nobody can join a group that is empty: the tree is over.
        if self.members()?.is_empty() {
            return Ok(());
        }
        let stopped = self.stop_forks()?;
        let killed = self.signal_all();
        if stopped == Forks::Frozen {
            // What a v1 freezer holds does not die before it thaws.
            self.thaw()?;
        }
        killed
    }

    /// Without this a fork bomb can outrun a list of pids.
    fn stop_forks(&self) -> Result<Forks, CgroupError> {
        let fault = |part: &Part, source| CgroupError::Kill { path: self.path(part), source };
        for part in &self.parts {
            let (file, value, forks) = if part.controllers.contains(&Controller::Pids) {
                let hits = self.pids_hits(part)?;
                self.pids_hits_before_kill.get_or_init(|| hits);
                ("pids.max", "0", Forks::Refused)
            } else if part.version == Version::V2 {
                ("cgroup.freeze", "1", Forks::Frozen)
            } else if part.controllers.contains(&Controller::Freezer) {
                ("freezer.state", "FROZEN", Forks::Frozen)
            } else {
                continue;
            };
            match part.base.write(&self.file(file), value) {
                Ok(()) => return Ok(forks),
                Err(source) if gone(&source) => {}
                Err(source) => return Err(fault(part, source)),
            }
        }
        Ok(Forks::Free)
    }

    fn thaw(&self) -> Result<(), CgroupError> {
        for part in &self.parts {
            let (file, value) = match part.version {
                Version::V2 => ("cgroup.freeze", "0"),
                Version::V1 if part.controllers.contains(&Controller::Freezer) => ("freezer.state", "THAWED"),
                Version::V1 => continue,
            };
            match part.base.write(&self.file(file), value) {
                Err(source) if !gone(&source) => {
                    return Err(CgroupError::Kill { path: self.path(part), source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Until a list shows nobody who was not signalled already.
    fn signal_all(&self) -> Result<(), CgroupError> {
        let mut signalled = BTreeSet::new();
        for _ in 0..KILL_ROUNDS {
            let handles: Vec<(u32, OwnedFd)> = self
                .members()?
                .into_iter()
                .filter(|pid| !signalled.contains(pid))
                .filter_map(|pid| Some((pid, open_pidfd(pid)?)))
                .collect();
            if handles.is_empty() {
                return Ok(());
            }
            // A pid may have been reused by a stranger between the list and the open. If the group still
            // lists the pid now, the descriptor is of that member, or of a process that is dead.
            let still = self.members()?;
            for (pid, handle) in handles.iter().filter(|(pid, _)| still.contains(pid)) {
                match rustix::process::pidfd_send_signal(handle, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {
                        signalled.insert(*pid);
                    }
                    Err(errno) => {
                        return Err(CgroupError::Kill { path: self.first_path(), source: errno.into() });
                    }
                }
            }
        }
        Err(CgroupError::KillOutrun { path: self.first_path() })
    }

    /// Of all groups: an executor that died while placing a process leaves it in some of them only.
    fn members(&self) -> Result<BTreeSet<u32>, CgroupError> {
        let mut all = BTreeSet::new();
        for part in &self.parts {
            let path = || self.path(part).join("cgroup.procs");
            let pids = part.base.members(&self.name);
            all.extend(pids.map_err(|source| CgroupError::Read { path: path(), source })?);
        }
        Ok(all)
    }

    /// Whether no process of the tree is left, for a tree whose every process went through all groups.
    pub fn is_over(&self) -> Result<bool, CgroupError> {
        let v1 = self.parts.iter().filter(|part| part.version == Version::V1);
        match v1.into_iter().find(|part| part.controllers.contains(&Controller::Pids)) {
            Some(part) => Ok(self.number(part, "pids.current", None)? == Some(0)),
            None => self.wait_empty(Instant::now()),
        }
    }

    /// True once no process of the tree is left, false if some are at the deadline.
    pub fn wait_empty(&self, deadline: Instant) -> Result<bool, CgroupError> {
        let fault = |source| CgroupError::Wait { path: self.first_path(), source };
        let v2 = self.parts.iter().find(|part| part.version == Version::V2);
        let events = match v2.map(|part| part.base.open_file(&self.file("cgroup.events"))).transpose() {
            Ok(events) => events,
            Err(source) if gone(&source) => return Ok(true),
            Err(source) => return Err(fault(source)),
        };
        let mut nap = SHORTEST_NAP;
        loop {
            if !self.populated(events.as_ref())? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            // v1 sends no event, and v2 holds its POLLPRI back by up to 10 ms. But each process has one,
            // and the group is not empty before its first member ended.
            let member = self.first_member()?;
            let waits = [
                events.as_ref().map(|events| PollFd::new(events, PollFlags::PRI)),
                member.as_ref().map(|member| PollFd::new(member, PollFlags::IN)),
            ];
            let mut waits: Vec<_> = waits.into_iter().flatten().collect();
            if !waits.is_empty() {
                poll_until(&mut waits, deadline).map_err(fault)?;
            }
            // A member that has ended leaves the list a moment later.
            thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }

    fn populated(&self, events: Option<&File>) -> Result<bool, CgroupError> {
        let Some(events) = events else { return Ok(!self.members()?.is_empty()) };
        let path = || self.first_path().join("cgroup.events");
        match read_control(events) {
            Ok(text) => match text.lines().find_map(|line| line.strip_prefix("populated ")) {
                Some("0") => Ok(false),
                Some("1") => Ok(true),
                _ => Err(CgroupError::Malformed { path: path() }),
            },
            Err(source) if gone(&source) => Ok(false),
            Err(source) => Err(CgroupError::Read { path: path(), source }),
        }
    }

    /// `None` if it ended this moment, or counts in no PID namespace of ours.
    fn first_member(&self) -> Result<Option<OwnedFd>, CgroupError> {
        let Some(pid) = self.members()?.first().copied() else { return Ok(None) };
        let Some(handle) = open_pidfd(pid) else { return Ok(None) };
        // Listed after the open as well: it is the member, not a stranger who got its pid.
        Ok(self.members()?.contains(&pid).then_some(handle))
    }

    /// Removes the directories; the tree must be gone. All are tried, the first failure is told.
    pub fn remove(mut self) -> Result<(), CgroupError> {
        let parts = std::mem::take(&mut self.parts);
        let deadline = Instant::now() + REMOVE_WITHIN;
        let mut first = Ok(());
        for part in &parts {
            let removed = self.remove_part(part, deadline);
            if first.is_ok() {
                first = removed;
            }
        }
        first
    }

    fn remove_part(&self, part: &Part, deadline: Instant) -> Result<(), CgroupError> {
        let mut nap = SHORTEST_NAP;
        loop {
            match part.base.remove(&self.name) {
                Ok(()) => return Ok(()),
                // Another executor's sweep was faster.
                Err(source) if gone(&source) => return Ok(()),
                Err(source) if !busy(&source) || Instant::now() >= deadline => {
                    return Err(CgroupError::Remove { path: self.path(part), source });
                }
                // Groups that the tree made for itself hold it; or it is being torn down.
                Err(_) => part.base.remove_nested(&self.name),
            }
            thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forks {
    Refused,
    Frozen,
    Free,
}

fn busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty)
}

/// `None` if there is no such process, or none that counts in our PID namespace (listed as 0).
fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Until one is ready, or the deadline.
fn poll_until(waits: &mut [PollFd<'_>], deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match rustix::event::poll(waits, Some(&timeout)) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
