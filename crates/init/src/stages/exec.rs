//! Starts the command: a child of ours, so that PID 1 stays and reaps.

use core::sync::atomic::{AtomicI32, Ordering};

use stockade_launch::{FromInit, MAX_MESSAGE, Order};
use stockade_nolibc::{
    Errno, Pointers, chdir, close_on_exec_from, close_range, execve, exit, reset, send, set_death_signal,
    set_dumpable, set_rlimit, setsid, spawn, unblock_all,
};

use crate::context::{About, Context, Failure};

const USUAL_UMASK: u32 = 0o022;

struct Command {
    order: Order<'static>,
    argv: Pointers,
    env: Pointers,
    ignored_signals: u64,
    /// Why it did not start.
    errno: AtomicI32,
}

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let order = context.order.ok_or(Errno::BADMSG)?;
    // Same-uid processes inside must not read or trace PID 1. Not earlier: an undumpable process has a `/proc`
    // directory owned by root, and the executor needs ours for the id maps and for what we offer.
    set_dumpable(false)?;
    chdir(order.cwd).about(order.cwd.to_bytes())?;
    let command = Command {
        argv: Pointers::new(order.argv)?,
        env: Pointers::new(order.env)?,
        ignored_signals: context.ignored_signals,
        errno: AtomicI32::new(0),
        order,
    };
    context.command = spawn(&command, child)?;
    match command.errno.load(Ordering::Relaxed) {
        0 => {}
        errno => return Err(Errno(errno).into()),
    }
    // The command's standard streams are its own: ours would keep its pipes open.
    close_range(0, 2)?;
    let mut buffer = [0; MAX_MESSAGE];
    let length = FromInit::Started.encode(&mut buffer);
    send(&context.control, &buffer[..length])?;
    Ok(())
}

/// The child: same walls, no threads, no locks, our memory; leaves by `execve` or `exit`.
extern "C" fn child(command: &Command) -> ! {
    let errno = match prepare(command) {
        Ok(()) => first_that_starts(command),
        Err(errno) => errno,
    };
    command.errno.store(errno.0, Ordering::Relaxed);
    exit(127)
}

fn prepare(command: &Command) -> Result<(), Errno> {
    // A session of its own: no controlling terminal, and a process group that signals can't leave.
    setsid()?;
    set_death_signal()?;
    stockade_nolibc::umask(USUAL_UMASK);
    reset(command.ignored_signals)?;
    close_on_exec_from(3)?;
    // Last, and only here: init must go on working under limits that starve the command.
    for (resource, value) in command.order.rlimits {
        set_rlimit(resource, value)?;
    }
    unblock_all()
}

/// As a shell looks along PATH: the first that is there decides, one that may not be run is remembered.
fn first_that_starts(command: &Command) -> Errno {
    let mut answer = Errno::NOENT;
    for candidate in command.order.candidates {
        match execve(candidate, &command.argv, &command.env) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCES => answer = Errno::ACCES,
            errno => return errno,
        }
    }
    answer
}
