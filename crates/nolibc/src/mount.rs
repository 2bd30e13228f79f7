//! The mount API: contexts, trees, attributes, pivot.

use core::ffi::CStr;

use crate::call::{call, nr};
use crate::{CWD, Errno, Fd};

const AT_EMPTY_PATH: usize = 0x1000;
const AT_SYMLINK_NOFOLLOW: usize = 0x100;
const AT_RECURSIVE: usize = 0x8000;
const OPEN_TREE_CLONE: usize = 1;
const OPEN_TREE_CLOEXEC: usize = 0o2_000_000;
const MOVE_MOUNT_FROM_EMPTY: usize = 0x04;
const MOVE_MOUNT_BOTH_EMPTY: usize = MOVE_MOUNT_FROM_EMPTY | 0x40;
const FSOPEN_CLOEXEC: usize = 1;
const FSCONFIG_SET_STRING: usize = 1;
const FSCONFIG_CMD_CREATE: usize = 6;
const FSMOUNT_CLOEXEC: usize = 1;
const MNT_DETACH: usize = 2;
const MS_REC_PRIVATE: usize = 0x4000 | 0x4_0000;

/// Mount attributes, as `mount_setattr` numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr(u64);

impl Attr {
    pub const RDONLY: Self = Self(1);
    pub const NOSUID: Self = Self(2);
    pub const NODEV: Self = Self(4);
    pub const NOEXEC: Self = Self(8);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

fn change(tree: &Fd, flags: usize, attr: Attr) -> Result<(), Errno> {
    let attr = MountAttr { set: attr.0, clear: 0, propagation: 0, userns_fd: 0 };
    let arguments = [
        tree.raw(),
        c"".as_ptr() as usize,
        AT_EMPTY_PATH | flags,
        &raw const attr as usize,
        size_of::<MountAttr>(),
        0,
    ];
    // SAFETY: the path is an empty C string and `attr` a whole struct; both are only read.
    let changed = unsafe { call(nr::MOUNT_SETATTR, arguments) };
    changed.map(drop)
}

pub fn set_attr(tree: &Fd, attr: Attr) -> Result<(), Errno> {
    change(tree, 0, attr)
}

pub fn set_attr_recursive(tree: &Fd, attr: Attr) -> Result<(), Errno> {
    change(tree, AT_RECURSIVE, attr)
}

/// A detached copy of the mounts at and below `place`. Always with what is mounted below: in a user
/// namespace the kernel refuses to uncover what inherited mounts hide.
pub fn bind_tree(place: &Fd) -> Result<Fd, Errno> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH;
    // SAFETY: the path is an empty C string.
    let tree = unsafe { call(nr::OPEN_TREE, [place.raw(), c"".as_ptr() as usize, flags, 0, 0, 0]) };
    Fd::from_result(tree?)
}

/// The same for a name in a directory; a link is not followed.
pub fn bind_tree_at(directory: &Fd, name: &CStr) -> Result<Fd, Errno> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW;
    // SAFETY: the path is a C string.
    let tree = unsafe { call(nr::OPEN_TREE, [directory.raw(), name.as_ptr() as usize, flags, 0, 0, 0]) };
    Fd::from_result(tree?)
}

/// Attaches a detached tree on top of what `name` is in `directory`. A link is covered, not followed.
pub fn move_onto_name(tree: &Fd, directory: &Fd, name: &CStr) -> Result<(), Errno> {
    let (empty, name) = (c"".as_ptr() as usize, name.as_ptr() as usize);
    // SAFETY: both paths are C strings.
    let moved =
        unsafe { call(nr::MOVE_MOUNT, [tree.raw(), empty, directory.raw(), name, MOVE_MOUNT_FROM_EMPTY, 0]) };
    moved.map(drop)
}

/// Attaches a detached tree on top of `place`.
pub fn move_onto(tree: &Fd, place: &Fd) -> Result<(), Errno> {
    let empty = c"".as_ptr() as usize;
    // SAFETY: both paths are empty C strings.
    let moved =
        unsafe { call(nr::MOVE_MOUNT, [tree.raw(), empty, place.raw(), empty, MOVE_MOUNT_BOTH_EMPTY, 0]) };
    moved.map(drop)
}

/// A new file system of this type, as a detached mount.
pub fn fs_context(kind: &CStr, options: &[(&CStr, &CStr)], attr: Attr) -> Result<Fd, Errno> {
    // SAFETY: `kind` is a C string.
    let context = unsafe { call(nr::FSOPEN, [kind.as_ptr() as usize, FSOPEN_CLOEXEC, 0, 0, 0, 0]) };
    let context = Fd::from_result(context?)?;
    for (key, value) in options {
        let arguments =
            [context.raw(), FSCONFIG_SET_STRING, key.as_ptr() as usize, value.as_ptr() as usize, 0, 0];
        // SAFETY: key and value are C strings, only read.
        unsafe { call(nr::FSCONFIG, arguments) }?;
    }
    // SAFETY: this command takes no pointer.
    unsafe { call(nr::FSCONFIG, [context.raw(), FSCONFIG_CMD_CREATE, 0, 0, 0, 0]) }?;
    let attr = usize::try_from(attr.0).map_err(|_| Errno::INVAL)?;
    // SAFETY: three numbers.
    let mounted = unsafe { call(nr::FSMOUNT, [context.raw(), FSMOUNT_CLOEXEC, attr, 0, 0, 0]) };
    Fd::from_result(mounted?)
}

/// The mounts at and below `source` once more at `target`. One call where a tree takes three; but links on the way are
/// followed, so only for names that nobody else can change.
pub fn bind(source: &CStr, target: &CStr) -> Result<(), Errno> {
    const MS_BIND_REC: usize = 0x1000 | 0x4000;
    let (source, target) = (source.as_ptr() as usize, target.as_ptr() as usize);
    // SAFETY: type and data are null; both paths are C strings.
    let bound = unsafe { call(nr::MOUNT, [source, target, 0, MS_BIND_REC, 0, 0]) };
    bound.map(drop)
}

/// The mounts at and below `source` at `target` instead, as [`bind`] has it.
pub fn move_mount(source: &CStr, target: &CStr) -> Result<(), Errno> {
    let (source, target) = (source.as_ptr() as usize, target.as_ptr() as usize);
    // SAFETY: both paths are C strings.
    let moved = unsafe { call(nr::MOVE_MOUNT, [CWD.raw(), source, CWD.raw(), target, 0, 0]) };
    moved.map(drop)
}

/// A new file system at `target`, as [`bind`] has it.
pub fn mount_new(kind: &CStr, target: &CStr, attr: Attr, options: &CStr) -> Result<(), Errno> {
    // Numbered alike as far as they go.
    let flags = usize::try_from(attr.0).map_err(|_| Errno::INVAL)?;
    let (kind, options) = (kind.as_ptr() as usize, options.as_ptr() as usize);
    // SAFETY: all four are C strings, only read.
    let mounted = unsafe { call(nr::MOUNT, [kind, target.as_ptr() as usize, kind, flags, options, 0]) };
    mounted.map(drop)
}

/// [`set_attr`] for what is mounted at a path.
pub fn set_attr_at(path: &CStr, attr: Attr) -> Result<(), Errno> {
    let attr = MountAttr { set: attr.0, clear: 0, propagation: 0, userns_fd: 0 };
    let arguments =
        [CWD.raw(), path.as_ptr() as usize, 0, &raw const attr as usize, size_of::<MountAttr>(), 0];
    // SAFETY: a C string and a whole struct; both are only read.
    let changed = unsafe { call(nr::MOUNT_SETATTR, arguments) };
    changed.map(drop)
}

/// No mount event crosses the border in either direction.
pub fn make_private() -> Result<(), Errno> {
    // SAFETY: source, type and data are null; the target is a C string.
    let made = unsafe { call(nr::MOUNT, [0, c"/".as_ptr() as usize, 0, MS_REC_PRIVATE, 0, 0]) };
    made.map(drop)
}

/// Makes the current directory the root and stacks the old root on top of it.
pub fn pivot_here() -> Result<(), Errno> {
    let here = c".".as_ptr() as usize;
    // SAFETY: both paths are C strings.
    let pivoted = unsafe { call(nr::PIVOT_ROOT, [here, here, 0, 0, 0, 0]) };
    pivoted.map(drop)
}

/// Lets go of what is mounted there, with all that is mounted on it.
pub fn unmount(path: &CStr) -> Result<(), Errno> {
    const UMOUNT_NOFOLLOW: usize = 8;
    let flags = MNT_DETACH | UMOUNT_NOFOLLOW;
    // SAFETY: the path is a C string.
    let unmounted = unsafe { call(nr::UMOUNT2, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) };
    unmounted.map(drop)
}

/// Lets go of the old root after [`pivot_here`], and of what is mounted on it.
pub fn unmount_old() -> Result<(), Errno> {
    // SAFETY: the path is a C string.
    let unmounted = unsafe { call(nr::UMOUNT2, [c".".as_ptr() as usize, MNT_DETACH, 0, 0, 0, 0]) };
    unmounted.map(drop)
}
