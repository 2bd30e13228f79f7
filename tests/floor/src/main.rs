//! The barest sandbox, for `cargo xtask bench`: about what the kernel takes for walls of the same kinds as Stockade's, made by a program
//! that does nothing else. It has no libc, and the command itself is PID 1; it reads no profile, looks at no host, makes no cgroup, hands
//! out no listener, relays no output, keeps no time, verifies nothing and cleans nothing up. The walls are thinner, too: root is
//! root inside, the workspace's owners are not mapped, Landlock has the rights of its first ABI, no toolchain is shown and no name
//! protected, and what is mounted below a system path is as writable as it was. So it is no bound that something could be proven
//! by, and no sandbox to use: a figure beside it says how much of it is ours.
//!
//! `stockade-floor PLACE WORKSPACE UID_MAP GID_MAP COMMAND`: an empty directory to build in, and the maps as the kernel reads them.

#![no_std]
#![no_main]

use core::ffi::CStr;

use stockade_nolibc::{
    Arguments, Attr, CWD, Errno, Fd, Namespaces, Pointers, add_path_rule, bind, chdir, create_ruleset,
    drop_bounding_set, drop_capabilities, enter_new, execve, exit, install_filter, join_new_keyring,
    loopback_up, make_file, make_private, mkdirat, mount_new, no_new_privs, open_path, pivot_here,
    restrict_self, set_attr_at, set_hostname, spawn, symlinkat, unmount_old, wait_any,
};

mod entry {
    stockade_nolibc::runtime!(crate::floor);
}

const BY_HAND: i32 = 64;

const DIRECTORIES: [&CStr; 11] =
    [c"usr", c"etc", c"opt", c"dev", c"proc", c"tmp", c"home", c"sys", c"run", c"var", c"workspace"];
const LINKS: [(&CStr, &CStr); 4] =
    [(c"usr/bin", c"bin"), (c"usr/sbin", c"sbin"), (c"usr/lib", c"lib"), (c"usr/lib64", c"lib64")];
const SYSTEM: [(&CStr, &CStr); 3] = [(c"/usr", c"usr"), (c"/etc", c"etc"), (c"/opt", c"opt")];
const DEVICES: [(&CStr, &CStr); 6] = [
    (c"/dev/null", c"dev/null"),
    (c"/dev/zero", c"dev/zero"),
    (c"/dev/full", c"dev/full"),
    (c"/dev/random", c"dev/random"),
    (c"/dev/urandom", c"dev/urandom"),
    (c"/dev/tty", c"dev/tty"),
];
/// With the size that a private directory has.
const PRIVATE: [(&CStr, &CStr); 3] =
    [(c"tmp", c"size=256m"), (c"home", c"size=256m"), (c"dev/shm", c"size=64m")];
/// What one may read, and what one may write.
const RULES: [(&CStr, u64); 10] = [
    (c"/usr", READ),
    (c"/etc", READ),
    (c"/opt", READ),
    (c"/proc", READ),
    (c"/dev", READ),
    (c"/dev/null", READ | WRITE),
    (c"/dev/shm", READ | WRITE),
    (c"/tmp", READ | WRITE),
    (c"/home", READ | WRITE),
    (c"/workspace", READ | WRITE),
];
/// Execute, read a file, list a directory.
const READ: u64 = 0b1101;
const WRITE: u64 = 0b10;
/// Every right of the first ABI.
const HANDLED: u64 = 0x1fff;

/// Instructions of the filter `default`.
const FILTER: usize = 164;

/// What the command's process needs, which has our memory.
struct Shared {
    place: &'static CStr,
    workspace: &'static CStr,
    command: &'static CStr,
    argv: Pointers,
    env: Pointers,
    filter: [u8; FILTER * 8],
}

fn floor(arguments: Arguments) -> i32 {
    let words = [1, 2, 3, 4, 5].map(|at| arguments.get(at));
    let [Some(place), Some(workspace), Some(users), Some(groups), Some(command)] = words else {
        return BY_HAND;
    };
    match contain([place, workspace, command], [users, groups]) {
        Ok(status) => status,
        Err(Errno(number)) => number,
    }
}

fn contain([place, workspace, command]: [&'static CStr; 3], maps: [&CStr; 2]) -> Result<i32, Errno> {
    enter_user_and_pid()?;
    let others = Namespaces::MOUNT
        .and(Namespaces::UTS)
        .and(Namespaces::IPC)
        .and(Namespaces::NET)
        .and(Namespaces::CGROUP);
    enter_new(others)?;
    let [users, groups] = maps;
    put(c"/proc/self/setgroups", c"deny")?;
    put(c"/proc/self/uid_map", users)?;
    put(c"/proc/self/gid_map", groups)?;
    let argv = Pointers::new([command].into_iter())?;
    let env = Pointers::new([c"PATH=/usr/bin:/bin"].into_iter())?;
    let shared = Shared { place, workspace, command, argv, env, filter: filter() };
    spawn(&shared, first)?;
    match wait_any(true)? {
        Some((_, status)) => Ok(if status == 0 { 0 } else { 1 }),
        None => Err(Errno::CHILD),
    }
}

/// Child, the first of its PID namespace, on our memory.
extern "C" fn first(shared: &Shared) -> ! {
    match build(shared) {
        Ok(()) => exit(execve(shared.command, &shared.argv, &shared.env).0),
        Err(Errno(number)) => exit(number),
    }
}

fn build(shared: &Shared) -> Result<(), Errno> {
    join_new_keyring()?;
    set_hostname(b"stockade")?;
    loopback_up()?;
    let private = Attr::NOSUID.and(Attr::NODEV);
    let sealed = private.and(Attr::RDONLY);
    make_private()?;
    mount_new(c"tmpfs", shared.place, private, c"mode=0755")?;
    chdir(shared.place)?;
    for directory in DIRECTORIES {
        mkdirat(&CWD, directory, 0o755)?;
    }
    mkdirat(&CWD, c"dev/shm", 0o755)?;
    mkdirat(&CWD, c"dev/pts", 0o755)?;
    for (to, link) in LINKS {
        symlinkat(to, &CWD, link)?;
    }
    for (source, target) in SYSTEM {
        match bind(source, target) {
            Ok(()) => set_attr_at(target, sealed)?,
            // Not every host has all of them.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    for (source, target) in DEVICES {
        make_file(&CWD, target, 0o644)?;
        bind(source, target)?;
    }
    for (target, size) in PRIVATE {
        mount_new(c"tmpfs", target, private, size)?;
    }
    mount_new(c"devpts", c"dev/pts", Attr::NOSUID.and(Attr::NOEXEC), c"newinstance,ptmxmode=0666")?;
    mount_new(c"proc", c"proc", private.and(Attr::NOEXEC), c"")?;
    bind(c"proc/sys", c"proc/sys")?;
    set_attr_at(c"proc/sys", sealed)?;
    bind(shared.workspace, c"workspace")?;
    pivot_here()?;
    unmount_old()?;
    chdir(c"/workspace")?;
    set_attr_at(c"/", sealed)?;
    drop_bounding_set()?;
    no_new_privs()?;
    drop_capabilities()?;
    let rules = create_ruleset(HANDLED, 0)?;
    for (path, rights) in RULES {
        let place: Fd = open_path(&CWD, path)?;
        // A file has no directory to list.
        let rights = if path == c"/dev/null" { 0b110 } else { rights };
        add_path_rule(&rules, &place, rights)?;
    }
    restrict_self(&rules)?;
    install_filter(&shared.filter)
}

/// Compares the call's number with some that there are not, and lets all others pass.
fn filter() -> [u8; FILTER * 8] {
    const LOAD_NUMBER: [u8; 8] = [0x20, 0, 0, 0, 0, 0, 0, 0];
    const ALLOW: [u8; 8] = [0x06, 0, 0, 0, 0, 0, 0xff, 0x7f];
    let mut program = [0; FILTER * 8];
    for (at, instruction) in program.chunks_exact_mut(8).enumerate() {
        let [low, high] = [at.to_le_bytes()[0], 0x10];
        // Equal: the next one, which refuses. Else the one after it.
        instruction.copy_from_slice(&match at {
            0 => LOAD_NUMBER,
            _ if at + 1 >= FILTER - 1 => ALLOW,
            _ if at % 2 == 1 => [0x15, 0, 0, 1, low, high, 0, 0],
            _ => [0x06, 0, 0, 0, 1, 0, 0x05, 0],
        });
    }
    program
}

fn enter_user_and_pid() -> Result<(), Errno> {
    const UNSHARE: usize = 272;
    const NEW_USER_AND_PID: usize = 0x1000_0000 | 0x2000_0000;
    // SAFETY: a number.
    unsafe { call(UNSHARE, [NEW_USER_AND_PID, 0, 0]) }.map(drop)
}

/// Writes a file that is there.
fn put(path: &CStr, text: &CStr) -> Result<(), Errno> {
    const OPEN: usize = 2;
    const WRITE: usize = 1;
    const CLOSE: usize = 3;
    const WRITE_ONLY: usize = 1;
    // SAFETY: a C string, only read.
    let file = unsafe { call(OPEN, [path.as_ptr() as usize, WRITE_ONLY, 0]) }?;
    // SAFETY: as many bytes as the string has, only read.
    unsafe { call(WRITE, [file, text.as_ptr() as usize, text.count_bytes()]) }?;
    // SAFETY: opened above.
    unsafe { call(CLOSE, [file, 0, 0]) }.map(drop)
}

/// # Safety
/// The caller vouches for what the call does with these arguments.
unsafe fn call(number: usize, arguments: [usize; 3]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the instruction clobbers rcx and r11 only, and the caller vouches for the rest.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number.cast_signed() => result, in("rdi") arguments[0],
            in("rsi") arguments[1], in("rdx") arguments[2], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    usize::try_from(result).map_err(|_| Errno(i32::try_from(-result).unwrap_or(i32::MAX)))
}
