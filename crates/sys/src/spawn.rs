//! One clone3 for everything: namespaces, cgroup, pidfd; then straight into the next program.
//! The child shares our memory until it execs (vfork), so the size of this process costs nothing;
//! between clone and exec it makes system calls and nothing else.

use std::arch::asm;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::patience::Eager;
use crate::signal::AllBlocked;

/// Which namespaces the child is born in: those that no process can enter later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces {
    pub user: bool,
    pub pid: bool,
}

impl Namespaces {
    fn flags(self) -> u64 {
        let table = [(self.user, libc::CLONE_NEWUSER), (self.pid, libc::CLONE_NEWPID)];
        table.iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| u64::from(flag.cast_unsigned())).sum()
    }
}

#[derive(Debug)]
pub struct Spawn<'a> {
    pub namespaces: Namespaces,
    /// Born inside this cgroup v2 directory.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The program, open; its path is never looked up by the child.
    pub program: BorrowedFd<'a>,
    pub argv0: &'a CStr,
    /// Become the child's 0, 1, 2, … in this order; everything else is closed on exec.
    pub fds: &'a [BorrowedFd<'a>],
}

#[derive(Debug)]
pub struct Child {
    pub pid: u32,
    pub pidfd: OwnedFd,
}

/// libc has it in a type too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

const MAX_FDS: usize = 16;
/// Copies that the child moves down from are made here, so that none is overwritten before its turn. Below 64,
/// where the table of a process with threads grows at the price of a grace period, tens of milliseconds.
pub(crate) const ABOVE_TARGETS: i32 = 16;
/// The child calls one function without recursion or large locals. Never written by us: only the pages that it
/// touches cost anything.
const CHILD_STACK: usize = 64 * 1024;

/// What the stages of an init need in its own user namespace: setgid, setuid, setpcap, net_bind_service,
/// net_admin, sys_admin.
const AMBIENT: [usize; 6] = [6, 7, 8, 10, 12, 21];

/// Shared with the child, which runs while we are suspended.
pub(crate) struct Shared {
    pub(crate) fds: [i32; MAX_FDS],
    pub(crate) count: usize,
    program: i32,
    argv: [*const libc::c_char; 2],
    env: [*const libc::c_char; 1],
    pub(crate) keep_capabilities: bool,
    errno: i32,
}

impl Shared {
    pub(crate) const fn new(program: i32, argv0: *const libc::c_char) -> Self {
        Self {
            fds: [-1; MAX_FDS],
            count: 0,
            program,
            argv: [argv0, std::ptr::null()],
            env: [std::ptr::null()],
            keep_capabilities: false,
            errno: 0,
        }
    }
}

/// A child that ends with the usual signal.
pub(crate) fn clone_arguments(flags: u64, pidfd: *mut i32) -> libc::clone_args {
    libc::clone_args {
        flags,
        pidfd: pidfd.expose_provenance() as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    }
}

/// u128 for the alignment that the ABI wants.
type Stack = [u128; CHILD_STACK / size_of::<u128>()];

/// Starts `spawn.program` in the namespaces asked for, with an empty environment.
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<Child> {
    if spawn.fds.len() > MAX_FDS {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let sources = spawn
        .fds
        .iter()
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, ABOVE_TARGETS))
        .collect::<Result<Vec<OwnedFd>, _>>()?;
    let program = rustix::io::fcntl_dupfd_cloexec(spawn.program, ABOVE_TARGETS)?;
    let mut shared = Shared::new(program.as_raw_fd(), spawn.argv0.as_ptr());
    shared.count = sources.len();
    shared.keep_capabilities = spawn.namespaces.user;
    for (slot, source) in shared.fds.iter_mut().zip(&sources) {
        *slot = source.as_raw_fd();
    }
    let mut stack: Box<MaybeUninit<Stack>> = Box::new_uninit();
    let mut pidfd: i32 = -1;
    let mut flags = spawn.namespaces.flags();
    flags |= u64::from((libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD).cast_unsigned());
    let mut arguments = clone_arguments(0, &raw mut pidfd);
    if let Some(fd) = spawn.cgroup {
        flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::try_from(fd.as_raw_fd()).map_err(io::Error::other)?;
    }
    arguments.flags = flags;
    arguments.stack = stack.as_mut_ptr().expose_provenance() as u64;
    arguments.stack_size = CHILD_STACK as u64;
    let eager = Eager::for_now();
    let blocked = AllBlocked::new()?;
    // SAFETY: stack, arguments and `shared` outlive the child's use of them: with CLONE_VFORK we are
    // suspended until it has exec'd or exited; all signals are blocked, so no handler runs on its stack.
    let pid = unsafe { clone_into(&raw const arguments, &raw mut shared) };
    drop((blocked, eager));
    drop((sources, program));
    let pid = u32::try_from(pid)
        .map_err(|_| io::Error::from_raw_os_error(i32::try_from(-pid).unwrap_or(libc::EINVAL)))?;
    // SAFETY: clone3 succeeded, so it wrote a new descriptor that nobody else has.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // SAFETY: our own variable; the child wrote it, so the compiler must not assume that it is still 0.
    let errno = unsafe { (&raw const shared.errno).read_volatile() };
    if errno == 0 {
        return Ok(Child { pid, pidfd });
    }
    rustix::process::waitid(
        rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
        rustix::process::WaitIdOptions::EXITED,
    )?;
    Err(io::Error::from_raw_os_error(errno))
}

/// # Safety
/// `arguments` asks for CLONE_VM and CLONE_VFORK with a stack of its own, and `shared` is valid.
#[inline(never)]
unsafe fn clone_into(arguments: *const libc::clone_args, shared: *mut Shared) -> i64 {
    let answer: i64;
    // SAFETY: in the parent only rax, rcx and r11 change; the child starts on its own stack and never
    // comes back past `call`.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") arguments,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") shared,
            in("r13") child as extern "C" fn(*mut Shared) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

/// A system call without libc: its errno is the parent's.
///
/// # Safety
/// As the system call itself.
pub(crate) unsafe fn raw(number: libc::c_long, arguments: [usize; 5]) -> i64 {
    let answer: i64;
    // SAFETY: the instruction clobbers rcx and r11 only; the caller vouches for the call.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Child, on its own stack in the parent's memory, inside the new namespaces, ids not yet mapped.
extern "C" fn child(shared: *mut Shared) -> ! {
    // SAFETY: the parent keeps it alive and does not touch it while suspended.
    let shared = unsafe { &mut *shared };
    let failed = prepare_and_exec(shared);
    shared.errno = i32::try_from(-failed).unwrap_or(libc::EINVAL);
    leave()
}

pub(crate) fn leave() -> ! {
    loop {
        // SAFETY: ends this process only; the loop is for the type.
        unsafe { raw(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

pub(crate) fn fd_argument(fd: i32) -> usize {
    (fd as isize).cast_unsigned()
}

pub(crate) fn prepare_and_exec(shared: &Shared) -> i64 {
    for (target, source) in shared.fds.iter().take(shared.count).enumerate() {
        // SAFETY: changes this process's descriptor table, which is its own.
        let moved = unsafe { raw(libc::SYS_dup2, [fd_argument(*source), target, 0, 0, 0]) };
        if moved < 0 {
            return moved;
        }
    }
    if shared.keep_capabilities {
        let kept = keep_capabilities();
        if kept < 0 {
            return kept;
        }
    }
    // SAFETY: as above; what is marked goes at exec.
    let marked = unsafe {
        raw(
            libc::SYS_close_range,
            [shared.count, u32::MAX as usize, libc::CLOSE_RANGE_CLOEXEC as usize, 0, 0],
        )
    };
    if marked < 0 {
        return marked;
    }
    let arguments = [
        fd_argument(shared.program),
        c"".as_ptr().expose_provenance(),
        shared.argv.as_ptr().expose_provenance(),
        shared.env.as_ptr().expose_provenance(),
        libc::AT_EMPTY_PATH.cast_unsigned() as usize,
    ];
    // SAFETY: an empty path and two null-ended arrays, only read.
    unsafe { raw(libc::SYS_execveat, arguments) }
}

/// A uid without a mapping loses its capabilities at exec, unless they are ambient.
fn keep_capabilities() -> i64 {
    const VERSION_3: u32 = 0x2008_0522;
    let head = [VERSION_3, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: version 3 fills two sets of three words.
    let read = unsafe {
        raw(
            libc::SYS_capget,
            [head.as_ptr().expose_provenance(), sets.as_mut_ptr().expose_provenance(), 0, 0, 0],
        )
    };
    if read < 0 {
        return read;
    }
    // Inheritable = permitted; ambient needs both.
    sets[2] = sets[1];
    sets[5] = sets[4];
    // SAFETY: version 3 reads two sets of three words.
    let set = unsafe {
        raw(libc::SYS_capset, [head.as_ptr().expose_provenance(), sets.as_ptr().expose_provenance(), 0, 0, 0])
    };
    if set < 0 {
        return set;
    }
    for capability in AMBIENT {
        let arguments = [
            libc::PR_CAP_AMBIENT.cast_unsigned() as usize,
            libc::PR_CAP_AMBIENT_RAISE.cast_unsigned() as usize,
            capability,
            0,
            0,
        ];
        // SAFETY: numbers only.
        let raised = unsafe { raw(libc::SYS_prctl, arguments) };
        if raised < 0 {
            return raised;
        }
    }
    0
}
