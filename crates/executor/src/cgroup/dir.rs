//! One directory of a cgroup filesystem, held open: every name below it is opened relative to it, with
//! one write per setting. Knows no policy. Tests put a fake kernel behind the same calls.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir as Listing, FileType, Mode, OFlags};

use super::error::CgroupError;

/// Group directories: the owner writes, everybody reads.
const GROUP_MODE: Mode = Mode::from_raw_mode(0o755);
/// Enough for every control file that is not a list of processes.
const CONTROL_FILE_BYTES: usize = 4096;
/// Deeper nesting of foreign groups below ours is left alone; the kernel's own default is no limit.
const MAX_NESTING: usize = 16;

#[derive(Debug)]
pub(super) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    pub(super) fn open(path: &Path) -> Result<Self, CgroupError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: path.to_path_buf() }),
            Err(source) => Err(CgroupError::Open { path: path.to_path_buf(), source: source.into() }),
        }
    }

    pub(super) fn child(&self, name: &str) -> Result<Self, CgroupError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(source) => Err(CgroupError::Open { path, source: source.into() }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        rustix::fs::mkdirat(&self.fd, name, GROUP_MODE)?;
        #[cfg(test)]
        super::fake::made(&self.path.join(name));
        Ok(())
    }

    /// rmdir and nothing else: control files vanish with their directory, and a recursive delete would
    /// only collect EPERM.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        #[cfg(test)]
        super::fake::removing(&self.path.join(name));
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// The kernel takes a control value in one write or not at all.
    pub(super) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        #[cfg(test)]
        if let Some(answer) = super::fake::write(&self.path.join(file), value) {
            return answer;
        }
        let fd = self.open_for_writing(file)?;
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&fd, value.as_bytes()))?;
        if written == value.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    pub(super) fn open_for_writing(&self, file: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, file, flags, Mode::empty())?)
    }

    pub(super) fn open_file(&self, file: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, file, flags, Mode::empty())?.into())
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        read_control(&self.open_file(file)?)
    }

    /// Names of the child directories. Names that are not UTF-8 are nobody's we know.
    pub(super) fn children(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        if rustix::fs::fstat(&self.fd).is_ok_and(|stat| is_leaf(&stat)) {
            return Ok(names);
        }
        for entry in Listing::read_from(&self.fd)? {
            let entry = entry?;
            if entry.file_type() == FileType::Directory
                && let Ok(name) = CString::from(entry.file_name()).into_string()
                && name != "."
                && name != ".."
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Processes of the child group `name` and of the groups below it. A group that is gone has none.
    pub(super) fn members(&self, name: &str) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        self.collect_members(name, &mut pids, MAX_NESTING)?;
        Ok(pids)
    }

    fn collect_members(&self, name: &str, pids: &mut Vec<u32>, depth: usize) -> io::Result<()> {
        let listed = self.open_file(&format!("{name}/cgroup.procs")).and_then(|mut file| {
            let mut text = Vec::with_capacity(CONTROL_FILE_BYTES);
            file.read_to_end(&mut text)?;
            Ok(text)
        });
        match listed {
            Ok(text) => pids.extend(parse_pids(&text)),
            Err(source) if gone(&source) => return Ok(()),
            Err(source) => return Err(source),
        }
        let leaf = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| is_leaf(&s));
        if leaf || depth == 0 {
            return Ok(());
        }
        let Ok(group) = self.child(name) else { return Ok(()) };
        group.children()?.iter().try_for_each(|child| group.collect_members(child, pids, depth - 1))
    }

    /// Removes groups that the tree made inside its own group, deepest first. Failures show in the
    /// rmdir of the group itself.
    pub(super) fn remove_nested(&self, name: &str) {
        if let Ok(group) = self.child(name) {
            group.remove_children(MAX_NESTING);
        }
    }

    fn remove_children(&self, depth: usize) {
        if depth == 0 {
            return;
        }
        for name in self.children().unwrap_or_default() {
            if let Ok(child) = self.child(&name) {
                child.remove_children(depth - 1);
            }
            self.remove(&name).ok();
        }
    }
}

/// One read: the kernel gives a control file whole. (Lists of processes come in pieces.)
pub(super) fn read_control(file: impl AsFd) -> io::Result<String> {
    let mut buffer = [0; CONTROL_FILE_BYTES];
    let length = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut buffer, 0))?;
    let text = std::str::from_utf8(&buffer[..length]).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(text.to_owned())
}

fn parse_pids(text: &[u8]) -> impl Iterator<Item = u32> {
    text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()?.trim().parse().ok())
}

/// cgroup filesystems count child directories in the link count, so that one stat tells.
fn is_leaf(stat: &rustix::fs::Stat) -> bool {
    stat.st_nlink == 2
}

/// Nothing to look for below `path`: no child group, or not there at all.
pub(super) fn is_barren(path: &Path) -> bool {
    match rustix::fs::stat(path) {
        Ok(stat) => is_leaf(&stat),
        Err(errno) => gone(&errno.into()),
    }
}

/// ENODEV is what the kernel answers through a file of a group that was removed meanwhile.
pub(super) fn gone(error: &io::Error) -> bool {
    const ENODEV: i32 = 19;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}
