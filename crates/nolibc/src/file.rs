//! Files and directories.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::call::{call, nr};
use crate::{CWD, Errno, Fd};

const O_PATH: u64 = 0o10_000_000;
const O_CLOEXEC: u64 = 0o2_000_000;
const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_WRONLY: u64 = 0o1;

const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_BENEATH: u64 = 0x08;

const AT_EMPTY_PATH: usize = 0x1000;
const STATX_TYPE_INO: usize = 0x0001 | 0x0100;
const STATX_SIZE: usize = 0x0200;
const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;
const AT_SYMLINK_NOFOLLOW: usize = 0x100;

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

fn open_how(base: &Fd, path: &CStr, how: &OpenHow) -> Result<Fd, Errno> {
    let arguments =
        [base.raw(), path.as_ptr() as usize, &raw const *how as usize, size_of::<OpenHow>(), 0, 0];
    // SAFETY: `path` is NUL-terminated and `how` is a whole struct; the kernel only reads both.
    let opened = unsafe { call(nr::OPENAT2, arguments) };
    Fd::from_result(opened?)
}

/// Opens for use as a place (`O_PATH`) without following any symlink: every path here was resolved
/// before, so a link on the way means that someone is moving things under us.
pub fn open_path(base: &Fd, path: &CStr) -> Result<Fd, Errno> {
    open_how(
        base,
        path,
        &OpenHow { flags: O_PATH | O_CLOEXEC, mode: 0, resolve: RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS },
    )
}

/// The same, strictly below `base`.
pub fn open_below(base: &Fd, path: &CStr) -> Result<Fd, Errno> {
    open_how(
        base,
        path,
        &OpenHow {
            flags: O_PATH | O_CLOEXEC,
            mode: 0,
            resolve: RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH,
        },
    )
}

/// Opens for reading, by the call that a system call filter leaves open.
pub fn openat(base: &Fd, path: &CStr) -> Result<Fd, Errno> {
    let flags = usize::try_from(O_CLOEXEC).unwrap_or(0);
    // SAFETY: `path` is NUL-terminated and only read.
    let opened = unsafe { call(nr::OPENAT, [base.raw(), path.as_ptr() as usize, flags, 0, 0, 0]) };
    Fd::from_result(opened?)
}

pub fn open_create(base: &Fd, path: &CStr, mode: u32) -> Result<Fd, Errno> {
    open_how(
        base,
        path,
        &OpenHow {
            flags: O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
            mode: u64::from(mode),
            resolve: RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
        },
    )
}

pub fn mkdirat(base: &Fd, path: &CStr, mode: u32) -> Result<(), Errno> {
    // SAFETY: `path` is NUL-terminated and only read.
    let made = unsafe { call(nr::MKDIRAT, [base.raw(), path.as_ptr() as usize, mode as usize, 0, 0, 0]) };
    made.map(drop)
}

/// An empty regular file, which must not be there yet.
pub fn make_file(base: &Fd, path: &CStr, mode: u32) -> Result<(), Errno> {
    const S_IFREG: u32 = 0o100_000;
    let arguments = [base.raw(), path.as_ptr() as usize, (S_IFREG | mode) as usize, 0, 0, 0];
    // SAFETY: `path` is NUL-terminated and only read.
    let made = unsafe { call(nr::MKNODAT, arguments) };
    made.map(drop)
}

pub fn symlinkat(to: &CStr, base: &Fd, path: &CStr) -> Result<(), Errno> {
    let arguments = [to.as_ptr() as usize, base.raw(), path.as_ptr() as usize, 0, 0, 0];
    // SAFETY: both strings are NUL-terminated and only read.
    let made = unsafe { call(nr::SYMLINKAT, arguments) };
    made.map(drop)
}

pub fn chdir(path: &CStr) -> Result<(), Errno> {
    // SAFETY: `path` is NUL-terminated and only read.
    let changed = unsafe { call(nr::CHDIR, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    changed.map(drop)
}

pub fn fchdir(fd: &Fd) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    let changed = unsafe { call(nr::FCHDIR, [fd.raw(), 0, 0, 0, 0, 0]) };
    changed.map(drop)
}

pub fn read(fd: &Fd, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
    unsafe { call(nr::READ, [fd.raw(), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) }
}

pub fn write(fd: &Fd, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
    unsafe { call(nr::WRITE, [fd.raw(), bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }
}

/// The parts of `struct statx` that are used, at their places in its 256 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub is_dir: bool,
    pub size: u64,
}

pub fn stat(fd: &Fd) -> Result<Stat, Errno> {
    stat_at(fd, c"", AT_EMPTY_PATH)
}

pub(crate) fn length(path: &CStr) -> Result<u64, Errno> {
    stat_at(&CWD, path, 0).map(|stat| stat.size)
}

fn stat_at(base: &Fd, path: &CStr, flags: usize) -> Result<Stat, Errno> {
    let buffer = statx(base, path, flags, STATX_TYPE_INO | STATX_SIZE)?;
    // Offsets: mode u16 at 28, ino u64 at 32, size u64 at 40, dev_major u32 at 136, dev_minor u32 at 140.
    let mode = (buffer[3] >> 32) & 0xffff;
    let major = buffer[17] & 0xffff_ffff;
    let minor = buffer[17] >> 32;
    // The encoding that `stat(2)` and Rust's `MetadataExt::dev` use.
    let dev = (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32);
    Ok(Stat { dev, ino: buffer[4], is_dir: mode & 0o170_000 == 0o040_000, size: buffer[5] })
}

/// Whether something is mounted at that very place. A link is not followed.
pub fn is_mount_root(path: &CStr) -> Result<bool, Errno> {
    let buffer = statx(&CWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE_INO)?;
    // Attributes u64 at 8, which of them the kernel knows u64 at 56.
    if buffer[7] & STATX_ATTR_MOUNT_ROOT == 0 {
        return Err(Errno::INVAL);
    }
    Ok(buffer[1] & STATX_ATTR_MOUNT_ROOT != 0)
}

/// `struct statx`, in words.
fn statx(base: &Fd, path: &CStr, flags: usize, mask: usize) -> Result<[u64; 32], Errno> {
    let mut buffer = [0_u64; 32];
    let arguments = [base.raw(), path.as_ptr() as usize, flags, mask, buffer.as_mut_ptr() as usize, 0];
    // SAFETY: `struct statx` is 256 bytes, the size of `buffer`; the path is a C string.
    let answered = unsafe { call(nr::STATX, arguments) };
    answered?;
    Ok(buffer)
}

/// Maps a whole file read-only for the life of the process. Only for a sealed memfd: nobody can
/// shrink or change it afterwards.
pub fn map_file(fd: &Fd) -> Result<&'static [u8], Errno> {
    const PROT_READ: usize = 1;
    const MAP_PRIVATE: usize = 2;
    let size = usize::try_from(stat(fd)?.size).map_err(|_| Errno::INVAL)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
    let mapped = unsafe { call(nr::MMAP, [0, size, PROT_READ, MAP_PRIVATE, fd.raw(), 0]) };
    let address = core::ptr::with_exposed_provenance::<u8>(mapped?);
    // SAFETY: `size` bytes are mapped at `address`, never unmapped, and the file is sealed.
    Ok(unsafe { core::slice::from_raw_parts(address, size) })
}

/// Enough for most: a mapping from the kernel costs more than what is put into it.
const OWN_WORDS: usize = 1024;

/// Memory of the program's own, given out once, piece by piece.
struct OwnWords {
    words: UnsafeCell<[usize; OWN_WORDS]>,
    given: AtomicUsize,
}

// SAFETY: every word is given to one caller, by an atomic count.
unsafe impl Sync for OwnWords {}

static OWN: OwnWords = OwnWords { words: UnsafeCell::new([0; OWN_WORDS]), given: AtomicUsize::new(0) };

fn own_words(count: usize) -> Option<&'static mut [usize]> {
    let room = |given: usize| given.checked_add(count).filter(|end| *end <= OWN_WORDS);
    let start = OWN.given.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
    // SAFETY: `start` is within it.
    let first = unsafe { OWN.words.get().cast::<usize>().add(start) };
    // SAFETY: so is `start + count`; these words are given to nobody else, and they are as at the start: zero.
    Some(unsafe { core::slice::from_raw_parts_mut(first, count) })
}

/// Room for pointers (`argv`, `envp`) for the life of the process.
pub(crate) fn lasting_words(count: usize) -> Result<&'static mut [usize], Errno> {
    own_words(count).map_or_else(|| map_words(count), Ok)
}

fn map_words(count: usize) -> Result<&'static mut [usize], Errno> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
    let size = count.checked_mul(size_of::<usize>()).ok_or(Errno::INVAL)?.max(1);
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    let mapped = unsafe { call(nr::MMAP, [0, size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, usize::MAX, 0]) };
    let address = core::ptr::with_exposed_provenance_mut::<usize>(mapped?);
    // SAFETY: page-aligned, zeroed, `size` bytes long, owned by nobody else, never unmapped.
    Ok(unsafe { core::slice::from_raw_parts_mut(address, count) })
}

/// Bytes that last as long as the process.
pub fn lasting_bytes(count: usize) -> Result<&'static mut [u8], Errno> {
    let words = lasting_words(count.div_ceil(size_of::<usize>()))?;
    // SAFETY: every byte of a word is one; nobody else has them; and `count` is no more than there are.
    Ok(unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), count) })
}

/// A list in memory that lasts as long as the process: there is no other.
#[derive(Debug)]
pub struct List<T: Copy + 'static> {
    slots: &'static mut [MaybeUninit<T>],
    length: usize,
}

impl<T: Copy> List<T> {
    pub fn with_room(count: usize) -> Result<Self, Errno> {
        let size = count.checked_mul(size_of::<T>()).ok_or(Errno::INVAL)?;
        let words = lasting_words(size.div_ceil(size_of::<usize>()))?;
        const { assert!(align_of::<T>() <= align_of::<usize>()) };
        // SAFETY: aligned for words, so for `T`; long enough for `count` of them; nobody else has it; and what is not
        // initialized is not claimed to be.
        let slots = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), count) };
        Ok(Self { slots, length: 0 })
    }

    pub fn push(&mut self, item: T) -> Result<(), Errno> {
        self.slots.get_mut(self.length).ok_or(Errno::INVAL)?.write(item);
        self.length += 1;
        Ok(())
    }

    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let filled = &mut self.slots[..self.length];
        // SAFETY: `push` has written each of these.
        unsafe { filled.assume_init_mut() }
    }

    pub fn as_slice(&self) -> &[T] {
        let filled = &self.slots[..self.length];
        // SAFETY: `push` has written each of these.
        unsafe { filled.assume_init_ref() }
    }
}

/// Calls `each` with every directory entry that is a number (`/proc`: processes, `/proc/self/fd`: descriptors).
pub fn numeric_entries(directory: &Fd, mut each: impl FnMut(i32)) -> Result<(), Errno> {
    let mut buffer = [0_u8; 4096];
    loop {
        let arguments = [directory.raw(), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
        let filled = unsafe { call(nr::GETDENTS64, arguments) }?;
        if filled == 0 {
            return Ok(());
        }
        // Each record: ino 8, offset 8, length u16 at 16, type at 18, name from 19 to a NUL.
        let mut rest = &buffer[..filled];
        while rest.len() > 19 {
            let length = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
            let record = rest.get(..length).ok_or(Errno::BADMSG)?;
            let name = CStr::from_bytes_until_nul(&record[19..]).map_err(|_| Errno::BADMSG)?;
            if let Some(number) = name.to_str().ok().and_then(|text| text.parse().ok()) {
                each(number);
            }
            rest = &rest[length..];
        }
    }
}
