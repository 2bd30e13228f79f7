//! PID 1's life: reap what ends, pass signals on, report how the command ended, and take the whole
//! tree along when leaving.

use stockade_launch::{FromInit, MAX_MESSAGE, ToInit, wall};
use stockade_nolibc::{
    CWD, Errno, Fd, getpid, kill, kill_every, numeric_entries, openat, poll_two, read, receive, send,
    signal_fd, wait_any,
};

use crate::context::{Context, Failure};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;

pub(crate) fn until_the_command_ends(context: &Context) -> Result<(), Failure> {
    let signals = signal_fd()?;
    // The command may have ended before the descriptor existed.
    if let Some(status) = reap(context)? {
        return end(context, status);
    }
    loop {
        let (child_ended, message) = poll_two(&signals, &context.control)?;
        if child_ended {
            let mut records = [0; 1024];
            // Which child and how many does not matter: `reap` asks about all.
            match read(&signals, &mut records) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if let Some(status) = reap(context)? {
                return end(context, status);
            }
        }
        if message && !obey(context)? {
            // The executor is gone: nobody is left to report to.
            end_tree(context)?;
            return Ok(());
        }
    }
}

fn reap(context: &Context) -> Result<Option<i32>, Failure> {
    loop {
        match wait_any(false) {
            Ok(Some((pid, status))) if pid == context.command => return Ok(Some(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// One message from the executor; `false` when there will be no more.
fn obey(context: &Context) -> Result<bool, Failure> {
    let mut packet = [0; 64];
    let received = receive(&context.control, &mut packet, &mut [])?;
    if received.length == 0 {
        return Ok(false);
    }
    if let Some(ToInit::Signal(signal)) = ToInit::decode(&packet[..received.length]) {
        pass_on(context, signal);
        if signal == SIGTERM {
            // A stopped process sees the signal only once it runs again.
            pass_on(context, SIGCONT);
        }
    }
    Ok(true)
}

fn pass_on(context: &Context, signal: i32) {
    let sent = if context.ground.has(wall::PID) {
        kill_every(signal)
    } else {
        // Without a namespace, -1 would be every process of the user: the command's group it is.
        kill(-context.command, signal)
    };
    match sent {
        // Nobody left to tell is what the sender wanted.
        Ok(()) | Err(_) => {}
    }
}

fn end(context: &Context, status: i32) -> Result<(), Failure> {
    let leaked = if context.ground.has(wall::PID) { others_in_proc()? } else { end_tree(context)? };
    let mut buffer = [0; MAX_MESSAGE];
    let length = FromInit::Ended { status, leaked }.encode(&mut buffer);
    send(&context.control, &buffer[..length])?;
    // In a PID namespace our exit is everybody's: the kernel kills and reaps the rest first.
    Ok(())
}

/// Processes other than ourselves, after everything that had ended was reaped.
fn others_in_proc() -> Result<u32, Failure> {
    loop {
        match wait_any(false) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(0),
            Ok(None) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    let own = getpid();
    let mut others = 0;
    // Without `/proc` (no filesystem layer) the children that are left count as one.
    let Ok(directory) = openat(&CWD, c"/proc") else {
        return Ok(1);
    };
    numeric_entries(&directory, |pid| {
        if pid != own {
            others += 1;
        }
    })?;
    Ok(others)
}

/// Without a PID namespace: as subreaper every orphan of the tree becomes our child, so killing
/// children until there are none ends the tree. The executor's cgroup kill stands behind this.
fn end_tree(context: &Context) -> Result<u32, Failure> {
    if context.ground.has(wall::PID) {
        return Ok(0);
    }
    let mut ended = 0;
    for _ in 0..MAX_ROUNDS {
        kill_children()?;
        match wait_any(true) {
            Ok(_) => ended += 1,
            Err(Errno::CHILD) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(ended)
}

/// Each round ends at least one process; a tree that outruns this is the cgroup's to kill.
const MAX_ROUNDS: u32 = 100_000;

fn kill_children() -> Result<(), Failure> {
    let Ok(file) = openat(&CWD, c"/proc/thread-self/children") else {
        return Ok(());
    };
    let mut buffer = [0; 4096];
    let filled = fill(&file, &mut buffer)?;
    for pid in buffer[..filled].split(|byte| *byte == b' ') {
        let pid = core::str::from_utf8(pid).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid {
            match kill(pid, SIGKILL) {
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

fn fill(file: &Fd, buffer: &mut [u8]) -> Result<usize, Failure> {
    Ok(read(file, buffer)?)
}
