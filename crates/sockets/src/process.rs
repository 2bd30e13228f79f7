//! The threads that call, remembered by a descriptor of the thread itself. A thread id comes back; a
//! descriptor of a thread that ended does not answer, and every use of an entry begins by asking it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use stockade_proto::Bytes;
use stockade_sys::notify::thread_pidfd;

use crate::status::Status;

/// Two descriptors each, in a process that may have no more than 1024.
const REMEMBERED: usize = 32;

#[derive(Debug)]
pub(crate) struct Process {
    tid: u32,
    pidfd: OwnedFd,
    /// Its root, once asked for. The filter refuses chroot, so it stays; and if it did not, a path would be
    /// resolved where it once was, and decided on what is there.
    root: OnceLock<OwnedFd>,
    comm: OnceLock<Bytes>,
}

impl Process {
    /// Takes one of its descriptors: the same open file, under a number of ours.
    pub(crate) fn take(&self, number: i32) -> Result<OwnedFd, Errno> {
        pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty())
    }

    pub(crate) fn root(&self, proc: BorrowedFd<'_>) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(root) = self.root.get() {
            return Ok(root.as_fd());
        }
        let opened = open_place(proc, self.tid, "root")?;
        Ok(self.root.get_or_init(|| opened).as_fd())
    }

    pub(crate) fn directory(&self, proc: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        open_place(proc, self.tid, "cwd")
    }

    /// The command's name as it was at its first decision: it changes with exec, and nothing depends on it.
    pub(crate) fn comm(&self, proc: BorrowedFd<'_>) -> Bytes {
        self.comm.get_or_init(|| comm(proc, self.tid)).clone()
    }
}

/// A thread's name now; empty if it can't be read.
pub(crate) fn comm(proc: BorrowedFd<'_>, tid: u32) -> Bytes {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(proc, format!("{tid}/comm"), flags, Mode::empty()) else {
        return Bytes::default();
    };
    let mut text = [0; 64];
    let length = rustix::io::read(&file, &mut text).unwrap_or(0);
    let text = text.get(..length).unwrap_or_default();
    Bytes::from(text.strip_suffix(b"\n").unwrap_or(text))
}

fn open_place(proc: BorrowedFd<'_>, tid: u32, place: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(proc, format!("{tid}/{place}"), flags, Mode::empty())
}

#[derive(Debug)]
pub(crate) struct Processes {
    known: Vec<Arc<Process>>,
    next: usize,
}

impl Processes {
    pub(crate) fn new() -> Self {
        Self { known: Vec::with_capacity(REMEMBERED), next: 0 }
    }

    pub(crate) fn find(&self, tid: u32) -> Option<Arc<Process>> {
        self.known.iter().find(|one| one.tid == tid).cloned()
    }

    pub(crate) fn forget(&mut self, tid: u32) {
        self.known.retain(|one| one.tid != tid);
    }

    pub(crate) fn remember(&mut self, process: Arc<Process>) {
        self.forget(process.tid);
        if self.known.len() < REMEMBERED {
            self.known.push(process);
            return;
        }
        self.next = (self.next + 1) % REMEMBERED;
        if let Some(slot) = self.known.get_mut(self.next) {
            *slot = process;
        }
    }
}

/// A process looked up by the number of a thread that waited then. Whether it still waits is for the caller
/// to ask afterwards; only then is it what it seems.
#[derive(Debug)]
pub(crate) enum Opened {
    /// The descriptor is the thread's, so it may be remembered under the thread's number.
    Thread(Process),
    /// A kernel before 6.9 has descriptors of whole processes only: the thread may end while it lives.
    Process(Process),
}

pub(crate) fn open(proc: BorrowedFd<'_>, tid: u32) -> Result<Opened, Errno> {
    let made = |pidfd| Process { tid, pidfd, root: OnceLock::new(), comm: OnceLock::new() };
    match thread_pidfd(tid) {
        Ok(pidfd) => Ok(Opened::Thread(made(pidfd))),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            let process = Status::read(proc, tid)?.process;
            let pidfd = thread_pidfd(process).map_err(|error| crate::call::errno(&error))?;
            Ok(Opened::Process(made(pidfd)))
        }
        Err(error) => Err(crate::call::errno(&error)),
    }
}
