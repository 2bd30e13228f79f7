//! Signals at processes that are not ours, by every call that sends one.

use crate::Op;
use crate::verdict::{Scene, Step, check, errno, held, number, unable};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("kill", kill),
    ("tgkill", tgkill),
    ("tkill", tkill),
    ("sigqueue", sigqueue),
    ("pidfd-signal", pidfd_signal),
    ("kill-all", kill_all),
    ("kill-group", kill_group),
    ("kill-pgid", kill_pgid),
    ("setown", setown),
    ("arena-kill-all", arena_kill_all),
];

fn kill(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    let signal = number(arguments, 1, "signal")? as i32;
    check("kill", i64::from(unsafe { libc::kill(pid, signal) })).map(drop)
}

fn tgkill(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")?;
    let signal = number(arguments, 1, "signal")?;
    check("tgkill", unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, signal) }).map(drop)
}

fn tkill(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")?;
    let signal = number(arguments, 1, "signal")?;
    check("tkill", unsafe { libc::syscall(libc::SYS_tkill, pid, signal) }).map(drop)
}

fn sigqueue(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    let signal = number(arguments, 1, "signal")? as i32;
    let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
    check("sigqueue", i64::from(unsafe { libc::sigqueue(pid, signal, value) })).map(drop)
}

fn pidfd_signal(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")?;
    let signal = number(arguments, 1, "signal")?;
    let pidfd = check("pidfd_open", unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    check("pidfd_send_signal", unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, 0, 0) })
        .map(drop)
}

fn ignore(signal: i32) {
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// `kill(-1)`: everyone this program may signal. The suite never lets it run outside an arena.
fn kill_all(scene: &mut Scene, arguments: &[String]) -> Step {
    let signal = number(arguments, 0, "signal")? as i32;
    ignore(signal);
    let answer = unsafe { libc::kill(-1, signal) };
    scene.loot = format!("{answer} {}", if answer < 0 { errno() } else { 0 });
    Ok(())
}

/// `kill(0)`: a process group crosses PID namespaces when it is shared.
fn kill_group(scene: &mut Scene, arguments: &[String]) -> Step {
    let signal = number(arguments, 0, "signal")? as i32;
    ignore(signal);
    check("kill(0)", i64::from(unsafe { libc::kill(0, signal) }))?;
    scene.loot = String::from("sent");
    Ok(())
}

fn kill_pgid(_: &mut Scene, arguments: &[String]) -> Step {
    let group = number(arguments, 0, "pgid")? as i32;
    let signal = number(arguments, 1, "signal")? as i32;
    ignore(signal);
    check("kill(-pgid)", i64::from(unsafe { libc::kill(-group, signal) })).map(drop)
}

/// The kernel sends the signal for us: a descriptor owned by the victim gets ready.
fn setown(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    let signal = number(arguments, 1, "signal")? as i32;
    let mut pair = [0i32; 2];
    check(
        "socketpair",
        i64::from(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) }),
    )?;
    check("F_SETOWN", i64::from(unsafe { libc::fcntl(pair[0], libc::F_SETOWN, pid) }))?;
    const F_SETSIG: i32 = 10;
    check("F_SETSIG", i64::from(unsafe { libc::fcntl(pair[0], F_SETSIG, signal) }))?;
    check(
        "O_ASYNC",
        i64::from(unsafe { libc::fcntl(pair[0], libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) }),
    )?;
    check("write", unsafe { libc::write(pair[1], b"x".as_ptr().cast(), 1) } as i64).map(drop)
}

/// Shows what `kill(-1)` does where attacker and victim share a PID namespace, without letting it
/// near the machine's own processes.
fn arena_kill_all(scene: &mut Scene, _: &[String]) -> Step {
    let uid = unsafe { libc::geteuid() };
    let mut flags = libc::CLONE_NEWPID;
    if uid != 0 {
        flags |= libc::CLONE_NEWUSER;
    }
    check("unshare", i64::from(unsafe { libc::unshare(flags) }))?;
    let init = unsafe { libc::fork() };
    if init == 0 {
        // Child, PID 1 of the arena: one victim, one attacker.
        let victim = unsafe { libc::fork() };
        if victim == 0 {
            loop {
                unsafe { libc::pause() };
            }
        }
        let attacker = unsafe { libc::fork() };
        if attacker == 0 {
            ignore(libc::SIGUSR1);
            unsafe { libc::kill(-1, libc::SIGUSR1) };
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        unsafe { libc::waitpid(attacker, &raw mut status, 0) };
        unsafe { libc::waitpid(victim, &raw mut status, 0) };
        let hit = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGUSR1;
        unsafe { libc::_exit(i32::from(!hit)) };
    }
    if init < 0 {
        return held("fork", errno());
    }
    let mut status = 0;
    unsafe { libc::waitpid(init, &raw mut status, 0) };
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        scene.loot = String::from("victim hit");
        return Ok(());
    }
    unable("the arena's victim lived")
}
