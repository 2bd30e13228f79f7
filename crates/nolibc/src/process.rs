//! Processes: fork, exec, wait, and what a process takes along.

use core::ffi::CStr;

use crate::call::{call, ignore, int, nr};
use crate::file::map_words;
use crate::identity::prctl;
use crate::{Errno, Fd};

const PR_SET_PDEATHSIG: usize = 1;
const PR_SET_CHILD_SUBREAPER: usize = 36;
const SIGKILL: usize = 9;

pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: does not return; the loop is for the type only.
        let exited = unsafe { call(nr::EXIT_GROUP, [int(code), 0, 0, 0, 0, 0]) };
        ignore(exited);
    }
}

fn number(result: Result<usize, Errno>) -> i32 {
    result.ok().and_then(|value| i32::try_from(value).ok()).unwrap_or(0)
}

pub fn getpid() -> i32 {
    // SAFETY: takes nothing, can't fail.
    number(unsafe { call(nr::GETPID, [0; 6]) })
}

/// The cgroup that we are in becomes the root of what we and our children see.
pub fn new_cgroup_namespace() -> Result<(), Errno> {
    const CLONE_NEWCGROUP: usize = 0x0200_0000;
    // SAFETY: a number.
    let made = unsafe { call(nr::UNSHARE, [CLONE_NEWCGROUP, 0, 0, 0, 0, 0]) };
    made.map(drop)
}

pub fn setsid() -> Result<(), Errno> {
    // SAFETY: takes nothing.
    let made = unsafe { call(nr::SETSID, [0; 6]) };
    made.map(drop)
}

/// SIGKILL for us when the thread that made us is gone.
pub fn set_death_signal() -> Result<(), Errno> {
    prctl([PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0]).map(drop)
}

/// Orphans of our tree become our children where there is no PID namespace.
pub fn set_subreaper() -> Result<(), Errno> {
    prctl([PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0]).map(drop)
}

const CLOSE_RANGE_CLOEXEC: usize = 4;
const LAST_FD: u32 = u32::MAX;

fn range(first: u32, last: u32, flags: usize) -> Result<(), Errno> {
    // SAFETY: numbers only; callers own no `Fd` in the range that they go on using.
    let closed = unsafe { call(nr::CLOSE_RANGE, [first as usize, last as usize, flags, 0, 0, 0]) };
    closed.map(drop)
}

pub fn close_all_from(first: u32) -> Result<(), Errno> {
    range(first, LAST_FD, 0)
}

pub fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    range(first, last, 0)
}

/// Whatever is open from `first` on stays here and does not reach the next program.
pub fn close_on_exec_from(first: u32) -> Result<(), Errno> {
    range(first, LAST_FD, CLOSE_RANGE_CLOEXEC)
}

#[repr(C)]
struct Rlimit {
    soft: u64,
    hard: u64,
}

pub fn set_rlimit(resource: u32, value: u64) -> Result<(), Errno> {
    let limit = Rlimit { soft: value, hard: value };
    // SAFETY: `limit` is a whole struct, only read; the old value is not asked for.
    let set = unsafe { call(nr::PRLIMIT64, [0, resource as usize, &raw const limit as usize, 0, 0, 0]) };
    set.map(drop)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    Child,
    Parent { child: i32 },
}

/// A plain fork: this process has one thread, a few pages and no locks.
pub fn fork() -> Result<Forked, Errno> {
    // SAFETY: the child gets its own copy of all memory and both sides go on from here.
    let child = number(Ok(unsafe { call(nr::FORK, [0; 6]) }?));
    Ok(if child == 0 { Forked::Child } else { Forked::Parent { child } })
}

/// Pointers to C strings, ended by null, in memory of the kernel's.
#[derive(Debug)]
pub struct Pointers(&'static mut [usize]);

impl Pointers {
    pub fn new<'a>(strings: impl ExactSizeIterator<Item = &'a CStr>) -> Result<Self, Errno> {
        let words = map_words(strings.len() + 1)?;
        for (slot, string) in words.iter_mut().zip(strings) {
            *slot = string.as_ptr() as usize;
        }
        Ok(Self(words))
    }
}

/// Only returns if it failed. Strings behind the pointers live in the launch, which is never unmapped.
pub fn execve(path: &CStr, argv: &Pointers, env: &Pointers) -> Errno {
    let arguments = [path.as_ptr() as usize, argv.0.as_ptr() as usize, env.0.as_ptr() as usize, 0, 0, 0];
    // SAFETY: a C string and two null-ended arrays of C strings, only read.
    match unsafe { call(nr::EXECVE, arguments) } {
        Ok(_) => Errno::NOEXEC,
        Err(errno) => errno,
    }
}

/// Reaps any child. `None`: children are there, none has ended (`block` false).
pub fn wait_any(block: bool) -> Result<Option<(i32, i32)>, Errno> {
    const WNOHANG: usize = 1;
    const WALL: usize = 0x4000_0000;
    let mut status = 0_i32;
    let flags = WALL | if block { 0 } else { WNOHANG };
    let arguments = [usize::MAX, &raw mut status as usize, flags, 0, 0, 0];
    // SAFETY: the kernel writes one int into `status`.
    let pid = number(Ok(unsafe { call(nr::WAIT4, arguments) }?));
    Ok((pid != 0).then_some((pid, status)))
}

/// Descriptors of this process, from `/proc/self/fd`, without the one used to look.
pub fn highest_foreign_fd(directory: &Fd, allowed: i32) -> Result<Option<i32>, Errno> {
    let mut foreign = None;
    crate::numeric_entries(directory, |number| {
        if number > allowed && number != directory.number() {
            foreign = Some(number);
        }
    })?;
    Ok(foreign)
}
