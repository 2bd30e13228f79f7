//! What git keeps beside the workspace: who commits, what stands at `.git`, and the settings and hooks by which
//! a changed repository would run programs outside the sandbox. Next: `stockade_policy::plan` guards them.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode as FileMode, OFlags};
use rustix::io::Errno;
use stockade_policy::{Caller, GitFacts, GitIdentity, HostReport, Match, Object};
use stockade_proto::{Bytes, Code, Placeholder, PlaceholderKind, Refusal};

use super::{MAX_MATCHES, MAX_SCAN, MAX_TEXT_BYTES, list, object, planted, read_bounded, too_large};

/// Submodules nest; a deeper tree is an attempt to make us walk.
const MAX_MODULE_DEPTH: usize = 6;

pub(super) fn git_identity(caller: &Caller) -> GitIdentity {
    let home = caller.home.as_path();
    let config = match caller.variable("XDG_CONFIG_HOME").filter(|path| path.as_path().is_absolute()) {
        Some(path) => path.to_path_buf(),
        None => home.join(".config"),
    };
    let read = |path: PathBuf| {
        let text = read_bounded(&path, MAX_TEXT_BYTES).unwrap_or_default();
        stockade_policy::git_identity(&String::from_utf8_lossy(&text))
    };
    read(home.join(".gitconfig")).or(read(config.join("git/config")))
}

/// What stands at `.git`, and the settings and hooks to protect.
pub(super) fn git(report: &mut HostReport) -> Result<(), Refusal> {
    let dot_git = report.workspace.path.as_path().join(".git");
    let Ok(stat) = rustix::fs::lstat(&dot_git) else { return Ok(()) };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_symlink() {
        return if report.guard_git { Err(planted(&dot_git)) } else { Ok(()) };
    }
    if kind.is_dir() {
        report.git = GitFacts::Directory;
        return guard_repository(report, &dot_git);
    }
    report.git = claimed(&dot_git);
    let root = match &report.git {
        GitFacts::Worktree { common, .. } => common.path.to_path_buf(),
        GitFacts::Absent | GitFacts::Directory | GitFacts::Unverified { .. } => return Ok(()),
    };
    guard_repository(report, &root)
}

/// What stands at a workspace's `.git`, with nothing said about its protection.
pub(super) fn facts(workspace: &Object) -> GitFacts {
    let dot_git = workspace.path.as_path().join(".git");
    match rustix::fs::lstat(&dot_git).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Directory) => GitFacts::Directory,
        Ok(FileType::RegularFile) => claimed(&dot_git),
        Ok(_) | Err(_) => GitFacts::Absent,
    }
}

fn claimed(dot_git: &Path) -> GitFacts {
    match worktree(dot_git) {
        Ok((gitdir, common)) => GitFacts::Worktree { gitdir, common },
        Err(why) => GitFacts::Unverified { why },
    }
}

/// A `.git` file is only a claim: an agent can write one that names any directory. The named one must name
/// this workspace in return, and its repository must be its own ancestor.
fn worktree(dot_git: &Path) -> Result<(Object, Object), String> {
    let text = read_bounded(dot_git, MAX_TEXT_BYTES).ok_or("`.git` can't be read")?;
    let named = stockade_policy::gitdir_of(&text).ok_or("`.git` does not name a directory")?;
    let workspace = dot_git.parent().unwrap_or(Path::new("/"));
    let gitdir = object(&workspace.join(OsStr::from_bytes(named)))
        .map_err(|errno| format!("`{}` can't be opened: {errno}", Bytes::from(named)))?;
    let line = |name: &str| {
        let text = read_bounded(&gitdir.path.as_path().join(name), MAX_TEXT_BYTES)?;
        Some(gitdir.path.as_path().join(OsStr::from_bytes(text.trim_ascii())))
    };
    let back =
        line("gitdir").ok_or_else(|| format!("`{}` has no `gitdir` that names it in return", gitdir.path))?;
    // The file's own place is compared, not its text: git writes either an absolute or a relative one.
    let same = object(&back).is_ok_and(|back| back.path.as_path() == dot_git);
    if !same {
        return Err(format!("`{}` belongs to another worktree", gitdir.path));
    }
    let common = line("commondir").and_then(|common| object(&common).ok());
    let common = common.ok_or_else(|| format!("`{}` has no `commondir`", gitdir.path))?;
    let is_repository =
        ["HEAD", "objects", "refs"].iter().all(|name| common.path.as_path().join(name).exists());
    if !common.is_dir || !is_repository || !stockade_policy::is_worktree_of(&gitdir.path, &common.path) {
        return Err(format!("`{}` is not the repository of `{}`", common.path, gitdir.path));
    }
    Ok((gitdir, common))
}

/// Files by which git runs programs or is led elsewhere, in the repository and its submodules.
const GUARDED: [&str; 3] = ["config", "config.worktree", "hooks"];

fn guard_repository(report: &mut HostReport, root: &Path) -> Result<(), Refusal> {
    if !report.guard_git {
        return Ok(());
    }
    guard_one(report, root)?;
    let mut level = vec![root.join("modules")];
    for _ in 0..MAX_MODULE_DEPTH {
        let mut next = Vec::new();
        for dir in level {
            let Ok(fd) = open_directory_nofollow(&dir) else { continue };
            let mut count = 0;
            let listed = list(fd.as_fd(), &mut |name, kind| {
                count += 1;
                if kind.is_dir() {
                    next.push(dir.join(OsStr::from_bytes(name)));
                }
                count <= MAX_SCAN
            });
            if listed.is_err() || count > MAX_SCAN || next.len() > MAX_MATCHES {
                return Err(too_large(&report.workspace.path, "submodules", MAX_MATCHES));
            }
        }
        level = Vec::new();
        for dir in next {
            if dir.join("HEAD").exists() {
                guard_one(report, &dir)?;
                level.push(dir.join("modules"));
            } else {
                level.push(dir);
            }
        }
    }
    // Other worktrees of this repository are led to it by these.
    let worktrees = root.join("worktrees");
    let names = fs::read_dir(&worktrees).into_iter().flatten().flatten().take(MAX_MATCHES);
    for dir in names.map(|entry| entry.path()) {
        for name in ["commondir", "gitdir", "config.worktree"] {
            guard_path(report, &dir.join(name))?;
        }
    }
    Ok(())
}

fn open_directory_nofollow(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, FileMode::empty())
}

fn guard_one(report: &mut HostReport, repository: &Path) -> Result<(), Refusal> {
    // Only a worktree's own directory has one. In a repository it sends git to another directory's settings
    // and so runs what they say; git itself never writes it there.
    let commondir = repository.join("commondir");
    let kind = PlaceholderKind::GitCommondir;
    if rustix::fs::lstat(&commondir).is_err() {
        report.absent.push(Placeholder { path: Bytes::from(commondir), kind });
    } else if read_bounded(&commondir, MAX_TEXT_BYTES).as_deref() == kind.contents() {
        // Of an execution that runs beside this one, or that was killed.
        guard_path(report, &commondir)?;
    } else {
        return Err(Refusal::new(
            Code::WorkspaceForbidden,
            format!("`{}` leads git to settings of another directory", Bytes::from(commondir)),
            "someone planted it: look at it, run no git command here, then remove it",
        ));
    }
    for name in GUARDED {
        let path = repository.join(name);
        if guard_path(report, &path)? {
            continue;
        }
        let kind = match name {
            "hooks" => PlaceholderKind::EmptyDirectory,
            "config.worktree" if reads_worktree_config(repository) => PlaceholderKind::EmptyFile,
            _ => continue,
        };
        report.absent.push(Placeholder { path: Bytes::from(path), kind });
    }
    Ok(())
}

/// `extensions.worktreeConfig`: git reads `config.worktree` as well, once it is there.
fn reads_worktree_config(repository: &Path) -> bool {
    let config = read_bounded(&repository.join("config"), MAX_TEXT_BYTES);
    // One that we can't read may say so.
    config
        .is_none_or(|config| String::from_utf8_lossy(&config).to_ascii_lowercase().contains("worktreeconfig"))
}

/// Whether the path was there to protect.
fn guard_path(report: &mut HostReport, path: &Path) -> Result<bool, Refusal> {
    let Ok(stat) = rustix::fs::lstat(path) else { return Ok(false) };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_symlink() {
        return Err(planted(path));
    }
    report.deny_write.push(Match { path: Bytes::from(path), is_dir: kind.is_dir() });
    Ok(true)
}
