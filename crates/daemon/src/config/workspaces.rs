//! Which directories a caller may have as its workspace. Compared as they really are: a symlink or `..` leads to
//! where it leads. What else a workspace must be is the planner's to say.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
}

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
        let state = real_path(&self.state);
        if real.starts_with(&state) && !real.starts_with(state.join(OWN)) {
            return Err(denied("lies among the service's own records"));
        }
        // What no command may change: records, configuration, secret, socket and programs.
        let closed: Vec<_> = self.closed.iter().map(|path| real_path(path)).collect();
        if let Some(own) = closed.iter().chain([&state]).find(|own| own.starts_with(&real)) {
            return Err(denied(&format!("holds {}, which is the service's own", own.display())));
        }
        if let Some(own) = closed.iter().find(|own| real.starts_with(own)) {
            return Err(denied(&format!("lies in {}, which is the service's own", own.display())));
        }
        let roots: Vec<_> = self.roots.iter().map(|root| real_path(root)).collect();
        if let Some(settings) = self.settings_of_a_person(&real, &roots) {
            let why = format!("lies in {}, where a person's settings and keys are", settings.display());
            return Err(denied(&why));
        }
        if !roots.iter().any(|root| real.starts_with(root)) {
            return Err(denied("is not one that this service serves"));
        }
        Ok(Checked { path: Bytes::from(real), place })
    }

    /// The home, what holds it, or a directory in it whose name begins with a dot (`.ssh`, `.config`), unless a root is in there too: then
    /// somebody wrote it, or it is the service's own place for workspaces.
    fn settings_of_a_person(&self, real: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
        let home = real_path(self.home.as_ref()?);
        if home.starts_with(real) {
            return Some(home);
        }
        let first = real.strip_prefix(&home).ok()?.components().next()?;
        let hidden = first.as_os_str().as_encoded_bytes().starts_with(b".");
        let settings = hidden.then(|| home.join(first))?;
        let meant = |root: &PathBuf| root.starts_with(&settings) && real.starts_with(root);
        (!roots.iter().any(meant)).then_some(settings)
    }

    /// The workspace for a directory that a command is to start in: the default one if it is inside, else itself.
    pub fn around(&self, directory: &Path) -> PathBuf {
        if directory.starts_with(&self.default) { self.default.clone() } else { directory.to_owned() }
    }
}

/// Of what is not there, as it would be: the directory that it would be in counts.
fn real_path(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        let Ok(real) = found(above) else { continue };
        let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
        return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
    }
    path.to_owned()
}

/// What is there, without a symlink on the way. Most paths have none, which one call tells; otherwise each component is
/// asked for.
fn found(path: &Path) -> io::Result<PathBuf> {
    if !is_plain(path) {
        return path.canonicalize();
    }
    match openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(_) => Ok(path.to_owned()),
        Err(Errno::NOENT) => Err(Errno::NOENT.into()),
        Err(_) => path.canonicalize(),
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
        let named = Workspaces { roots: vec![home.join(".config")], ..workspaces };
        for path in [".config/stockade/profiles", ".config/stockade", ".config"] {
            let denied = named.check(&ask(&home.join(path))).unwrap_err();
            assert_eq!(denied.code(), Code::WorkspaceNotAllowed, "{path}");
        }
        assert!(named.check(&ask(&home.join(".config/other"))).is_ok(), "somebody wrote it");
    }
}
