//! The one instruction. Numbers are from the kernel's `syscall_64.tbl`.

use core::arch::asm;

use crate::Errno;

/// Arguments beyond a call's own are ignored by the kernel, so one form serves all.
///
/// # Safety
/// The caller vouches that the call, with these arguments, reads and writes only memory it may, and
/// does not return twice in one process.
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the `syscall` instruction clobbers rcx and r11 only, and the caller vouches for the rest.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    // The kernel returns -4095..=-1 for errors.
    if (-4095..0).contains(&result) {
        Err(Errno(i32::try_from(-result).unwrap_or(i32::MAX)))
    } else {
        Ok(result.cast_unsigned())
    }
}

/// For calls whose answer changes nothing: the descriptor is closed, the process is gone.
pub(crate) fn ignore(_: Result<usize, Errno>) {}

/// An int as a system call argument: the kernel reads the low 32 bits, signed.
pub(crate) const fn int(value: i32) -> usize {
    (value as isize).cast_unsigned()
}

pub(crate) mod nr {
    pub(crate) const READ: usize = 0;
    pub(crate) const WRITE: usize = 1;
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const RT_SIGACTION: usize = 13;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const IOCTL: usize = 16;
    pub(crate) const DUP2: usize = 33;
    pub(crate) const GETPID: usize = 39;
    pub(crate) const SOCKET: usize = 41;
    pub(crate) const SENDTO: usize = 44;
    pub(crate) const RECVFROM: usize = 45;
    pub(crate) const RECVMSG: usize = 47;
    pub(crate) const BIND: usize = 49;
    pub(crate) const LISTEN: usize = 50;
    pub(crate) const SETSOCKOPT: usize = 54;
    pub(crate) const CLONE: usize = 56;
    pub(crate) const EXECVE: usize = 59;
    pub(crate) const WAIT4: usize = 61;
    pub(crate) const KILL: usize = 62;
    pub(crate) const FCNTL: usize = 72;
    pub(crate) const CHDIR: usize = 80;
    pub(crate) const FCHDIR: usize = 81;
    pub(crate) const UMASK: usize = 95;
    pub(crate) const SETPGID: usize = 109;
    pub(crate) const SETSID: usize = 112;
    pub(crate) const SETGROUPS: usize = 116;
    pub(crate) const SETRESUID: usize = 117;
    pub(crate) const SETRESGID: usize = 119;
    pub(crate) const CAPGET: usize = 125;
    pub(crate) const CAPSET: usize = 126;
    pub(crate) const SCHED_SETSCHEDULER: usize = 144;
    pub(crate) const SCHED_GETSCHEDULER: usize = 145;
    pub(crate) const PIVOT_ROOT: usize = 155;
    pub(crate) const PRCTL: usize = 157;
    pub(crate) const MOUNT: usize = 165;
    pub(crate) const UMOUNT2: usize = 166;
    pub(crate) const SETHOSTNAME: usize = 170;
    pub(crate) const GETDENTS64: usize = 217;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const KEYCTL: usize = 250;
    pub(crate) const OPENAT: usize = 257;
    pub(crate) const MKDIRAT: usize = 258;
    pub(crate) const MKNODAT: usize = 259;
    pub(crate) const UNSHARE: usize = 272;
    pub(crate) const SYMLINKAT: usize = 266;
    pub(crate) const PPOLL: usize = 271;
    pub(crate) const SIGNALFD4: usize = 289;
    pub(crate) const PRLIMIT64: usize = 302;
    pub(crate) const SETNS: usize = 308;
    pub(crate) const SECCOMP: usize = 317;
    pub(crate) const STATX: usize = 332;
    pub(crate) const OPEN_TREE: usize = 428;
    pub(crate) const MOVE_MOUNT: usize = 429;
    pub(crate) const FSOPEN: usize = 430;
    pub(crate) const FSCONFIG: usize = 431;
    pub(crate) const FSMOUNT: usize = 432;
    pub(crate) const CLONE3: usize = 435;
    pub(crate) const CLOSE_RANGE: usize = 436;
    pub(crate) const OPENAT2: usize = 437;
    pub(crate) const MOUNT_SETATTR: usize = 442;
    pub(crate) const LANDLOCK_CREATE_RULESET: usize = 444;
    pub(crate) const LANDLOCK_ADD_RULE: usize = 445;
    pub(crate) const LANDLOCK_RESTRICT_SELF: usize = 446;
}
