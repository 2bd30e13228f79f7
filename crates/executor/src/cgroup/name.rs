//! Names of groups. A name says who made the group, so that a later sweep can tell the leftovers of a
//! dead executor from the groups of a live one. Reads `/proc`, touches no cgroup.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::error::CgroupError;

const PREFIX: &str = "stockade-x-";

/// A process that can't be mistaken for another: a pid alone is reused, and means nothing in another
/// PID namespace that shares the cgroup filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    /// Inode number of the PID namespace in which `pid` counts.
    pub(super) pid_namespace: u64,
    pub(super) pid: u32,
    /// Clock ticks from boot to its start.
    pub(super) started: u64,
}

impl Owner {
    pub(super) fn this_process() -> Result<Self, CgroupError> {
        let path = Path::new("/proc/self/stat");
        let text = read_stat(path).map_err(|source| CgroupError::Read { path: path.into(), source })?;
        let stat = parse_stat(&text).ok_or_else(|| CgroupError::Malformed { path: path.into() })?;
        let link = Path::new("/proc/self/ns/pid");
        let namespace =
            fs::metadata(link).map_err(|source| CgroupError::Read { path: link.into(), source })?;
        if stat.pid != std::process::id() {
            return Err(CgroupError::ForeignProc);
        }
        Ok(Self { pid_namespace: namespace.ino(), pid: stat.pid, started: stat.started })
    }

    pub(super) fn group_name(&self, sequence: u64) -> String {
        format!("{PREFIX}{}-{}-{}-{sequence}", self.pid_namespace, self.pid, self.started)
    }

    /// The owner that a directory's name tells, if it is one of our names at all.
    pub(super) fn of_group(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix(PREFIX)?.split('-');
        let owner = Self {
            pid_namespace: numbers.next()?.parse().ok()?,
            pid: numbers.next()?.parse().ok()?,
            started: numbers.next()?.parse().ok()?,
        };
        let sequence = numbers.next()?.parse().ok()?;
        // Only the exact spelling: what we did not write we do not kill.
        (owner.group_name(sequence) == name).then_some(owner)
    }

    pub(super) fn fate(&self, here: &Self) -> Fate {
        if self.pid_namespace != here.pid_namespace {
            return Fate::Elsewhere;
        }
        if self == here {
            return Fate::Alive;
        }
        match read_stat(Path::new(&format!("/proc/{}/stat", self.pid))) {
            Ok(text) => match parse_stat(&text) {
                Some(stat) if stat.started == self.started && !stat.gone => Fate::Alive,
                Some(_) => Fate::Dead,
                None => Fate::Alive,
            },
            // Under hidepid= a process of another user has no /proc entry, yet lives.
            Err(_) if exists(self.pid) => Fate::Alive,
            Err(_) => Fate::Dead,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Alive,
    Dead,
    /// Counted in another PID namespace: only its own executors may judge it.
    Elsewhere,
}

fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

/// One line, and the kernel gives it in one piece.
fn read_stat(path: &Path) -> io::Result<Vec<u8>> {
    const LONGEST: usize = 4096;
    let mut text = Vec::with_capacity(LONGEST);
    rustix::io::read(fs::File::open(path)?, rustix::buffer::spare_capacity(&mut text))?;
    Ok(text)
}

struct Stat {
    pid: u32,
    started: u64,
    /// A zombie manages nothing any more, though its pid is taken.
    gone: bool,
}

/// The command name may hold anything, parentheses and spaces too: the last `)` closes it.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(text.split(|byte| *byte == b' ').next()?).ok()?.parse().ok()?;
    let mut rest = std::str::from_utf8(text.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let state = rest.next()?;
    // Field 22 is the start time; the state, consumed above, is field 3.
    let started = rest.nth(18)?.parse().ok()?;
    Some(Stat { pid, started, gone: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_owner() {
        let owner = Owner { pid_namespace: 4_026_531_836, pid: 77, started: 123_456 };
        let name = owner.group_name(9);
        assert_eq!(name, "stockade-x-4026531836-77-123456-9");
        assert_eq!(Owner::of_group(&name), Some(owner));
    }

    #[test]
    fn other_names_are_not_ours() {
        for name in [
            "stockade-x-1-2-3",
            "stockade-x-1-2-3-4-5",
            "stockade-x-1-+2-3-4",
            "stockade-x-01-2-3-4",
            "stockade-x-1-2-3-x",
            "stockade-x-1-2--4",
            "stockade",
            "system.slice",
            "",
        ] {
            assert_eq!(Owner::of_group(name), None, "{name}");
        }
    }

    #[test]
    fn stat_survives_a_hostile_command_name() {
        let text = b"42 (a) Z 1 (x) R 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9876 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.pid, stat.started, stat.gone), (42, 9876, false));
        assert!(parse_stat(b"42 (cut) S 1").is_none());
    }

    #[test]
    fn fates() {
        let me = Owner::this_process().unwrap();
        assert_eq!(me.fate(&me), Fate::Alive);
        assert_eq!(Owner { started: me.started + 1, ..me }.fate(&me), Fate::Dead);
        assert_eq!(Owner { pid_namespace: 1, ..me }.fate(&me), Fate::Elsewhere);
        assert_eq!(Owner { pid: u32::MAX, ..me }.fate(&me), Fate::Dead);
    }

    #[test]
    fn a_zombie_owner_is_dead() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let me = Owner::this_process().unwrap();
        let started = parse_stat(&fs::read(format!("/proc/{}/stat", child.id())).unwrap()).unwrap().started;
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap());
        // Waits for the exit but leaves the zombie.
        rustix::process::waitid(
            rustix::process::WaitId::Pid(pid.unwrap()),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .unwrap();
        assert_eq!(Owner { pid: child.id(), started, ..me }.fate(&me), Fate::Dead);
        child.wait().unwrap();
    }
}
