//! Looks at the host for the planner: the caller, the workspace, profile files, toolchains, deny matches, git.
//! Reads only, decides nothing that policy can decide, and follows no symlink that a workspace could have
//! planted. Landlock, cgroups and namespaces are probed elsewhere. Next: `stockade_policy::plan`.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode as FileMode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use stockade_policy::{
    Caller, Extra, GitFacts, GitIdentity, HostReport, NeededPath, Needs, Object, Resolved,
};
use stockade_proto::{Bytes, Code, Mode, Refusal, is_plain};

mod denials;
mod git;
mod outlook;
mod profiles;
mod registries;
mod service;
mod sockets;
mod ways;

pub use outlook::{Near, Outlook};
use outlook::{Whereabouts, path_directories};
pub use profiles::{Profiles, read_profile};
pub use registries::{Asked, registries};
pub use service::ServiceProfiles;
pub use sockets::look_at as look_at_sockets;
use ways::Ways;

/// Each match becomes a mount of some microseconds; past this the globs are too wide to be meant.
const MAX_MATCHES: usize = 4_096;

/// `.git` files, git settings and passwd: read whole, so bounded.
const MAX_TEXT_BYTES: u64 = 1024 * 1024;

/// Room for the first read of such a file.
const FIRST_PIECE_MIN: usize = 256;
const FIRST_PIECE_MAX: usize = 64 * 1024;

/// Entries of an exposed toolchain that are looked at for credentials; a larger one is not shown.
const MAX_SCAN: usize = 20_000;

/// Big enough that most directories take one call.
const LISTING_BYTES: usize = 32 * 1024;

/// The caller as the kernel and its environment know it.
pub fn caller() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    let env: Vec<(Bytes, Bytes)> =
        std::env::vars_os().map(|(name, value)| (Bytes::from(name), Bytes::from(value))).collect();
    let home = env.iter().find(|(name, _)| name.as_slice() == b"HOME").map(|(_, value)| value.to_path_buf());
    let has_user = env.iter().any(|(name, _)| name.as_slice() == b"USER");
    let home = home.filter(|home| home.is_absolute());
    // The passwd file is read only for what the environment does not say.
    let entry = if has_user && home.is_some() { None } else { passwd_entry(uid) };
    let (user, passwd_home) = entry.map_or((None, None), |(user, home)| (Some(user), Some(home)));
    let home = home.or(passwd_home).unwrap_or_else(|| PathBuf::from("/"));
    let home = object(&home).map_or_else(|_| Bytes::from(home), |object| object.path);
    Caller { uid, gid: rustix::process::getegid().as_raw(), user, home, env }
}

fn passwd_entry(uid: u32) -> Option<(Bytes, PathBuf)> {
    let text = read_bounded(Path::new("/etc/passwd"), MAX_TEXT_BYTES)?;
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let fields = line.split(|byte| *byte == b':').collect::<Vec<_>>();
        let [name, _, number, _, _, home, ..] = fields.as_slice() else { return None };
        (*number == uid.to_string().as_bytes())
            .then(|| (Bytes::from(*name), PathBuf::from(OsStr::from_bytes(home))))
    })
}

/// The workspace's real place, refused where it is missing or no workspace at all.
pub fn workspace(path: &Bytes, caller: &Caller) -> Result<Object, Refusal> {
    let missing = |why: String| {
        Refusal::new(
            Code::WorkspaceMissing,
            format!("the workspace `{path}` {why}"),
            "create it, or give another one with --workspace DIR",
        )
    };
    let found = object(path.as_path()).map_err(|errno| missing(format!("can't be opened: {errno}")))?;
    if !found.is_dir {
        return Err(missing("is not a directory".to_owned()));
    }
    stockade_policy::check_workspace(&found.path, &caller.home)?;
    open_directory(found.path.as_path()).map_err(|errno| missing(format!("can't be read: {errno}")))?;
    Ok(found)
}

/// What the ground of a sandbox needs to know: a few calls.
pub fn begin(needs: &Needs, workspace: Object, near: &Near) -> HostReport {
    HostReport {
        cwd: None,
        capacity: near.capacity,
        system: match needs.mode {
            Mode::Host => Vec::new(),
            Mode::Sandbox => near.system.clone(),
        },
        extras: Vec::new(),
        path: Vec::new(),
        shown: Vec::new(),
        scratch: Vec::new(),
        deny: Vec::new(),
        deny_write: Vec::new(),
        deny_in_place: Vec::new(),
        absent: Vec::new(),
        guard_git: needs.guard_git,
        git: GitFacts::Absent,
        git_identity: GitIdentity::default(),
        name_files: Vec::new(),
        sockets: Vec::new(),
        registries: Vec::new(),
        warnings: Vec::new(),
        caller: near.caller.clone(),
        workspace,
        layers: near.layers.clone(),
    }
}

/// Init sets the limit on core dumps to one byte, at which no handler is started. Nobody can raise one that is zero.
fn fed_handler() -> Option<String> {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    if hard != Some(0) {
        return None;
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    pattern.starts_with('|').then(|| {
        "your hard limit on core dumps is 0, at which a crash inside still feeds this host's handler of cores; \
         raise it to 1 (`ulimit -Hc 1`, or `core` in limits.conf)"
            .to_owned()
    })
}

/// Everything else that the plan needs to know, looked at once.
pub fn complete(needs: &Needs, mut report: HostReport, outlook: &Outlook) -> Result<HostReport, Refusal> {
    report.cwd = needs.cwd.as_ref().map(|cwd| real_cwd(cwd, &report.workspace)).transpose()?;
    match needs.mode {
        Mode::Host => {
            let written = [report.workspace.path.to_path_buf()];
            let path = path_directories(&report.caller, &Ways::but(&written), &mut report.warnings);
            report.path = path.into_iter().map(Bytes::from).collect();
            Ok(report)
        }
        Mode::Sandbox => {
            report.extras = extras(&needs.paths);
            git::git(&mut report)?;
            let written = written_by_commands(&report.extras, Some(&report.workspace), &report.git);
            hold_to_ways(&mut report.extras, &written)?;
            let workspace = report.workspace.path.to_path_buf();
            let at = Whereabouts { workspace, written: written.clone(), toolchains: needs.toolchains };
            let far = outlook.far(at, &report.caller, &report.system);
            report.path.clone_from(&far.path);
            report.name_files.clone_from(&far.name_files);
            report.shown.clone_from(&far.shown);
            report.scratch.clone_from(&far.scratch);
            report.warnings.extend(far.warnings.iter().cloned());
            report.git_identity.clone_from(&far.git_identity);
            report.warnings.extend(fed_handler());
            denials::denials(needs, &mut report)?;
            report.sockets = sockets::look_at(&needs.sockets, &written, report.caller.uid);
            if needs.registries {
                let asked = registries(&report.caller, &written);
                report.registries = asked.registries;
                report.warnings.extend(asked.warnings);
            }
            Ok(report)
        }
    }
}

/// Directories that commands of this profile can write: what lies there may be an earlier command's doing.
fn written_by_commands(extras: &[Extra], workspace: Option<&Object>, git: &GitFacts) -> Vec<PathBuf> {
    let writable = extras.iter().filter(|extra| extra.needed.writable && !extra.needed.bound_only);
    let mut written: Vec<PathBuf> =
        writable.filter_map(|extra| Some(extra.object.as_ref()?.path.to_path_buf())).collect();
    written.extend(workspace.map(|workspace| workspace.path.to_path_buf()));
    if let GitFacts::Worktree { common, .. } = git {
        written.push(common.path.to_path_buf());
    }
    written
}

/// The same for who asks about a profile without running anything.
pub fn written_under(
    profile: &Resolved,
    caller: &Caller,
    workspace: Option<&Object>,
) -> Result<Vec<PathBuf>, Refusal> {
    let needed = stockade_policy::needed_paths(profile, caller)?;
    let git = workspace.map_or(GitFacts::Absent, git::facts);
    Ok(written_by_commands(&extras(&needed), workspace, &git))
}

fn extras(needed: &[NeededPath]) -> Vec<Extra> {
    let look =
        |needed: &NeededPath| Extra { needed: needed.clone(), object: object(needed.path.as_path()).ok() };
    needed.iter().map(look).collect()
}

/// What a profile names must not be a command's to choose, nor be another thing at a second look: what was seen at the first
/// decides what is shown.
fn hold_to_ways(extras: &mut [Extra], written: &[PathBuf]) -> Result<(), Refusal> {
    let ways = Ways::but(written);
    for extra in extras.iter_mut().filter(|extra| !extra.needed.bound_only) {
        let found = ways.follow(extra.needed.path.as_path());
        match (&extra.object, found) {
            (Some(seen), Ok(found)) if *seen == found => {}
            (None, Ok(_)) => {}
            (None, Err(errno)) if errno != Errno::LOOP => {}
            (Some(_), Err(Errno::NOENT | Errno::NOTDIR)) => extra.object = None,
            (Some(_), Ok(_)) | (Some(_) | None, Err(_)) => {
                return Err(Refusal::new(
                    Code::WorkspaceForbidden,
                    format!(
                        "`{}`, which the profile shows, leads through a symbolic link that a command could have made, or was \
                         replaced just now",
                        extra.needed.path
                    ),
                    "replace the link by what it leads to, or take the path out of the profile",
                ));
            }
        }
    }
    Ok(())
}

/// What is at a path once symlinks are followed. A path on which there are none is its own real path; otherwise the
/// descriptor's own name is asked for, rather than each component.
fn object(path: &Path) -> Result<Object, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if is_plain(path)
        && let Ok(fd) = rustix::fs::openat2(CWD, path, flags, FileMode::empty(), ResolveFlags::NO_SYMLINKS)
    {
        return Ok(of_stat(Bytes::from(path), &rustix::fs::fstat(&fd)?));
    }
    let fd = rustix::fs::open(path, flags, FileMode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    Ok(of_stat(real_path(&fd)?, &stat))
}

fn real_path(fd: &OwnedFd) -> Result<Bytes, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, link, Vec::new())?.into_bytes();
    if path.starts_with(b"/") { Ok(Bytes::from(path)) } else { Err(Errno::NOENT) }
}

fn of_stat(path: Bytes, stat: &Stat) -> Object {
    Object {
        path,
        dev: stat.st_dev,
        ino: stat.st_ino,
        is_dir: FileType::from_raw_mode(stat.st_mode).is_dir(),
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, FileMode::empty())
}

/// Below `root`, through no symlink at all: what a workspace names must be in the workspace.
fn open_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, FileMode::empty(), resolve)
}

/// A small regular file; anything else is as good as missing.
fn read_bounded(path: &Path, limit: u64) -> Option<Vec<u8>> {
    // Without O_NONBLOCK a FIFO would hold us forever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, FileMode::empty()).ok()?;
    read_regular(fd, limit).ok()
}

fn read_regular(fd: OwnedFd, limit: u64) -> Result<Vec<u8>, String> {
    let stat = rustix::fs::fstat(&fd).map_err(|errno| errno.to_string())?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err("is not a regular file".to_owned());
    }
    // What it says it holds, in one piece. Files of the kernel's say nothing and are small.
    let said = usize::try_from(stat.st_size).unwrap_or(0).min(FIRST_PIECE_MAX);
    let mut text = Vec::with_capacity(said + FIRST_PIECE_MIN);
    let read = fs::File::from(fd).take(limit + 1).read_to_end(&mut text);
    match read {
        Ok(count) if u64::try_from(count).is_ok_and(|count| count <= limit) => Ok(text),
        Ok(_) => Err(format!("is larger than {limit} bytes")),
        Err(error) => Err(format!("can't be read: {error}")),
    }
}

fn real_cwd(cwd: &Bytes, workspace: &Object) -> Result<Bytes, Refusal> {
    let path = workspace.path.as_path().join(cwd.as_path());
    let refuse = |why: &str| {
        Refusal::new(
            Code::CwdOutside,
            format!("the working directory `{cwd}` {why}"),
            format!("choose a directory below the workspace `{}`", workspace.path),
        )
    };
    match object(&path) {
        Ok(found) if found.is_dir => Ok(found.path),
        Ok(_) => Err(refuse("is not a directory")),
        Err(_) => Err(refuse("does not exist")),
    }
}

/// Calls `each` with every entry until it says stop.
fn list(fd: BorrowedFd<'_>, each: &mut dyn FnMut(&[u8], FileType) -> bool) -> Result<(), Errno> {
    let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let stat = rustix::fs::statat(fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        }
        if !each(name, kind) {
            break;
        }
    }
    Ok(())
}

fn planted(what: &Path) -> Refusal {
    Refusal::new(
        Code::WorkspaceForbidden,
        format!("`{}` is a symbolic link, which can't be protected from changes", Bytes::from(what)),
        "replace it by what it leads to, or use a profile whose `deny-write` does not name it",
    )
}

fn too_large(workspace: &Bytes, what: &str, bound: usize) -> Refusal {
    Refusal::new(
        Code::WorkspaceTooLarge,
        format!("the workspace `{workspace}` has more than {bound} {what} to check against the deny lists"),
        "use a smaller workspace, or a profile whose `deny` and `deny-write` name paths without `*`",
    )
}

#[cfg(test)]
mod tests;
