//! Processes: spawn, exec, wait, and what a process takes along.

use core::arch::asm;
use core::ffi::CStr;

use crate::call::{call, ignore, int, nr};
use crate::file::lasting_words;
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

/// Kinds of namespaces that a process can leave for new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(usize);

impl Namespaces {
    pub const NONE: Self = Self(0);
    pub const MOUNT: Self = Self(0x0002_0000);
    /// The cgroup that we are in becomes the root of what we and our children see.
    pub const CGROUP: Self = Self(0x0200_0000);
    pub const UTS: Self = Self(0x0400_0000);
    pub const IPC: Self = Self(0x0800_0000);
    /// Only for a child to be born in.
    pub const PID: Self = Self(0x2000_0000);
    pub const NET: Self = Self(0x4000_0000);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

pub fn enter_new(namespaces: Namespaces) -> Result<(), Errno> {
    // SAFETY: a number.
    let made = unsafe { call(nr::UNSHARE, [namespaces.0, 0, 0, 0, 0, 0]) };
    made.map(drop)
}

/// Goes into a network namespace that is there already.
pub fn enter_network(namespace: &Fd) -> Result<(), Errno> {
    // SAFETY: numbers only.
    let entered = unsafe { call(nr::SETNS, [namespace.raw(), Namespaces::NET.0, 0, 0, 0, 0]) };
    entered.map(drop)
}

/// `struct clone_args`, as far as every kernel with cgroups in it knows it.
#[repr(C)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A copy of this process in new namespaces, and in that cgroup, as a child of our own parent. `None` in the copy.
pub fn bear(namespaces: Namespaces, cgroup: Option<&Fd>) -> Result<Option<i32>, Errno> {
    const CLONE_PARENT: u64 = 0x8000;
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let into = cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
    let arguments = CloneArguments {
        flags: namespaces.0 as u64 | CLONE_PARENT | into,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.map_or(0, |cgroup| cgroup.raw() as u64),
    };
    let address = &raw const arguments as usize;
    // SAFETY: a whole struct, only read. It returns twice, in two processes with a memory and a stack each: the copy has
    // the same variables, one thread, and no other owner of anything in it.
    let answer = unsafe { call(nr::CLONE3, [address, size_of::<CloneArguments>(), 0, 0, 0, 0]) }?;
    let pid = i32::try_from(answer).map_err(|_| Errno::BADMSG)?;
    Ok((pid != 0).then_some(pid))
}

/// Whether others who are at work are interrupted when a process has something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eagerness {
    /// As processes are.
    Usual = 0,
    /// It waits for its turn.
    Patient = 3,
}

/// From one to the other. `false` if it was neither of them, or already so: whoever started us chose another.
pub fn change_eagerness(from: Eagerness, to: Eagerness) -> Result<bool, Errno> {
    // SAFETY: a number; nought is ourselves.
    let now = unsafe { call(nr::SCHED_GETSCHEDULER, [0; 6]) }?;
    if now != from as usize {
        return Ok(false);
    }
    let parameter = 0i32;
    // SAFETY: the parameter is a whole struct, which has one number, and only read.
    let changed =
        unsafe { call(nr::SCHED_SETSCHEDULER, [0, to as usize, &raw const parameter as usize, 0, 0, 0]) };
    changed.map(|_| true)
}

pub fn setsid() -> Result<(), Errno> {
    // SAFETY: takes nothing.
    let made = unsafe { call(nr::SETSID, [0; 6]) };
    made.map(drop)
}

/// A process group of our own, in the session that we are in.
pub fn set_own_group() -> Result<(), Errno> {
    // SAFETY: numbers; noughts are ourselves.
    let made = unsafe { call(nr::SETPGID, [0; 6]) };
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

/// Runs `child` in a new process that shares our memory and our stack below here, and gives its pid back to us
/// once it has left by `execve` or `exit`: until then we stand still, so that nothing changes under either.
/// Nothing is copied, and what it writes into `shared` is ours to read.
pub fn spawn<T>(shared: &T, child: extern "C" fn(&T) -> !) -> Result<i32, Errno> {
    const CLONE_VM: usize = 0x100;
    const CLONE_VFORK: usize = 0x4000;
    const SIGCHLD: usize = 17;
    let answer: isize;
    // SAFETY: in us only rax, rcx and r11 change. The child stands on our stack pointer and calls on from there;
    // it never comes back past `call`, and what it pushes is below anything that we will look at.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "and rsp, -16",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") nr::CLONE => answer,
            in("rdi") CLONE_VM | CLONE_VFORK | SIGCHLD,
            in("rsi") 0_usize,
            in("rdx") 0_usize,
            in("r10") 0_usize,
            in("r8") 0_usize,
            in("r12") shared,
            in("r13") child,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if answer > 0 {
        i32::try_from(answer).map_err(|_| Errno::BADMSG)
    } else {
        Err(Errno(i32::try_from(-answer).unwrap_or(i32::MAX)))
    }
}

/// Pointers to C strings, ended by null, for the life of the process.
#[derive(Debug)]
pub struct Pointers(&'static mut [usize]);

impl Pointers {
    pub fn new<'a>(strings: impl ExactSizeIterator<Item = &'a CStr>) -> Result<Self, Errno> {
        let words = lasting_words(strings.len() + 1)?;
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
