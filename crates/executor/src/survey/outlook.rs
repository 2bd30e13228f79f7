//! What the host says of itself, apart from any workspace: the caller, the system's directories, toolchains, cgroups.
//! `stockade run` looks once; a service keeps what it saw for a moment. What commands can write is looked at for each of
//! them, and their links lead nowhere (`ways`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;
use stockade_policy::{
    Caller, Capacity, GitIdentity, LayerReport, Match, NAME_FILES, Object, SYSTEM_PATHS, Shown, SystemPath,
    Unavailable,
};
use stockade_proto::{Bytes, Code, Fault};

use super::ways::{Ways, is_below};
use super::{MAX_SCAN, MAX_TEXT_BYTES, git, list, object, of_stat, open_directory, read_bounded};
use crate::cgroup;
use crate::enforcement::layer_facts;

/// The kernel's own default, where the setting can't be read.
const DEFAULT_PID_MAX: u64 = 32_768;

/// How long a service believes what it saw. A sandbox that waits for a request is older.
const KEPT: Duration = Duration::from_secs(1);
/// Whereabouts at once.
const MOST_KEPT: usize = 1024;

/// What the ground of a sandbox stands on.
#[derive(Debug)]
pub struct Near {
    pub(crate) caller: Caller,
    pub(super) layers: LayerReport,
    pub(super) capacity: Capacity,
    pub(super) system: Vec<SystemPath>,
    cgroups: OnceLock<Result<Arc<cgroup::Host>, Fault>>,
}

impl Near {
    fn look() -> Self {
        Self::of(super::caller(), layers())
    }

    pub(super) fn of(caller: Caller, layers: LayerReport) -> Self {
        let cgroups = OnceLock::new();
        Self { caller, layers, capacity: capacity(), system: system(), cgroups }
    }

    pub(crate) fn cgroups(&self) -> Result<Arc<cgroup::Host>, Fault> {
        self.cgroups.get_or_init(detect).clone()
    }
}

/// What else a plan needs of it.
#[derive(Debug, Default)]
pub(super) struct Far {
    pub(super) path: Vec<Bytes>,
    pub(super) name_files: Vec<Bytes>,
    pub(super) shown: Vec<Shown>,
    pub(super) scratch: Vec<Bytes>,
    pub(super) warnings: Vec<String>,
    pub(super) git_identity: GitIdentity,
}

impl Far {
    fn look(at: &Whereabouts, caller: &Caller, system: &[SystemPath]) -> Self {
        let mut far =
            Self { name_files: name_files(), git_identity: git::git_identity(caller), ..Self::default() };
        let directories = |path: &SystemPath| match path {
            SystemPath::Directory(object) => Some(object.path.to_path_buf()),
            SystemPath::Symlink { .. } => None,
        };
        let system: Vec<_> = system.iter().filter_map(directories).collect();
        let shown: Vec<_> = system.iter().chain(&at.written).cloned().collect();
        let ways = Ways { written: &at.written, home: Some(&caller.home), shown: &shown };
        let path = path_directories(caller, &ways, &mut far.warnings);
        if at.toolchains {
            toolchains(caller, at, (&path, &system), &ways, &mut far);
        }
        far.path = path.into_iter().map(Bytes::from).collect();
        far
    }
}

/// What of a request decides how far there is to look.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Whereabouts {
    pub(super) workspace: PathBuf,
    /// Directories that commands of the profile write.
    pub(super) written: Vec<PathBuf>,
    pub(super) toolchains: bool,
}

#[derive(Debug)]
pub struct Outlook {
    kept: Duration,
    near: Mutex<Option<(Instant, Arc<Near>)>>,
    far: Mutex<HashMap<Whereabouts, (Instant, Arc<Far>)>>,
}

impl Outlook {
    /// For one execution.
    pub fn fresh() -> Self {
        Self::keeping(Duration::ZERO)
    }

    /// For many: nothing is believed for longer than a moment.
    pub fn of_a_service() -> Self {
        Self::keeping(KEPT)
    }

    fn keeping(kept: Duration) -> Self {
        Self { kept, near: Mutex::default(), far: Mutex::default() }
    }

    pub(crate) fn near(&self) -> Arc<Near> {
        if let Some((_, near)) = locked(&self.near).as_ref().filter(|(seen, _)| self.believes(*seen)) {
            return Arc::clone(near);
        }
        // Nobody waits for another's look: a file system may be slow.
        let (now, near) = (Instant::now(), Arc::new(Near::look()));
        *locked(&self.near) = Some((now, Arc::clone(&near)));
        near
    }

    pub(super) fn far(&self, at: Whereabouts, caller: &Caller, system: &[SystemPath]) -> Arc<Far> {
        if let Some((_, far)) = locked(&self.far).get(&at).filter(|(seen, _)| self.believes(*seen)) {
            return Arc::clone(far);
        }
        let (now, seen) = (Instant::now(), Arc::new(Far::look(&at, caller, system)));
        let mut far = locked(&self.far);
        far.retain(|_, (seen, _)| self.believes(*seen));
        if far.len() < MOST_KEPT {
            far.insert(at, (now, Arc::clone(&seen)));
        }
        seen
    }

    fn believes(&self, seen: Instant) -> bool {
        seen.elapsed() < self.kept
    }

    /// What was seen is not so any more, or a sandbox would have been built on it.
    pub fn forget(&self) {
        *locked(&self.near) = None;
        locked(&self.far).clear();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn detect() -> Result<Arc<cgroup::Host>, Fault> {
    cgroup::Host::detect().map(Arc::new).map_err(|error| {
        Fault::new(Code::HostUnreadable, format!("the host's cgroups can't be read: {error}"), error.remedy())
    })
}

fn layers() -> LayerReport {
    let mut report = LayerReport::all_available();
    for fact in layer_facts() {
        if let Some((why, remedy)) = fact.unavailable {
            report = report.without(fact.layer, Unavailable { why, remedy });
        }
    }
    report
}

fn capacity() -> Capacity {
    let memory = rustix::system::sysinfo();
    let unit = u64::from(memory.mem_unit.max(1));
    let number = |path: &str| {
        let text = read_bounded(Path::new(path), 64)?;
        std::str::from_utf8(&text).ok()?.trim().parse::<u64>().ok()
    };
    // The standard library asks the cgroup files too, which costs more than all the rest here.
    let usable_cores =
        || std::thread::available_parallelism().ok().and_then(|cores| u64::try_from(cores.get()).ok());
    Capacity {
        memory_bytes: memory.totalram.saturating_mul(unit),
        cores: online_cores().or_else(usable_cores).unwrap_or(1),
        pid_max: number("/proc/sys/kernel/pid_max").unwrap_or(DEFAULT_PID_MAX),
    }
}

/// `0-3,8`: the host's cores, not those this process happens to be bound to.
fn online_cores() -> Option<u64> {
    let text = read_bounded(Path::new("/sys/devices/system/cpu/online"), 4096)?;
    std::str::from_utf8(&text).ok()?.trim().split(',').try_fold(0, |total: u64, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let count = last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)?;
        total.checked_add(count)
    })
}

fn system() -> Vec<SystemPath> {
    SYSTEM_PATHS
        .iter()
        .filter_map(|path| {
            let stat = rustix::fs::lstat(*path).ok()?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind.is_symlink() {
                let to = rustix::fs::readlink(*path, Vec::new()).ok()?.into_bytes();
                return Some(SystemPath::Symlink { path: Bytes::from(*path), to: Bytes::from(to) });
            }
            kind.is_dir().then(|| SystemPath::Directory(of_stat(Bytes::from(*path), &stat)))
        })
        .collect()
}

/// A link among them leads out of what the sandbox shows.
fn name_files() -> Vec<Bytes> {
    let paths = NAME_FILES.iter().map(|(path, _)| Bytes::from(*path));
    paths
        .filter(|path| {
            let stat = rustix::fs::lstat(path.as_path());
            let regular = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
            regular && object(path.as_path()).is_ok_and(|found| found.path == *path)
        })
        .collect()
}

/// PATH's directories that exist, each once, at their real place. Relative ones follow whoever moves the
/// working directory, so they are dropped.
pub(super) fn path_directories(caller: &Caller, ways: &Ways<'_>, warnings: &mut Vec<String>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let path = caller.variable("PATH").map_or(&[][..], Bytes::as_slice);
    let mut seen: Vec<&[u8]> = Vec::new();
    for entry in path.split(|byte| *byte == b':').filter(|entry| entry.starts_with(b"/")) {
        if seen.contains(&entry) {
            continue;
        }
        seen.push(entry);
        let real = match ways.follow(Path::new(OsStr::from_bytes(entry))) {
            Ok(real) => real,
            Err(Errno::LOOP) => {
                warnings.push(planted(&Bytes::from(entry)));
                continue;
            }
            Err(_) => continue,
        };
        let real_path = real.path.to_path_buf();
        // A colon would split it in two inside the sandbox.
        if real.is_dir && !real.path.as_slice().contains(&b':') && !found.contains(&real_path) {
            found.push(real_path);
        }
    }
    found
}

/// Toolchains of the caller, as far as they hold no credentials.
fn toolchains(
    caller: &Caller,
    at: &Whereabouts,
    (path, system): (&[PathBuf], &[PathBuf]),
    ways: &Ways<'_>,
    far: &mut Far,
) {
    let shown_anyway = system.iter().map(PathBuf::as_path).collect::<Vec<_>>();
    let home = caller.home.as_path();
    let candidates = stockade_policy::candidates(caller, &at.workspace, &shown_anyway, path);
    for (path, reason) in candidates.show {
        let object = match ways.follow(&path) {
            Ok(object) => object,
            Err(Errno::LOOP) => {
                far.warnings.push(planted(&Bytes::from(path)));
                continue;
            }
            Err(_) => continue,
        };
        let real = object.path.as_path();
        // Shown already, and with what commands make of it meanwhile.
        if is_below(real, ways.written) {
            continue;
        }
        // A candidate may be a link to anywhere: what it really is must not be more than it seems.
        let too_much = home.starts_with(real) || at.workspace.starts_with(real);
        let kernel = ["/proc", "/sys", "/dev", "/run"].iter().any(|kernel| real.starts_with(kernel));
        let shown = shown_anyway.iter().any(|shown| real.starts_with(shown));
        let twice = far.shown.iter().any(|known| real.starts_with(known.object.path.as_path()));
        if too_much || kernel || shown || twice {
            continue;
        }
        match credentials(&object) {
            Some(credentials) => far.shown.push(Shown { object, reason, credentials }),
            None => far
                .warnings
                .push(format!("`{}` is not shown: it can't be checked for credentials", object.path)),
        }
    }
    far.scratch = candidates.scratch.into_iter().filter(|root| root.is_dir()).map(Bytes::from).collect();
}

fn planted(path: &Bytes) -> String {
    format!("`{path}` is not shown: a symbolic link on the way there could be a command's")
}

/// Credential files at most two levels down, or nothing if that can't be told.
fn credentials(shown: &Object) -> Option<Vec<Match>> {
    let root = shown.path.as_path();
    if !shown.is_dir {
        let is_config = root.file_name().is_some_and(|name| name == "config.toml" || name == "config");
        let holds = is_config && stockade_policy::holds_token(&read_bounded(root, MAX_TEXT_BYTES)?);
        return (!holds).then(Vec::new);
    }
    let mut found = Vec::new();
    let mut below = Vec::new();
    let mut seen = 0;
    for depth in 0..2 {
        let level = if depth == 0 { vec![root.to_path_buf()] } else { std::mem::take(&mut below) };
        for dir in level {
            let Ok(fd) = open_directory(&dir) else { continue };
            let listed = list(fd.as_fd(), &mut |name, kind| {
                seen += 1;
                let path = || dir.join(OsStr::from_bytes(name));
                if stockade_policy::is_credential(name) && (kind.is_file() || kind.is_dir()) {
                    found.push(Match { path: Bytes::from(path()), is_dir: kind.is_dir() });
                } else if kind.is_dir() && depth == 0 {
                    below.push(path());
                }
                seen <= MAX_SCAN
            });
            if listed.is_err() || seen > MAX_SCAN {
                return None;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_believed_for_a_moment_and_no_longer() {
        let (kept, fresh) = (Outlook::keeping(Duration::from_secs(60)), Outlook::fresh());
        let first = kept.near();
        assert!(Arc::ptr_eq(&first, &kept.near()));
        kept.forget();
        assert!(!Arc::ptr_eq(&first, &kept.near()));
        assert!(!Arc::ptr_eq(&fresh.near(), &fresh.near()));
    }

    #[test]
    fn what_is_far_is_kept_for_the_same_question_only() {
        let (kept, fresh) = (Outlook::keeping(Duration::from_secs(60)), Outlook::fresh());
        let caller = super::super::caller();
        let far = |outlook: &Outlook, workspace: &str, written: &[&str], toolchains| {
            let written = written.iter().map(PathBuf::from).collect();
            outlook.far(Whereabouts { workspace: workspace.into(), written, toolchains }, &caller, &[])
        };
        let first = far(&kept, "/a", &["/a"], false);
        assert!(Arc::ptr_eq(&first, &far(&kept, "/a", &["/a"], false)));
        for other in [
            far(&kept, "/b", &["/a"], false),
            far(&kept, "/a", &["/a", "/b"], false),
            far(&kept, "/a", &["/a"], true),
        ] {
            assert!(!Arc::ptr_eq(&first, &other));
        }
        assert!(!Arc::ptr_eq(&far(&fresh, "/a", &[], false), &far(&fresh, "/a", &[], false)));
    }
}
