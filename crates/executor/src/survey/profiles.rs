//! Profile files by place, read with the distrust each place deserves. Next: `stockade_policy::resolve`.

use std::borrow::Cow;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode as FileMode, OFlags};
use rustix::io::Errno;
use stockade_policy::{Caller, Object, Place, ProfileText, Sources};
use stockade_proto::{Bytes, Code, Refusal};

use super::{MAX_MATCHES, open_beneath, open_directory, read_regular, real_path};

/// A profile is a page of text; this bounds what a hostile repository can make us parse.
pub(super) const MAX_PROFILE_BYTES: u64 = 256 * 1024;

/// The bytes of a profile that someone named by path.
pub fn read_profile(path: &Path) -> Result<Vec<u8>, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, FileMode::empty())
        .map_err(|errno| format!("can't be opened: {errno}"))?;
    read_regular(fd, MAX_PROFILE_BYTES)
}

/// Profile files by place. The workspace's own is read without following any symlink; the user's and the
/// system's must be writable by nobody else and lie outside the workspace.
#[derive(Debug)]
pub struct Profiles {
    workspace: Option<PathBuf>,
    user: PathBuf,
    system: PathBuf,
    uid: u32,
}

impl Profiles {
    pub fn new(caller: &Caller, workspace: Option<&Object>) -> Self {
        let config = match caller.variable("XDG_CONFIG_HOME").filter(|path| path.as_path().is_absolute()) {
            Some(path) => path.to_path_buf(),
            None => caller.home.as_path().join(".config"),
        };
        Self {
            workspace: workspace.map(|workspace| workspace.path.to_path_buf()),
            user: config.join("stockade/profiles"),
            system: PathBuf::from("/etc/stockade/profiles"),
            uid: caller.uid,
        }
    }

    pub(super) fn without_workspace(self) -> Self {
        Self { workspace: None, ..self }
    }

    /// Where profiles of a place lie; the built-ins lie nowhere.
    pub fn directory(&self, place: Place) -> Option<PathBuf> {
        match place {
            Place::Workspace => self.workspace.as_ref().map(|workspace| workspace.join(".stockade")),
            Place::User => Some(self.user.clone()),
            Place::System => Some(self.system.clone()),
            Place::BuiltIn => None,
        }
    }

    fn open_workspace(workspace: &Path, name: &str) -> Result<Option<OwnedFd>, String> {
        let root = open_directory(workspace).map_err(|errno| format!("can't be read: {errno}"))?;
        let path = PathBuf::from(format!(".stockade/{name}.toml"));
        match open_beneath(root.as_fd(), &path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => Err("is, or lies behind, a symbolic link".to_owned()),
            Err(errno) => Err(format!("can't be opened: {errno}")),
        }
    }

    fn open_trusted(&self, path: &Path) -> Result<Option<OwnedFd>, String> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, FileMode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(format!("can't be opened: {errno}")),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| format!("can't be read: {errno}"))?;
        if stat.st_uid != 0 && stat.st_uid != self.uid {
            return Err(format!("belongs to user {}, neither to you nor to root", stat.st_uid));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err("can be written by others".to_owned());
        }
        let real = real_path(&fd).map_err(|errno| format!("can't be found: {errno}"))?;
        match &self.workspace {
            Some(workspace) if real.as_path().starts_with(workspace) => {
                Err("lies in the workspace, where commands could change it".to_owned())
            }
            Some(_) | None => Ok(Some(fd)),
        }
    }
}

impl Sources for Profiles {
    fn find(&self, place: Place, name: &str) -> Result<Option<ProfileText>, Refusal> {
        let Some(directory) = self.directory(place).filter(|_| stockade_policy::is_profile_name(name)) else {
            return Ok(None);
        };
        let file = directory.join(format!("{name}.toml"));
        let opened = match (place, &self.workspace) {
            (Place::Workspace, Some(workspace)) => Self::open_workspace(workspace, name),
            (Place::Workspace | Place::User | Place::System | Place::BuiltIn, _) => self.open_trusted(&file),
        };
        let refuse = |why: String| {
            Refusal::new(
                Code::ProfileInvalid,
                format!("the profile `{}` {why}", Bytes::from(file.as_path())),
                "make it a regular UTF-8 file that only you or root can write",
            )
        };
        let Some(fd) = opened.map_err(refuse)? else { return Ok(None) };
        let bytes = read_regular(fd, MAX_PROFILE_BYTES).map_err(refuse)?;
        let text = String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8".to_owned()))?;
        Ok(Some(ProfileText {
            place,
            name: name.to_owned(),
            file: Bytes::from(file),
            text: Cow::Owned(text),
        }))
    }

    fn names(&self) -> Vec<String> {
        Place::ALL
            .into_iter()
            .filter_map(|place| fs::read_dir(self.directory(place)?).ok())
            .flat_map(|entries| entries.flatten().take(MAX_MATCHES))
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
            .filter(|name| stockade_policy::is_profile_name(name))
            .collect()
    }
}
