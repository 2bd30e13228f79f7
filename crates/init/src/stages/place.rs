//! Finds or makes the place in the new root that a mount goes onto. Never follows a symlink and
//! never leaves the new root: the workspace below it may be changing under us.

use core::ffi::CStr;

use stockade_nolibc::{Errno, Fd, mkdirat, open_below, open_create};

const NAME_MAX: usize = 255;
const PARENT_MODE: u32 = 0o755;
const EMPTY_FILE_MODE: u32 = 0o644;

/// A path of the sandbox as seen from a descriptor of its root.
fn relative(target: &CStr) -> Result<&CStr, Errno> {
    let bytes = target.to_bytes_with_nul();
    match bytes {
        [b'/', rest @ ..] if rest.len() > 1 => CStr::from_bytes_with_nul(rest).map_err(|_| Errno::INVAL),
        _ => Err(Errno::INVAL),
    }
}

/// One path component with its NUL.
struct Name([u8; NAME_MAX + 1]);

impl Name {
    fn new(bytes: &[u8]) -> Result<Self, Errno> {
        let mut name = [0; NAME_MAX + 1];
        name.get_mut(..bytes.len())
            .filter(|room| room.len() <= NAME_MAX)
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(bytes);
        Ok(Self(name))
    }

    fn as_c_str(&self) -> Result<&CStr, Errno> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Errno::INVAL)
    }
}

fn enter(base: &Fd, name: &Name) -> Result<Fd, Errno> {
    let name = name.as_c_str()?;
    match open_below(base, name) {
        Err(Errno::NOENT) => {
            mkdirat(base, name, PARENT_MODE)?;
            open_below(base, name)
        }
        other => other,
    }
}

/// Walks to the parent of `target`, making what is missing, and hands it on with the last name.
fn with_parent<T>(
    root: &Fd,
    target: &CStr,
    act: impl FnOnce(&Fd, &CStr) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut names = relative(target)?.to_bytes().split(|byte| *byte == b'/');
    let last = names.next_back().ok_or(Errno::INVAL)?;
    let last = Name::new(last)?;
    let mut parent: Option<Fd> = None;
    for name in names {
        let name = Name::new(name)?;
        parent = Some(enter(parent.as_ref().unwrap_or(root), &name)?);
    }
    act(parent.as_ref().unwrap_or(root), last.as_c_str()?)
}

pub(crate) fn existing(root: &Fd, target: &CStr) -> Result<Fd, Errno> {
    open_below(root, relative(target)?)
}

pub(crate) fn directory(root: &Fd, target: &CStr, mode: u32) -> Result<Fd, Errno> {
    match existing(root, target) {
        Err(Errno::NOENT) => with_parent(root, target, |parent, name| {
            mkdirat(parent, name, mode)?;
            open_below(parent, name)
        }),
        other => other,
    }
}

pub(crate) fn file(root: &Fd, target: &CStr) -> Result<Fd, Errno> {
    match existing(root, target) {
        Err(Errno::NOENT) => with_parent(root, target, |parent, name| {
            drop(open_create(parent, name, EMPTY_FILE_MODE)?);
            open_below(parent, name)
        }),
        other => other,
    }
}

pub(crate) fn new_file(root: &Fd, target: &CStr, mode: u32) -> Result<Fd, Errno> {
    with_parent(root, target, |parent, name| open_create(parent, name, mode))
}

pub(crate) fn symlink(root: &Fd, target: &CStr, to: &CStr) -> Result<(), Errno> {
    with_parent(root, target, |parent, name| stockade_nolibc::symlinkat(to, parent, name))
}
