//! Which directories a caller may have as its workspace. Compared as they really are: a symlink or `..` leads to
//! where it leads. What else a workspace must be is the planner's to say.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use stockade_proto::link::Place;
use stockade_proto::{Bytes, Code, Request, is_plain};

use crate::denied::Denied;

#[derive(Debug, Clone)]
pub struct Workspaces {
    /// Each of these, and everything below it.
    pub roots: Vec<PathBuf>,
    /// Of requests that name none.
    pub default: PathBuf,
    /// The service's own directory: commands may not change what is on record of them.
    pub state: PathBuf,
    /// Other files and directories of the service's own.
    pub closed: Vec<PathBuf>,
    /// Of the user that the service runs as.
    pub home: Option<PathBuf>,
    pub seen: Seen,
}

/// The service's own places as they really were a moment ago. They are twenty paths, and a request would wait for
/// each; what a request names is looked at each time.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Option<(Instant, Arc<Places>)>>);

/// A clone may get other paths, and looks itself.
impl Clone for Seen {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[derive(Debug)]
struct Places {
    state: PathBuf,
    /// What no command may change: records, configuration, secret, socket and programs.
    closed: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    home: Option<PathBuf>,
}

/// As long as the executor believes what it saw of the host.
const BELIEVED: Duration = Duration::from_secs(1);

/// Below the state directory, and the only place there to work in.
pub(super) const OWN: &str = "workspaces";

/// A workspace as it really is, for the executor to hold on to.
#[derive(Debug)]
pub struct Checked {
    /// Without a symlink on the way.
    pub path: Bytes,
    pub place: Place,
}

impl Workspaces {
    pub fn check(&self, request: &Request) -> Result<Checked, Denied> {
        let asked = request.workspace.as_path();
        let denied = |why: &str| {
            Denied::refuse(
                Code::WorkspaceNotAllowed,
                format!("the workspace {} {why}", request.workspace),
                "Use a directory below one of the service's `workspaces`, or add it there.",
            )
        };
        if !asked.is_absolute() {
            return Err(denied("is not an absolute path"));
        }
        let missing = |error: io::Error| {
            if let Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) = Errno::from_io_error(&error) {
                // Ours to have, not the caller's to mend.
                return Denied::refuse(
                    Code::TooBusy,
                    format!("the service can't look: {error}"),
                    "Try again.",
                )
                .after(Duration::from_secs(1));
            }
            Denied::refuse(
                Code::WorkspaceMissing,
                format!("the workspace {} can't be opened: {error}", request.workspace),
                "Create it, or give another one.",
            )
        };
        let real = found(asked).map_err(missing)?;
        let place = place(&real).map_err(|errno| missing(errno.into()))?;
        let places = self.places();
        let Places { state, closed, roots, .. } = &*places;
        if real.starts_with(state) && !real.starts_with(state.join(OWN)) {
            return Err(denied("lies among the service's own records"));
        }
        if let Some(own) = closed.iter().chain([state]).find(|own| own.starts_with(&real)) {
            return Err(denied(&format!("holds {}, which is the service's own", own.display())));
        }
        if let Some(own) = closed.iter().find(|own| real.starts_with(own)) {
            return Err(denied(&format!("lies in {}, which is the service's own", own.display())));
        }
        if let Some(settings) = places.settings_of_a_person(&real) {
            let why = format!("lies in {}, where a person's settings and keys are", settings.display());
            return Err(denied(&why));
        }
        if !roots.iter().any(|root| real.starts_with(root)) {
            return Err(denied("is not one that this service serves"));
        }
        Ok(Checked { path: Bytes::from(real), place })
    }

    fn places(&self) -> Arc<Places> {
        let mut seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*seen {
            Some((when, places)) if when.elapsed() < BELIEVED => Arc::clone(places),
            Some(_) | None => {
                let real = |paths: &[PathBuf]| paths.iter().map(|path| real_path(path)).collect();
                let places = Arc::new(Places {
                    state: real_path(&self.state),
                    closed: real(&self.closed),
                    roots: real(&self.roots),
                    home: self.home.as_deref().map(real_path),
                });
                *seen = Some((Instant::now(), Arc::clone(&places)));
                places
            }
        }
    }

    /// The workspace for a directory that a command is to start in: the default one if it is inside, else itself.
    pub fn around(&self, directory: &Path) -> PathBuf {
        if directory.starts_with(&self.default) { self.default.clone() } else { directory.to_owned() }
    }
}

impl Places {
    /// The home, what holds it, or a directory in it whose name begins with a dot (`.ssh`, `.config`), unless a root is in there too: then
    /// somebody wrote it, or it is the service's own place for workspaces.
    fn settings_of_a_person(&self, real: &Path) -> Option<PathBuf> {
        let home = self.home.as_ref()?;
        if home.starts_with(real) {
            return Some(home.clone());
        }
        let first = real.strip_prefix(home).ok()?.components().next()?;
        let hidden = first.as_os_str().as_encoded_bytes().starts_with(b".");
        let settings = hidden.then(|| home.join(first))?;
        let meant = |root: &PathBuf| root.starts_with(&settings) && real.starts_with(root);
        (!self.roots.iter().any(meant)).then_some(settings)
    }
}

/// Of what is not there, as it would be: the directory that it would be in counts.
fn real_path(path: &Path) -> PathBuf {
    if let Way::Straight | Way::Missing = way(path) {
        return path.to_owned();
    }
    for above in path.ancestors() {
        let Ok(real) = found(above) else { continue };
        let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
        return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
    }
    path.to_owned()
}

/// What is there, without a symlink on the way.
fn found(path: &Path) -> io::Result<PathBuf> {
    match way(path) {
        Way::Straight => Ok(path.to_owned()),
        Way::Missing => Err(Errno::NOENT.into()),
        Way::Unknown => path.canonicalize(),
    }
}

/// How a path leads to what is there.
enum Way {
    /// Through no symlink: the path is its own real path.
    Straight,
    /// The same, up to something that is not there.
    Missing,
    /// Through a symlink, or it can't be told: each component is to be asked for.
    Unknown,
}

/// Most paths have no symlink, which one call tells. The kernel goes from component to component and stops at the first
/// that is a symlink or is missing: one that is missing has none before it.
fn way(path: &Path) -> Way {
    if !is_plain(path) {
        return Way::Unknown;
    }
    match openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(_) => Way::Straight,
        Err(Errno::NOENT) => Way::Missing,
        Err(_) => Way::Unknown,
    }
}

/// Not through a symlink: what was one a moment ago may have been put there since.
fn place(real: &Path) -> Result<Place, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let directory = openat2(CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let stat = fstat(&directory)?;
    Ok(Place { dev: stat.st_dev, ino: stat.st_ino })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_proto::{Command, Stdin};

    fn ask(workspace: &Path) -> Request {
        Request {
            command: Command::Argv(vec![Bytes::from("true")]),
            workspace: Bytes::from(workspace),
            cwd: None,
            env: Vec::new(),
            timeout_ms: None,
            stdin: Stdin::Null,
            publish: Vec::new(),
            profile: "default".to_owned(),
        }
    }

    #[test]
    fn what_is_missing_behind_a_symlink_is_where_that_leads() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::fs::write(base.join("file"), "").unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", base.join("dangling")).unwrap();
        for (path, real) in [
            ("real", "real"),
            ("real/a/b", "real/a/b"),
            ("a/b", "a/b"),
            ("file/a", "file/a"),
            ("link", "real"),
            ("link/a/b", "real/a/b"),
            ("real/../link/a", "real/a"),
            ("dangling/a", "dangling/a"),
        ] {
            assert_eq!(real_path(&base.join(path)), base.join(real), "{path}");
        }
    }

    /// A home as a person has it, all of it served.
    #[test]
    fn what_decides_about_the_service_or_its_person_is_no_workspace() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().canonicalize().unwrap();
        let state = home.join(".local/state/stockade");
        for name in [".ssh", ".config/other", "work/.hidden", "real", ".local/state/stockade/workspaces/a"] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(home.join("real"), home.join("link")).unwrap();
        let workspaces = Workspaces {
            roots: vec![home.clone(), state.join(OWN)],
            default: home.join("work"),
            state: state.clone(),
            // Neither is there yet.
            closed: vec![home.join(".config/stockade"), home.join("link/bin/stockade-init")],
            home: Some(home.clone()),
            seen: Seen::default(),
        };
        let code = |path: &str| workspaces.check(&ask(&home.join(path))).map_err(|denied| denied.code());
        for path in ["work", "work/.hidden", ".local/state/stockade/workspaces/a"] {
            assert!(code(path).is_ok(), "{path}");
        }
        for path in
            ["", ".ssh", ".config", ".config/other", ".local/state", ".local/state/stockade", "real", "link"]
        {
            assert_eq!(code(path).unwrap_err(), Code::WorkspaceNotAllowed, "{path}");
        }
        // Made meanwhile, by whoever may write there.
        std::fs::create_dir_all(home.join(".config/stockade/profiles")).unwrap();
        let named = Workspaces { roots: vec![home.join(".config")], ..workspaces.clone() };
        for path in [".config/stockade/profiles", ".config/stockade", ".config"] {
            let denied = named.check(&ask(&home.join(path))).unwrap_err();
            assert_eq!(denied.code(), Code::WorkspaceNotAllowed, "{path}");
        }
        assert!(named.check(&ask(&home.join(".config/other"))).is_ok(), "somebody wrote it");
    }

    #[test]
    fn what_was_seen_is_believed_for_a_moment_and_not_by_a_clone() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let root = |name: &str| {
            let link = base.join("root");
            drop(std::fs::remove_file(&link));
            std::fs::create_dir_all(base.join(name)).unwrap();
            std::os::unix::fs::symlink(name, &link).unwrap();
        };
        root("one");
        let workspaces = Workspaces {
            roots: vec![base.join("root")],
            default: base.join("root"),
            state: base.join("state"),
            closed: Vec::new(),
            home: None,
            seen: Seen::default(),
        };
        let serves = |it: &Workspaces, name: &str| it.check(&ask(&base.join(name))).is_ok();
        assert!(serves(&workspaces, "one"));
        root("two");
        assert!(serves(&workspaces, "one") && !serves(&workspaces, "two"));
        assert!(serves(&workspaces.clone(), "two"));
        if let Some((when, _)) = &mut *workspaces.seen.0.lock().unwrap() {
            *when = when.checked_sub(BELIEVED).unwrap();
        }
        assert!(!serves(&workspaces, "one") && serves(&workspaces, "two"));
    }
}
