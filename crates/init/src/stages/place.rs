//! Finds or makes the place in the new root that a mount goes onto: a name in an open directory. Never follows
//! a symlink and never leaves the new root: the workspace below it may be changing under us.

use core::ffi::CStr;

use stockade_nolibc::{
    Errno, Fd, make_file, mkdirat, move_onto, move_onto_name, open_below, open_create, symlinkat,
};

const NAME_MAX: usize = 255;
const PARENT_MODE: u32 = 0o755;
const EMPTY_FILE_MODE: u32 = 0o644;

/// The new root, and the directory in it that was used last: neighbours in a plan are neighbours there too.
pub(crate) struct Places {
    pub(crate) root: Fd,
    last: Option<Parent>,
}

struct Parent {
    path: &'static [u8],
    directory: Fd,
}

/// Bytes with a NUL behind them, and room for it.
pub(crate) struct Terminated<const ROOM: usize>([u8; ROOM]);

/// One path component.
type Name = Terminated<{ NAME_MAX + 1 }>;
/// As long a path as the kernel takes.
type PathBuffer = Terminated<4096>;
/// One of our own choosing.
pub(crate) type ShortPath = Terminated<64>;

impl<const ROOM: usize> Terminated<ROOM> {
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, Errno> {
        let mut text = [0; ROOM];
        text.get_mut(..bytes.len())
            .filter(|room| room.len() < ROOM)
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(bytes);
        Ok(Self(text))
    }

    pub(crate) fn as_c_str(&self) -> Result<&CStr, Errno> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Errno::INVAL)
    }

    /// A name in the directory that this is.
    pub(crate) fn join(&self, name: &CStr) -> Result<Self, Errno> {
        let (above, name) = (self.as_c_str()?.to_bytes(), name.to_bytes());
        let mut joined = Self([0; ROOM]);
        let end = above.len() + 1 + name.len();
        let room = joined.0.get_mut(..end).filter(|_| end < ROOM).ok_or(Errno::NAMETOOLONG)?;
        let (first, rest) = room.split_at_mut(above.len());
        first.copy_from_slice(above);
        rest[0] = b'/';
        rest[1..].copy_from_slice(name);
        Ok(joined)
    }
}

/// A path of the sandbox as seen from a descriptor of its root, or with that as the working directory.
pub(super) fn relative(target: &'static CStr) -> Result<&'static CStr, Errno> {
    let bytes = target.to_bytes_with_nul();
    match bytes {
        [b'/', rest @ ..] if rest.len() > 1 => CStr::from_bytes_with_nul(rest).map_err(|_| Errno::INVAL),
        _ => Err(Errno::INVAL),
    }
}

/// The directory that a path is in, seen from the root, and the last name.
fn split(target: &'static CStr) -> Result<(&'static [u8], &'static CStr), Errno> {
    let path = relative(target)?.to_bytes_with_nul();
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = slash.map_or((&[][..], path), |at| (&path[..at], &path[at + 1..]));
    match name {
        // Nothing that leads elsewhere than one step down.
        b"\0" | b".\0" | b"..\0" => Err(Errno::INVAL),
        _ => Ok((parent, CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?)),
    }
}

fn enter(base: &Fd, name: &[u8]) -> Result<Fd, Errno> {
    let name = Name::new(name)?;
    let name = name.as_c_str()?;
    match open_below(base, name) {
        Err(Errno::NOENT) => {
            mkdirat(base, name, PARENT_MODE)?;
            open_below(base, name)
        }
        other => other,
    }
}

/// Walks there from the root, making what is missing.
fn walk(root: &Fd, path: &'static [u8]) -> Result<Fd, Errno> {
    let mut names = path.split(|byte| *byte == b'/');
    let mut directory = enter(root, names.next().ok_or(Errno::INVAL)?)?;
    for name in names {
        directory = enter(&directory, name)?;
    }
    Ok(directory)
}

/// What was there before us must be what it seems: a link is ELOOP.
fn made(made: Result<(), Errno>, directory: &Fd, name: &CStr) -> Result<(), Errno> {
    match made {
        Err(Errno::EXIST) => open_below(directory, name).map(drop),
        other => other,
    }
}

impl Places {
    pub(crate) const fn new(root: Fd) -> Self {
        Self { root, last: None }
    }

    fn directory_of(&mut self, target: &'static CStr) -> Result<(&Fd, &'static CStr), Errno> {
        let (path, name) = split(target)?;
        if path.is_empty() {
            return Ok((&self.root, name));
        }
        let last = match self.last.take() {
            Some(last) if last.path == path => last,
            _ => Parent { path, directory: walk(&self.root, path)? },
        };
        Ok((&self.last.insert(last).directory, name))
    }

    /// A mount hides what was opened below its place.
    pub(crate) fn mounted(&mut self, target: &'static CStr) -> Result<(), Errno> {
        let place = relative(target)?.to_bytes();
        let is_hidden = |last: &Parent| {
            last.path.strip_prefix(place).is_some_and(|below| matches!(below, [] | [b'/', ..]))
        };
        if self.last.as_ref().is_some_and(is_hidden) {
            self.last = None;
        }
        Ok(())
    }

    pub(crate) fn make_directory(&mut self, target: &'static CStr, mode: u32) -> Result<(), Errno> {
        let (directory, name) = self.directory_of(target)?;
        made(mkdirat(directory, name, mode), directory, name)
    }

    pub(crate) fn make_file(&mut self, target: &'static CStr) -> Result<(), Errno> {
        let (directory, name) = self.directory_of(target)?;
        made(make_file(directory, name, EMPTY_FILE_MODE), directory, name)
    }

    pub(crate) fn new_file(&mut self, target: &'static CStr, mode: u32) -> Result<Fd, Errno> {
        let (directory, name) = self.directory_of(target)?;
        open_create(directory, name, mode)
    }

    pub(crate) fn symlink(&mut self, target: &'static CStr, to: &CStr) -> Result<(), Errno> {
        let (directory, name) = self.directory_of(target)?;
        symlinkat(to, directory, name)
    }

    pub(crate) fn mount(&mut self, target: &'static CStr, tree: &Fd, is_dir: bool) -> Result<(), Errno> {
        if is_dir { self.mount_directory(target, PARENT_MODE, tree) } else { self.mount_file(target, tree) }
    }

    pub(crate) fn mount_directory(
        &mut self,
        target: &'static CStr,
        mode: u32,
        tree: &Fd,
    ) -> Result<(), Errno> {
        let (directory, name) = self.directory_of(target)?;
        made(mkdirat(directory, name, mode), directory, name)?;
        move_onto_name(tree, directory, name)?;
        self.mounted(target)
    }

    pub(crate) fn mount_file(&mut self, target: &'static CStr, tree: &Fd) -> Result<(), Errno> {
        self.make_file(target)?;
        let (directory, name) = self.directory_of(target)?;
        move_onto_name(tree, directory, name)?;
        self.mounted(target)
    }

    /// On top of what has that name, which must be there: nothing is made on the way.
    pub(crate) fn cover(&mut self, target: &'static CStr, tree: &Fd) -> Result<(), Errno> {
        let (path, name) = split(target)?;
        let directory = match &self.last {
            _ if path.is_empty() => &self.root,
            Some(last) if last.path == path => &last.directory,
            Some(_) | None => {
                let directory = open_below(&self.root, PathBuffer::new(path)?.as_c_str()?)?;
                &self.last.insert(Parent { path, directory }).directory
            }
        };
        move_onto_name(tree, directory, name)?;
        self.mounted(target)
    }

    pub(crate) fn existing(&self, target: &'static CStr) -> Result<Fd, Errno> {
        open_below(&self.root, relative(target)?)
    }

    /// On top of what [`Self::existing`] found.
    pub(crate) fn mount_over(&mut self, target: &'static CStr, place: &Fd, tree: &Fd) -> Result<(), Errno> {
        move_onto(tree, place)?;
        self.mounted(target)
    }
}
