//! Starts the command: a child of ours, so that PID 1 stays and reaps.

use stockade_launch::{FromInit, Launch, MAX_MESSAGE};
use stockade_nolibc::{
    Errno, Fd, Forked, Pointers, chdir, close_on_exec_from, close_range, execve, exit, fork, pipe, read,
    reset_all, send, set_death_signal, set_dumpable, set_rlimit, setsid, unblock_all, write,
};

use crate::context::{About, Context, Failure};

const USUAL_UMASK: u32 = 0o022;

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    // Same-uid processes inside must not read or trace PID 1. Not earlier: an undumpable process has a `/proc`
    // directory owned by root, and the executor needs ours for the id maps and for what we offer.
    set_dumpable(false)?;
    chdir(launch.cwd).about(launch.cwd.to_bytes())?;
    let argv = Pointers::new(launch.argv)?;
    let env = Pointers::new(launch.env)?;
    let (verdict, report) = pipe()?;
    match fork()? {
        Forked::Child => child(&launch, &argv, &env, &report),
        Forked::Parent { child } => {
            drop(report);
            started(&verdict)?;
            // The command's standard streams are its own: ours would keep its pipes open.
            close_range(0, 2)?;
            context.command = child;
            let mut buffer = [0; MAX_MESSAGE];
            let length = FromInit::Started.encode(&mut buffer);
            send(&context.control, &buffer[..length])?;
            Ok(())
        }
    }
}

/// End of file: `execve` closed the pipe. Otherwise four bytes of errno.
fn started(verdict: &Fd) -> Result<(), Failure> {
    let mut errno = [0; 4];
    loop {
        match read(verdict, &mut errno) {
            Ok(0) => return Ok(()),
            Ok(4) => return Err(Errno(i32::from_ne_bytes(errno)).into()),
            Ok(_) => return Err(Errno::BADMSG.into()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The child: same walls, no threads, no locks; leaves by `execve` or `exit`.
fn child(launch: &Launch<'static>, argv: &Pointers, env: &Pointers, report: &Fd) -> ! {
    let errno = match prepare(launch) {
        Ok(()) => first_that_starts(launch, argv, env),
        Err(errno) => errno,
    };
    match write(report, &errno.0.to_ne_bytes()) {
        Ok(_) | Err(_) => exit(127),
    }
}

fn prepare(launch: &Launch<'static>) -> Result<(), Errno> {
    // A session of its own: no controlling terminal, and a process group that signals can't leave.
    setsid()?;
    set_death_signal()?;
    stockade_nolibc::umask(USUAL_UMASK);
    reset_all()?;
    close_on_exec_from(3)?;
    // Last, and only here: init must go on working under limits that starve the command.
    for (resource, value) in launch.rlimits {
        set_rlimit(resource, value)?;
    }
    unblock_all()
}

/// As a shell looks along PATH: the first that is there decides, one that may not be run is remembered.
fn first_that_starts(launch: &Launch<'static>, argv: &Pointers, env: &Pointers) -> Errno {
    let mut answer = Errno::NOENT;
    for candidate in launch.candidates {
        match execve(candidate, argv, env) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCES => answer = Errno::ACCES,
            errno => return errno,
        }
    }
    answer
}
