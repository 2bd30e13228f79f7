//! What the suite sets up before an attack, where that needs raw calls too: victims, leaked
//! descriptors, a terminal, keys. These run outside the sandbox, on the caller's side.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::Op;
use crate::verdict::{Scene, Step, Stop, argument, check, errno, held, io, number, text, unable};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("victim", victim),
    ("with-fds", with_fds),
    ("with-key", with_key),
    ("on-pty", on_pty),
    ("with-shm", with_shm),
    ("with-rusage", with_rusage),
];

/// Steps of the form `STEP ARGS... -- PROGRAM ARGS...`.
pub(crate) fn takes_the_whole_line(step: &str) -> bool {
    matches!(step, "with-fds" | "with-key" | "on-pty" | "with-shm" | "with-rusage")
}

fn program(arguments: &[String]) -> Result<&[String], Stop> {
    match arguments.iter().position(|word| word == "--") {
        Some(at) if at + 1 < arguments.len() => Ok(&arguments[at + 1..]),
        _ => unable("missing -- PROGRAM"),
    }
}

fn become_program(words: &[String]) -> Step {
    let error = Command::new(&words[0]).args(&words[1..]).exec();
    held("exec", error.raw_os_error().unwrap_or(0))
}

/// FILE SECRET: sits outside with the secret in its memory and FILE open, and lets anybody trace it
/// that the kernel lets. Ends when its stdin does.
fn victim(_: &mut Scene, arguments: &[String]) -> Step {
    let file = io("open", File::open(argument(arguments, 0, "file")?))?;
    let secret: &'static [u8] =
        Box::leak(argument(arguments, 1, "secret")?.as_bytes().to_vec().into_boxed_slice());
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    println!("READY {} {:#x} {}", std::process::id(), secret.as_ptr() as usize, file.as_raw_fd());
    let _ = std::io::stdout().flush();
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    std::process::exit(0)
}

/// FILE FD,FD,...: starts the program with those descriptors open on FILE and inheritable.
fn with_fds(_: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "file")?;
    let name = text(path);
    let fd = check("open", i64::from(unsafe { libc::open(name.as_ptr(), libc::O_RDONLY) }))? as i32;
    let wanted: Vec<i32> =
        argument(arguments, 1, "descriptors")?.split(',').filter_map(|word| word.parse().ok()).collect();
    for number in &wanted {
        check("dup2", i64::from(unsafe { libc::dup2(fd, *number) }))?;
    }
    if !wanted.contains(&fd) {
        unsafe { libc::close(fd) };
    }
    become_program(program(arguments)?)
}

/// DESCRIPTION PAYLOAD: a key in a fresh session keyring and in the user keyring, then the program.
fn with_key(_: &mut Scene, arguments: &[String]) -> Step {
    const KEYCTL_JOIN_SESSION_KEYRING: i32 = 1;
    const KEYCTL_SETPERM: i32 = 5;
    const KEYCTL_LINK: i32 = 8;
    const KEYCTL_SET_TIMEOUT: i32 = 15;
    /// The user keyring outlives the test: the kernel forgets the key by itself.
    const KEY_SECONDS: i32 = 300;
    let (kind, name) = (text("user"), text(argument(arguments, 0, "description")?));
    let payload = argument(arguments, 1, "payload")?;
    check("join", unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0) })?;
    // The user keyring is linked into the session, so that its key is possessed and may be changed.
    check("link", unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_LINK, -4i64, -3i64) })?;
    for ring in [-3i64, -4] {
        let key = unsafe {
            libc::syscall(
                libc::SYS_add_key,
                kind.as_ptr(),
                name.as_ptr(),
                payload.as_ptr(),
                payload.len(),
                ring,
            )
        };
        check("add_key", key)?;
        // Everybody may do everything with it: only a wall can be what stands in the way.
        check("setperm", unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_SETPERM, key, 0x3f3f_3f3f) })?;
        check("timeout", unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_SET_TIMEOUT, key, KEY_SECONDS) })?;
    }
    become_program(program(arguments)?)
}

/// KEY SECRET: a System V segment that everybody may read, for as long as the program runs.
fn with_shm(_: &mut Scene, arguments: &[String]) -> Step {
    let key = number(arguments, 0, "key")? as i32;
    let secret = argument(arguments, 1, "secret")?;
    let words = program(arguments)?;
    let id = check("shmget", i64::from(unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | 0o666) }))? as i32;
    let at = unsafe { libc::shmat(id, std::ptr::null(), 0) };
    if at as isize == -1 {
        return held("shmat", errno());
    }
    unsafe { std::ptr::copy_nonoverlapping(secret.as_ptr(), at.cast::<u8>(), secret.len()) };
    let status = Command::new(&words[0]).args(&words[1..]).status();
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
    let status = io("spawn", status)?;
    std::process::exit(status.code().unwrap_or(1))
}

/// Runs the program and says on stderr how much memory it had at most, in KiB.
fn with_rusage(_: &mut Scene, arguments: &[String]) -> Step {
    let words = program(arguments)?;
    let child = io("spawn", Command::new(&words[0]).args(&words[1..]).spawn())?;
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    eprintln!("MAXRSS {}", usage.ru_maxrss);
    std::process::exit(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    })
}

/// WORD: runs the program with a fresh terminal as stdio and controlling terminal, passes its output
/// on, and says at the end whether WORD was typed into that terminal (`TYPED yes|no`).
fn on_pty(_: &mut Scene, arguments: &[String]) -> Step {
    let word = argument(arguments, 0, "word")?.to_owned();
    let words = program(arguments)?;
    let (mut leader, mut follower) = (0, 0);
    let none = std::ptr::null();
    let answer =
        unsafe { libc::openpty(&raw mut leader, &raw mut follower, std::ptr::null_mut(), none, none.cast()) };
    check("openpty", i64::from(answer))?;
    // No echo: what the program prints must not look like what was typed.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    unsafe { libc::tcgetattr(follower, &raw mut modes) };
    modes.c_lflag &= !(libc::ECHO | libc::ICANON);
    modes.c_cc[libc::VMIN] = 0;
    unsafe { libc::tcsetattr(follower, libc::TCSANOW, &raw const modes) };
    let program: Vec<CString> = words
        .iter()
        .map(|word| CString::new(std::ffi::OsStr::new(word).as_bytes()).unwrap_or_default())
        .collect();
    let mut argv: Vec<*const libc::c_char> = program.iter().map(|word| word.as_ptr()).collect();
    argv.push(std::ptr::null());
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::setsid() };
        unsafe { libc::ioctl(follower, libc::TIOCSCTTY, 0) };
        for fd in 0..3 {
            unsafe { libc::dup2(follower, fd) };
        }
        unsafe { libc::close(leader) };
        unsafe { libc::close(follower) };
        unsafe { libc::execvp(argv[0], argv.as_ptr()) };
        unsafe { libc::_exit(127) };
    }
    check("fork", i64::from(child))?;
    relay(leader, child);
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    drain(leader);
    let mut typed = Vec::new();
    let mut buffer = [0u8; 4096];
    // VMIN 0: read answers at once, with what the queue holds or nothing.
    loop {
        let got = unsafe { libc::read(follower, buffer.as_mut_ptr().cast(), buffer.len()) };
        if got <= 0 {
            break;
        }
        typed.extend_from_slice(&buffer[..got as usize]);
    }
    let hit = String::from_utf8_lossy(&typed).contains(&word);
    println!("TYPED {}", if hit { "yes" } else { "no" });
    let _ = std::io::stdout().flush();
    std::process::exit(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    })
}

/// Passes output on until the program has ended.
fn relay(leader: i32, child: i32) {
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) } as i32;
    loop {
        let mut waits = [
            libc::pollfd { fd: leader, events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: pidfd, events: libc::POLLIN, revents: 0 },
        ];
        if unsafe { libc::poll(waits.as_mut_ptr(), 2, -1) } < 0 {
            return;
        }
        if waits[0].revents & libc::POLLIN != 0 && !pass(leader) {
            return;
        }
        if waits[1].revents != 0 {
            return;
        }
    }
}

fn pass(leader: i32) -> bool {
    let mut buffer = [0u8; 4096];
    let got = unsafe { libc::read(leader, buffer.as_mut_ptr().cast(), buffer.len()) };
    if got <= 0 {
        return false;
    }
    let mut out = std::io::stdout();
    let _ = out.write_all(&buffer[..got as usize]);
    let _ = out.flush();
    true
}

fn drain(leader: i32) {
    loop {
        let mut wait = libc::pollfd { fd: leader, events: libc::POLLIN, revents: 0 };
        let ready = unsafe { libc::poll(&raw mut wait, 1, 0) };
        if ready <= 0 || wait.revents & libc::POLLIN == 0 || !pass(leader) {
            return;
        }
    }
}
