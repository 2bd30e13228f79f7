//! Finds what the deny lists match below the workspace: by one stat where a glob is a plain path, by one
//! bounded walk for the others. Follows no symlink on the way. Next: `stockade_policy::plan` masks and protects.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use stockade_policy::{Globs, HostReport, Match, Needs};
use stockade_proto::{Bytes, Code, Placeholder, PlaceholderKind, Refusal};

use super::{MAX_MATCHES, list, object, open_beneath, open_directory, planted, too_large};

/// More entries than this can't be walked before every execution without being felt.
const MAX_WALK: usize = 1_000_000;

fn unreadable(workspace: &Bytes, errno: Errno) -> Refusal {
    Refusal::new(
        Code::WorkspaceMissing,
        format!("the workspace `{workspace}` can't be read: {errno}"),
        "make it readable, or give another one with --workspace DIR",
    )
}

/// Finds what `deny` and `deny-write` match below the workspace.
pub(super) fn denials(needs: &Needs, report: &mut HostReport) -> Result<(), Refusal> {
    if needs.deny.is_empty() && needs.deny_write.is_empty() {
        return Ok(());
    }
    let root = open_directory(report.workspace.path.as_path())
        .map_err(|errno| unreadable(&report.workspace.path, errno))?;
    for glob in needs.deny.literals() {
        match literal(&root, report, glob.path()) {
            Literal::Found(found) => {
                report.deny_in_place.push(found.path.clone());
                report.deny.push(found);
            }
            Literal::Unknown(errno) => return Err(unknown(report, glob.path(), errno)),
            Literal::Outside | Literal::Absent => {}
        }
    }
    for glob in needs.deny_write.literals() {
        let path = report.workspace.path.as_path().join(glob.path());
        match literal(&root, report, glob.path()) {
            Literal::Found(found) if found.path.as_path() == path => report.deny_write.push(found),
            Literal::Found(_) | Literal::Outside => return Err(planted(&path)),
            Literal::Unknown(errno) => return Err(unknown(report, glob.path(), errno)),
            Literal::Absent if glob.is_dir && path.parent().is_some_and(Path::is_dir) => {
                report
                    .absent
                    .push(Placeholder { path: Bytes::from(path), kind: PlaceholderKind::EmptyDirectory });
            }
            Literal::Absent => report
                .warnings
                .push(format!("`{}` does not exist, so its creation can't be prevented", glob.written)),
        }
    }
    if needs.deny.needs_walk() || needs.deny_write.needs_walk() {
        walk(&root, &needs.deny, &needs.deny_write, report)?;
    }
    report.deny.sort();
    report.deny.dedup();
    report.deny_write.sort();
    report.deny_write.dedup();
    Ok(())
}

enum Literal {
    Found(Match),
    /// A symlink that leads out of the workspace, where it shows nothing.
    Outside,
    Absent,
    /// Somebody has shut the way to it. From inside its owner could open that again.
    Unknown(Errno),
}

fn unknown(report: &HostReport, path: &str, errno: Errno) -> Refusal {
    Refusal::new(
        Code::WorkspaceMissing,
        format!(
            "`{path}` in the workspace `{}` is denied, and can't be looked for: {errno}",
            report.workspace.path
        ),
        "make the directories on the way to it searchable (chmod u+rx), or take the glob out of the profile",
    )
}

fn literal(root: &OwnedFd, report: &HostReport, path: &str) -> Literal {
    let whole = report.workspace.path.as_path().join(path);
    match open_beneath(root.as_fd(), Path::new(path), OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(fd) => match rustix::fs::fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(kind) if kind.is_symlink() => through_link(report, &whole),
            Ok(kind) => Literal::Found(Match { path: Bytes::from(whole), is_dir: kind.is_dir() }),
            Err(errno) => Literal::Unknown(errno),
        },
        Err(Errno::LOOP | Errno::XDEV) => through_link(report, &whole),
        Err(Errno::NOENT | Errno::NOTDIR) => Literal::Absent,
        Err(errno) => Literal::Unknown(errno),
    }
}

/// A symlink can't be masked; what it leads to can, if it is shown at all and is not the workspace itself.
fn through_link(report: &HostReport, path: &Path) -> Literal {
    let Ok(real) = object(path) else { return Literal::Outside };
    let shares = report.extras.iter().filter_map(|extra| extra.object.as_ref()).chain([&report.workspace]);
    let below = shares
        .into_iter()
        .any(|share| real.path != share.path && real.path.as_path().starts_with(share.path.as_path()));
    if below && !report.workspace.path.as_path().starts_with(real.path.as_path()) {
        Literal::Found(Match { path: real.path, is_dir: real.is_dir })
    } else {
        Literal::Outside
    }
}

struct Hit {
    relative: Vec<u8>,
    is_dir: bool,
    is_link: bool,
    denied: bool,
    /// By a glob that would match it nowhere else.
    in_place: bool,
}

/// One pass over the workspace for both lists. No stat per entry: the directory says what each one is.
fn walk(root: &OwnedFd, deny: &Globs, deny_write: &Globs, report: &mut HostReport) -> Result<(), Refusal> {
    let mut hits: Vec<Hit> = Vec::new();
    let mut stack: Vec<Vec<u8>> = vec![Vec::new()];
    let mut seen = 0_usize;
    while let Some(dir) = stack.pop() {
        let here = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&dir)) };
        let listed = open_beneath(root.as_fd(), here, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|fd| {
            list(fd.as_fd(), &mut |name, kind| {
                seen += 1;
                let relative =
                    if dir.is_empty() { name.to_vec() } else { [dir.as_slice(), b"/", name].concat() };
                let (is_dir, is_link) = (kind.is_dir(), kind.is_symlink());
                let denied = deny.matches_in_walk(&relative, is_dir || is_link);
                // A submodule's or worktree's `.git` file: rewritten, it leads git to settings of the command's own.
                let leads_git = report.guard_git && name == b".git" && kind.is_file();
                if denied || leads_git || deny_write.matches_in_walk(&relative, is_dir || is_link) {
                    let in_place = denied && !deny.match_anywhere(&relative, is_dir || is_link);
                    hits.push(Hit { relative: relative.clone(), is_dir, is_link, denied, in_place });
                }
                // Whatever it is called: a command can move what it must not see into any directory, for the next one.
                if is_dir && !denied {
                    stack.push(relative);
                }
                seen <= MAX_WALK && hits.len() <= MAX_MATCHES
            })
        });
        match listed {
            // Gone, or replaced by a link, since its parent was listed.
            Ok(()) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
            Err(errno) if dir.is_empty() => return Err(unreadable(&report.workspace.path, errno)),
            // Its owner could open it up from inside, and what it holds is unknown: none of it is shown.
            Err(_) => {
                let denied = !deny.is_empty();
                hits.push(Hit { relative: dir, is_dir: true, is_link: false, denied, in_place: false })
            }
        }
        if seen > MAX_WALK {
            return Err(too_large(&report.workspace.path, "entries", MAX_WALK));
        }
        if hits.len() > MAX_MATCHES {
            return Err(too_large(&report.workspace.path, "matches", MAX_MATCHES));
        }
    }
    for hit in hits {
        record(hit, report);
    }
    Ok(())
}

fn record(hit: Hit, report: &mut HostReport) {
    let path = report.workspace.path.as_path().join(OsStr::from_bytes(&hit.relative));
    let list_of = |report: &mut HostReport, found| {
        if hit.denied { report.deny.push(found) } else { report.deny_write.push(found) }
    };
    if !hit.is_link {
        if hit.in_place {
            report.deny_in_place.push(Bytes::from(path.as_path()));
        }
        list_of(report, Match { path: Bytes::from(path), is_dir: hit.is_dir });
        return;
    }
    match through_link(report, &path) {
        Literal::Found(found) if hit.denied => {
            // Nothing but the link's name leads there.
            report.deny_in_place.push(found.path.clone());
            report.deny.push(found);
        }
        Literal::Found(_) => report.warnings.push(format!(
            "`{}` is a symbolic link, so it can't be protected from changes",
            Bytes::from(path)
        )),
        Literal::Outside | Literal::Absent | Literal::Unknown(_) => {}
    }
}
