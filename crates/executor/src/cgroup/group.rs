//! The groups of one execution, one per hierarchy in use: made with their limits in force before any
//! process enters, entered, and read. Counters come from these groups alone, never from a uid or a
//! session. `stop` empties and removes them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use stockade_proto::Limits;

use super::dir::{Dir, gone, read_control};
use super::error::CgroupError;
use super::layout::{Absent, Controller, Setting, Version, holds_cpu_quota, settings};
use super::pool::Home;

/// How long `oom_struck` waits for the kill that follows the event.
const OOM_KILL_WITHIN: Duration = Duration::from_millis(100);
const OOM_SHORTEST_NAP: Duration = Duration::from_micros(50);

/// A tree's own directory in one hierarchy. Files are opened as `NAME/FILE` relative to the base.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) base: Arc<Dir>,
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
    /// v2 only: what clone takes.
    pub(super) dir: Option<Dir>,
    /// Files that were read before, kept open: a group may be read often, and be used again.
    files: Mutex<Vec<(&'static str, File)>>,
}

impl Part {
    pub(super) fn new(base: Arc<Dir>, version: Version, controllers: Vec<Controller>) -> Self {
        Self { base, version, controllers, dir: None, files: Mutex::default() }
    }
}

/// What the kernel counted. `None` where no group in use counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Processes of the tree that the kernel killed for memory.
    pub oom_kills: u64,
    /// Forks refused by the tree's own process limit.
    pub pids_max_hits: u64,
    pub memory_peak_bytes: Option<u64>,
    pub cpu_user_us: Option<u64>,
    pub cpu_system_us: Option<u64>,
}

/// How often a limit of the group held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hits {
    oom_kills: u64,
    pids_max: u64,
}

/// What a group's clocks show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Clocks {
    /// Exact.
    usage_us: u64,
    /// v1 counts the ticks that found it running: of short turns it misses most, or all.
    user_us: u64,
    system_us: u64,
}

impl Clocks {
    fn since(self, before: Self) -> Self {
        Self {
            usage_us: self.usage_us.saturating_sub(before.usage_us),
            user_us: self.user_us.saturating_sub(before.user_us),
            system_us: self.system_us.saturating_sub(before.system_us),
        }
    }

    /// The exact time, in the proportion of the two; as the kernel does it for a process.
    fn split(self) -> (u64, u64) {
        let (user, both) = (u128::from(self.user_us), u128::from(self.user_us) + u128::from(self.system_us));
        let user = match (u128::from(self.usage_us) * user).checked_div(both) {
            Some(user) => u64::try_from(user).unwrap_or(self.usage_us),
            None => self.usage_us,
        };
        (user, self.usage_us.saturating_sub(user))
    }
}

/// Dropped without `remove`, it still tries to take its directories away once; what is left then is
/// the next sweep's.
#[derive(Debug)]
pub struct Group {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    detail: String,
    oom: Option<OwnedFd>,
    doors: OnceLock<Vec<OwnedFd>>,
    processes: Option<u64>,
    /// `stop` forbids forks to kill, which counts refused forks: this is the count before.
    pub(super) pids_hits_before_kill: OnceLock<u64>,
    pub(super) killed: AtomicBool,
    /// When the execution began: a group may have been another's before.
    pub(super) before: Clocks,
    pub(super) home: Option<Home>,
}

impl Group {
    pub(super) fn named(name: String, detail: String, processes: Option<u64>) -> Self {
        Self {
            name,
            parts: Vec::new(),
            detail,
            oom: None,
            doors: OnceLock::new(),
            processes,
            pids_hits_before_kill: OnceLock::new(),
            killed: AtomicBool::new(false),
            before: Clocks::default(),
            home: None,
        }
    }

    /// Makes the directory in one hierarchy and writes its limits.
    pub(super) fn add(
        &mut self,
        base: Arc<Dir>,
        version: Version,
        controllers: Vec<Controller>,
        limits: &Limits,
    ) -> Result<(), CgroupError> {
        let path = base.path().join(&self.name);
        base.make(&self.name).map_err(|source| CgroupError::Make { path, source })?;
        let dir = match version {
            Version::V1 => None,
            Version::V2 => Some(base.child(&self.name)),
        };
        // Known to the group before anything else can fail, so that it is removed again.
        self.parts.push(Part::new(base, version, controllers));
        let Some(part) = self.parts.last_mut() else { return Ok(()) };
        part.dir = dir.transpose()?;
        for controller in &part.controllers {
            for setting in settings(version, *controller, limits)? {
                set(&part.base, &self.name, &setting)?;
            }
        }
        if version == Version::V1 && part.controllers.contains(&Controller::Memory) {
            self.oom = oom_events(&part.base, &self.name)?;
        }
        Ok(())
    }

    /// `cgroup v1: memory, cpu, pids`
    pub fn detail(&self) -> String {
        self.detail.clone()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The v2 directory for `CLONE_INTO_CGROUP`. `None` where only v1 is in use.
    pub fn clone_fd(&self) -> Option<BorrowedFd<'_>> {
        self.parts.iter().find_map(|part| part.dir.as_ref()).map(Dir::fd)
    }

    /// The files by which a thread enters the v1 groups by itself: it must write `0` into each before it
    /// makes any child. The kernel waits for a grace period, some ten milliseconds, to move another
    /// process, and for nothing when a thread moves itself.
    pub fn doors(&self) -> Result<Vec<BorrowedFd<'_>>, CgroupError> {
        let doors = match self.doors.get() {
            Some(doors) => doors,
            None => {
                let v1 = self.parts.iter().filter(|part| part.version == Version::V1);
                let doors = v1.map(|part| {
                    let file = self.file("tasks");
                    let path = part.base.path().join(&file);
                    part.base.open_for_writing(&file).map_err(|source| CgroupError::Door { path, source })
                });
                let doors = doors.collect::<Result<Vec<_>, _>>()?;
                self.doors.get_or_init(|| doors)
            }
        };
        Ok(doors.iter().map(AsFd::as_fd).collect())
    }

    /// Moves a process of the test's into every group.
    #[cfg(test)]
    pub(super) fn place(&self, pid: u32) -> std::io::Result<()> {
        let file = self.file("cgroup.procs");
        self.parts.iter().try_for_each(|part| part.base.write(&file, &pid.to_string()))
    }

    /// v1: readable once memory ran out in the tree. v1 kills one process where v2's `memory.oom.group`
    /// kills all, so poll this, ask `oom_struck`, and kill the tree. `None` on v2.
    pub fn oom_fd(&self) -> Option<BorrowedFd<'_>> {
        self.oom.as_ref().map(AsFd::as_fd)
    }

    /// Takes the pending event. True if the memory that ran out was this tree's: the kernel sends the
    /// event to every group below the one that is full.
    pub fn oom_struck(&self) -> Result<bool, CgroupError> {
        let Some(event) = &self.oom else { return Ok(false) };
        let mut count = [0u8; 8];
        match rustix::io::read(event, &mut count) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            Err(errno) => {
                return Err(CgroupError::OomEvents { path: self.first_path(), source: errno.into() });
            }
        }
        let Some(part) = self.part_with(Controller::Memory) else { return Ok(false) };
        // The event comes before the kill, and between the two the kernel may print a long report.
        let deadline = Instant::now() + OOM_KILL_WITHIN;
        let mut nap = OOM_SHORTEST_NAP;
        loop {
            if self.number(part, "memory.oom_control", Some("oom_kill"))?.unwrap_or(0) > 0 {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                // Nobody of ours was killed: it was our memory only if our own limit ever refused any.
                return Ok(self.number(part, "memory.failcnt", None)?.unwrap_or(0) > 0);
            }
            thread::sleep(nap);
            nap *= 2;
        }
    }

    /// Sets v1's high-water mark back to what is charged now, and takes an event that nobody took.
    pub(super) fn forget_memory(&self) -> Result<(), CgroupError> {
        const FILE: &str = "memory.max_usage_in_bytes";
        let v1 = self.parts.iter().filter(|part| part.version == Version::V1);
        for part in v1.filter(|part| part.controllers.contains(&Controller::Memory)) {
            part.base.write(&self.file(FILE), "0").map_err(|source| CgroupError::Write {
                path: self.path(part).join(FILE),
                value: "0".to_owned(),
                source,
            })?;
        }
        if let Some(event) = &self.oom {
            match rustix::io::read(event, &mut [0u8; 8]) {
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// CPU time of the whole tree so far. `None` if no group in use has a clock: then no CPU-seconds
    /// limit was asked for, and `wait4` tells the usage.
    pub fn cpu_usage_us(&self) -> Result<Option<u64>, CgroupError> {
        let shown = match self.clock() {
            Some((part, Version::V2)) => self.number(part, "cpu.stat", Some("usage_usec"))?,
            Some((part, Version::V1)) => self.number(part, "cpuacct.usage", None)?.map(|ns| ns / 1000),
            None => None,
        };
        Ok(shown.map(|us| us.saturating_sub(self.before.usage_us)))
    }

    /// v2 has clocks whether it has controllers or not.
    fn clock(&self) -> Option<(&Part, Version)> {
        let v2 = self.parts.iter().find(|part| part.version == Version::V2);
        v2.or_else(|| self.part_with(Controller::Cpuacct)).map(|part| (part, part.version))
    }

    pub(super) fn clocks(&self) -> Result<Option<Clocks>, CgroupError> {
        let shown = match self.clock() {
            Some((part, Version::V2)) => {
                self.numbers(part, "cpu.stat", ["usage_usec", "user_usec", "system_usec"])?
            }
            Some((part, Version::V1)) => {
                let mut shown = [None; 3];
                let files = ["cpuacct.usage", "cpuacct.usage_user", "cpuacct.usage_sys"];
                for (slot, file) in shown.iter_mut().zip(files) {
                    *slot = self.number(part, file, None)?.map(|ns| ns / 1000);
                }
                shown
            }
            None => return Ok(None),
        };
        let [usage, user, system] = shown;
        Ok(usage.map(|usage_us| Clocks {
            usage_us,
            user_us: user.unwrap_or(0),
            system_us: system.unwrap_or(0),
        }))
    }

    pub fn counters(&self) -> Result<Counters, CgroupError> {
        let Hits { oom_kills, pids_max } = self.hits()?;
        let memory_peak_bytes = match self.part_with(Controller::Memory) {
            Some(part) if part.version == Version::V1 => {
                self.number(part, "memory.max_usage_in_bytes", None)?
            }
            Some(part) => self.number(part, "memory.peak", None)?,
            None => None,
        };
        let used = self.clocks()?.map(|now| now.since(self.before).split());
        let (cpu_user_us, cpu_system_us) = used.unzip();
        Ok(Counters { oom_kills, pids_max_hits: pids_max, memory_peak_bytes, cpu_user_us, cpu_system_us })
    }

    pub(super) fn hits(&self) -> Result<Hits, CgroupError> {
        let mut hits = Hits::default();
        if let Some(part) = self.part_with(Controller::Memory) {
            let file = match part.version {
                Version::V1 => "memory.oom_control",
                Version::V2 => "memory.events",
            };
            hits.oom_kills = self.number(part, file, Some("oom_kill"))?.unwrap_or(0);
        }
        if let Some(part) = self.part_with(Controller::Pids) {
            hits.pids_max = match self.pids_hits_before_kill.get() {
                Some(hits) => *hits,
                None => self.pids_hits(part)?,
            };
        }
        Ok(hits)
    }

    /// Before Linux 6.11 a fork that an ancestor's limit refused is counted here too. The high-water
    /// mark tells: our own limit refused nothing unless it was once full.
    pub(super) fn pids_hits(&self, part: &Part) -> Result<u64, CgroupError> {
        let hits = self.number(part, "pids.events", Some("max"))?.unwrap_or(0);
        if hits > 0
            && let (Some(peak), Some(limit)) = (self.number(part, "pids.peak", None)?, self.processes)
            && peak < limit
        {
            return Ok(0);
        }
        Ok(hits)
    }

    pub(super) fn part_with(&self, controller: Controller) -> Option<&Part> {
        self.parts.iter().find(|part| part.controllers.contains(&controller))
    }

    pub(super) fn file(&self, file: &str) -> String {
        format!("{}/{file}", self.name)
    }

    pub(super) fn path(&self, part: &Part) -> PathBuf {
        part.base.path().join(&self.name)
    }

    pub(super) fn first_path(&self) -> PathBuf {
        self.parts.first().map_or_else(|| PathBuf::from(&self.name), |part| self.path(part))
    }

    /// A number on its own, or the one beside `key` in a flat-keyed file. `None` if this kernel has no
    /// such file or key; a file that is there and makes no sense is an error.
    pub(super) fn number(
        &self,
        part: &Part,
        file: &'static str,
        key: Option<&str>,
    ) -> Result<Option<u64>, CgroupError> {
        if let Some(key) = key {
            return self.numbers(part, file, [key]).map(|[number]| number);
        }
        let text = self.text(part, file)?;
        text.map(|text| self.parsed(part, file, &text)).transpose()
    }

    /// Several of one file, read at once.
    fn numbers<const N: usize>(
        &self,
        part: &Part,
        file: &'static str,
        keys: [&str; N],
    ) -> Result<[Option<u64>; N], CgroupError> {
        let text = self.text(part, file)?.unwrap_or_default();
        let mut found = [None; N];
        for (slot, key) in found.iter_mut().zip(keys) {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            *slot = value.map(|value| self.parsed(part, file, value)).transpose()?;
        }
        Ok(found)
    }

    fn text(&self, part: &Part, file: &'static str) -> Result<Option<String>, CgroupError> {
        let mut files = part.files.lock().unwrap_or_else(PoisonError::into_inner);
        let read = match files.iter().find(|(name, _)| *name == file) {
            Some((_, open)) => read_control(open),
            None => part.base.open_file(&self.file(file)).and_then(|open| {
                let text = read_control(&open)?;
                files.push((file, open));
                Ok(text)
            }),
        };
        match read {
            Ok(text) => Ok(Some(text)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CgroupError::Read { path: self.path(part).join(file), source }),
        }
    }

    fn parsed(&self, part: &Part, file: &str, value: &str) -> Result<u64, CgroupError> {
        value.trim().parse().map_err(|_| CgroupError::Malformed { path: self.path(part).join(file) })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for part in &self.parts {
            part.base.remove(&self.name).ok();
        }
    }
}

fn set(base: &Dir, name: &str, setting: &Setting) -> Result<(), CgroupError> {
    const EINVAL: i32 = 22;
    const ERANGE: i32 = 34;
    let path = || base.path().join(name).join(setting.file);
    let Err(source) = base.write(&format!("{name}/{}", setting.file), &setting.value) else { return Ok(()) };
    match (setting.absent, source.raw_os_error()) {
        (Absent::Skip, _) if gone(&source) => Ok(()),
        (Absent::OnlyWithoutSwap, _) if gone(&source) => {
            if swap_in_use() {
                Err(CgroupError::SwapUncapped { path: path() })
            } else {
                Ok(())
            }
        }
        (_, Some(EINVAL))
            if setting.file == "cpu.cfs_quota_us" && held_above(base.path(), &setting.value) =>
        {
            Ok(())
        }
        (_, Some(EINVAL | ERANGE)) => Err(CgroupError::LimitRejected {
            path: path(),
            value: setting.value.clone(),
            accepted: setting.accepted,
        }),
        _ => Err(CgroupError::Write { path: path(), value: setting.value.clone(), source }),
    }
}

/// Unknown counts as in use.
fn swap_in_use() -> bool {
    // The first line is the heading. The file is absent on a kernel without swap.
    match std::fs::read_to_string("/proc/swaps") {
        Ok(text) => text.lines().count() > 1,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

fn held_above(base: &Path, wanted: &str) -> bool {
    base.ancestors().any(|group| {
        let read = |file: &str| std::fs::read_to_string(group.join(file));
        match (read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")) {
            (Ok(quota), Ok(period)) => holds_cpu_quota(&quota, &period, wanted),
            _ => false,
        }
    })
}

/// Kernels built for real time have no v1 OOM events: then there is no descriptor, and the counters
/// alone tell, at the end.
fn oom_events(base: &Dir, name: &str) -> Result<Option<OwnedFd>, CgroupError> {
    use std::os::fd::AsRawFd;
    let file = format!("{name}/memory.oom_control");
    let fault = |source| CgroupError::OomEvents { path: base.path().join(&file), source };
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| fault(errno.into()))?;
    let control = base.open_file(&file).map_err(fault)?;
    let registration = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
    match base.write(&format!("{name}/cgroup.event_control"), &registration) {
        Ok(()) => Ok(Some(event)),
        Err(source)
            if gone(&source)
                || matches!(source.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) =>
        {
            Ok(None)
        }
        Err(source) => Err(fault(source)),
    }
}
