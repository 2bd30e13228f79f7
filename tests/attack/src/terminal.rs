//! Typing into somebody else's terminal.

use std::fs::OpenOptions;
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use crate::Op;
use crate::verdict::{Scene, Step, argument, check, errno, held, io, text, unable};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("tiocsti", tiocsti),
    ("tiocsti-own-pty", tiocsti_own_pty),
    ("tioclinux", tioclinux),
    ("has-tty", has_tty),
    ("steal-tty", steal_tty),
];

const TIOCSTI: i64 = 0x5412;
const TIOCLINUX: i64 = 0x541c;
/// The kernel cuts the request to 32 bits; a filter that compares 64 lets this one through.
const WIDE: i64 = 0x7fff_ffff_0000_0000;

/// Every terminal within reach: what stdio is, `/dev/tty`, the pts of this and of other processes.
fn terminals() -> Vec<(String, i32)> {
    let mut found: Vec<(String, i32)> = (0..3).map(|fd| (format!("fd{fd}"), fd)).collect();
    let mut names = vec![String::from("/dev/tty"), String::from("/dev/console"), String::from("/dev/tty0")];
    for pid in ["1", "self"] {
        names.extend((0..3).map(|fd| format!("/proc/{pid}/fd/{fd}")));
    }
    if let Ok(entries) = std::fs::read_dir("/dev/pts") {
        let entries = entries.flatten().map(|entry| entry.path().display().to_string());
        // Opening ptmx makes a new terminal of one's own: nobody else's.
        names.extend(entries.filter(|name| !name.ends_with("ptmx")));
    }
    for name in names {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
            .open(&name);
        if let Ok(file) = opened {
            found.push((name, file.into_raw_fd()));
        }
    }
    found
}

fn inject(fd: i32, bytes: &[u8], wide: i64) -> Result<(), i32> {
    for byte in bytes {
        let answer = unsafe { libc::syscall(libc::SYS_ioctl, fd, TIOCSTI | wide, std::ptr::from_ref(byte)) };
        if answer < 0 {
            return Err(errno());
        }
    }
    Ok(())
}

/// WORDS: typed into the first terminal that takes them.
fn tiocsti(scene: &mut Scene, arguments: &[String]) -> Step {
    let words = format!("{}\n", argument(arguments, 0, "words")?);
    let mut answers = Vec::new();
    for (name, fd) in terminals() {
        for wide in [0, WIDE] {
            match inject(fd, words.as_bytes(), wide) {
                Ok(()) => {
                    scene.loot = name;
                    return Ok(());
                }
                Err(errno) => answers.push(errno),
            }
        }
    }
    // Refused by a wall on any of them says more than "that is no terminal".
    let errno = answers.iter().copied().find(|errno| *errno != libc::ENOTTY).unwrap_or(libc::ENOTTY);
    held("TIOCSTI", errno)
}

/// On a terminal of its own making, where only a filter stands in the way.
fn tiocsti_own_pty(_: &mut Scene, arguments: &[String]) -> Step {
    let wide = if arguments.first().is_some_and(|word| word == "wide") { WIDE } else { 0 };
    let name = text("/dev/ptmx");
    let leader = check(
        "open(/dev/ptmx)",
        i64::from(unsafe { libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY) }),
    )? as i32;
    check("unlockpt", i64::from(unsafe { libc::unlockpt(leader) }))?;
    const TIOCGPTPEER: u64 = 0x5441;
    let follower = check(
        "TIOCGPTPEER",
        i64::from(unsafe { libc::ioctl(leader, TIOCGPTPEER, libc::O_RDWR | libc::O_NOCTTY) }),
    )? as i32;
    // TIOCSTI asks for the controlling terminal, or CAP_SYS_ADMIN.
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::setsid() };
        unsafe { libc::ioctl(follower, libc::TIOCSCTTY, 0) };
        let code = inject(follower, b"x", wide).err().unwrap_or(0);
        unsafe { libc::_exit(code) };
    }
    check("fork", i64::from(child))?;
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if !libc::WIFEXITED(status) {
        return held("killed", libc::WTERMSIG(status));
    }
    match libc::WEXITSTATUS(status) {
        0 => Ok(()),
        code => held("TIOCSTI", code),
    }
}

/// Selection and paste on a virtual console: another way to type.
fn tioclinux(scene: &mut Scene, arguments: &[String]) -> Step {
    let wide = if arguments.first().is_some_and(|word| word == "wide") { WIDE } else { 0 };
    let mut last = libc::ENOTTY;
    for (name, fd) in terminals() {
        // Subcode 6 asks for the shift state: harmless where it wins.
        let mut subcode = 6u8;
        if unsafe { libc::syscall(libc::SYS_ioctl, fd, TIOCLINUX | wide, &raw mut subcode) } >= 0 {
            scene.loot = name;
            return Ok(());
        }
        if errno() != libc::ENOTTY {
            last = errno();
        }
    }
    held("TIOCLINUX", last)
}

fn has_tty(_: &mut Scene, _: &[String]) -> Step {
    io("open", OpenOptions::new().read(true).write(true).open("/dev/tty")).map(drop)
}

/// Makes a reachable terminal this session's own.
fn steal_tty(scene: &mut Scene, _: &[String]) -> Step {
    unsafe { libc::setsid() };
    let mut last = libc::ENOTTY;
    for (name, fd) in terminals() {
        if unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 1) } == 0 {
            scene.loot = name;
            return Ok(());
        }
        last = errno();
    }
    if last == 0 { unable("no terminal at all") } else { held("TIOCSCTTY", last) }
}
