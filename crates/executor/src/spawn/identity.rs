//! Who an init is, written from outside through its `/proc`, and what is proven of it there.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode as FileMode, OFlags, open, openat, statat};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use stockade_policy::Ground;

use super::encode::Given;
use super::fault;
use super::network::Lent;
use crate::Abort;

/// A thread that was elsewhere than it believed would have given a command the host's network.
pub(super) fn prove_network(lent: Option<&Lent>, proc: BorrowedFd<'_>) -> Result<(), Abort> {
    let Some(lent) = lent else { return Ok(()) };
    let stat = statat(proc, "ns/net", AtFlags::empty())
        .map_err(|error| fault("the sandbox's network namespace can't be examined", &error))?;
    if stat.st_ino == lent.ino() {
        return Ok(());
    }
    Err(fault("the sandbox is not in its network namespace", &"this is a bug"))
}

pub(super) fn open_proc(pid: u32) -> Result<OwnedFd, Abort> {
    open(format!("/proc/{pid}"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, FileMode::empty())
        .map_err(|error| fault("/proc of the sandbox can't be opened (is /proc mounted?)", &error))
}

/// A child of a process whose memory is closed to others keeps that mark for a moment after its exec, and its
/// files in /proc are root's for as long.
const SETTLED: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_micros(20);

fn write_file(directory: BorrowedFd<'_>, name: &str, text: &str) -> io::Result<()> {
    let deadline = Instant::now() + SETTLED;
    let file = loop {
        match openat(directory, name, OFlags::WRONLY | OFlags::CLOEXEC, FileMode::empty()) {
            Err(Errno::ACCESS) if is_closed_to_others() && Instant::now() < deadline => {
                std::thread::sleep(LOOK_AGAIN);
            }
            opened => break opened?,
        }
    };
    File::from(file).write_all(text.as_bytes())
}

fn is_closed_to_others() -> bool {
    matches!(rustix::process::dumpable_behavior(), Ok(DumpableBehavior::NotDumpable))
}

/// One id inside, one outside; host root is never inside.
fn write_maps(ground: &Ground, proc: BorrowedFd<'_>, given: Given) -> Result<(), Abort> {
    let identity = ground.identity;
    let write = |name: &str, text: &str| {
        write_file(proc, name, text)
            .map_err(|error| fault(&format!("{name} of the sandbox can't be written"), &error))
    };
    if !given.is_root {
        // The kernel's condition for mapping one's own group without privilege.
        write("setgroups", "deny")?;
    }
    write("gid_map", &format!("{} {} 1", identity.gid, identity.host_gid))?;
    write("uid_map", &format!("{} {} 1", identity.uid, identity.host_uid))
}

/// Writes the maps; for host root, gives the user namespace.
pub(super) fn give_identity(
    ground: &Ground,
    proc: BorrowedFd<'_>,
    given: Given,
) -> Result<Option<OwnedFd>, Abort> {
    write_maps(ground, proc, given)?;
    if !given.is_root {
        return Ok(None);
    }
    openat(proc, "ns/user", OFlags::RDONLY | OFlags::CLOEXEC, FileMode::empty())
        .map(Some)
        .map_err(|error| fault("the sandbox's user namespace can't be opened", &error))
}

/// Whether init has failed: it says why before it ends and its `/proc` is closed to us, and the supervisor reads it. Not
/// waited for: whatever else is wrong is told at once.
pub(super) fn has_spoken(control: BorrowedFd<'_>) -> bool {
    has_news(control) == Ok(true)
}

/// Of a process, that it ended; of a socket, that there is something to read, or nobody will write any more.
pub(super) fn has_news(of: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut news = [PollFd::from_borrowed_fd(of, PollFlags::IN)];
    Ok(poll(&mut news, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}
