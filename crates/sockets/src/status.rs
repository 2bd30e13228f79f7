//! `/proc/TID/status`, the fields needed here. Text: never on the way of a quick call.

use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Status {
    pub(crate) process: u32,
    pub(crate) umask: u32,
    threads: u32,
    thread_pending: u64,
    process_pending: u64,
    blocked: u64,
}

/// How a waiting thread stands to its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    Nothing,
    /// One that any thread of the process may take.
    Perhaps,
    /// One that this thread takes as soon as its call returns.
    Certainly,
}

impl Status {
    pub(crate) fn read(proc: BorrowedFd<'_>, tid: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(proc, format!("{tid}/status"), flags, Mode::empty())?;
        let mut text = [0; 4096];
        let mut length = 0;
        while let Some(room) = text.get_mut(length..).filter(|room| !room.is_empty()) {
            match rustix::io::read(&file, room)? {
                0 => break,
                count => length += count,
            }
        }
        Self::parse(text.get(..length).unwrap_or_default()).ok_or(Errno::IO)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut status = Self::default();
        let text = text.utf8_chunks().map(|chunk| chunk.valid()).collect::<String>();
        let mut seen = 0;
        for (key, value) in text.lines().filter_map(|line| line.split_once(":\t")) {
            let hex = || u64::from_str_radix(value, 16).ok();
            match key {
                "Umask" => status.umask = u32::from_str_radix(value, 8).ok()?,
                "Tgid" => status.process = value.parse().ok()?,
                "Threads" => status.threads = value.parse().ok()?,
                "SigPnd" => status.thread_pending = hex()?,
                "ShdPnd" => status.process_pending = hex()?,
                "SigBlk" => status.blocked = hex()?,
                _ => continue,
            }
            seen += 1;
        }
        (seen == 6).then_some(status)
    }

    pub(crate) fn pending(&self) -> Pending {
        let open = |set: u64| set & !self.blocked != 0;
        if open(self.thread_pending) || (open(self.process_pending) && self.threads == 1) {
            Pending::Certainly
        } else if open(self.process_pending) {
            Pending::Perhaps
        } else {
            Pending::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tx\nUmask:\t0027\nTgid:\t12\nPid:\t13\nThreads:\t1\nSigQ:\t0/1\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000002\nSigBlk:\t0000000000000000\n";

    #[test]
    fn fields_are_read() {
        let status = Status::parse(TEXT.as_bytes()).expect("complete");
        assert_eq!((status.process, status.umask, status.threads), (12, 0o27, 1));
        assert_eq!(status.pending(), Pending::Certainly, "there is no other thread to take it");
        assert_eq!(Status::parse(b"Name:\tx\nTgid:\t12\n"), None);
        let proc = rustix::fs::open("/proc", OFlags::PATH, Mode::empty()).expect("/proc");
        let own = Status::read(std::os::fd::AsFd::as_fd(&proc), std::process::id()).expect("ours");
        assert_eq!(own.process, std::process::id());
    }

    #[test]
    fn a_blocked_signal_waits() {
        let of = |thread: u64, process: u64, blocked: u64, threads: u32| {
            Status { threads, thread_pending: thread, process_pending: process, blocked, ..Status::default() }
                .pending()
        };
        assert_eq!(of(0, 0, 0, 1), Pending::Nothing);
        assert_eq!(of(2, 2, 2, 1), Pending::Nothing);
        assert_eq!(of(2, 0, 0, 9), Pending::Certainly);
        assert_eq!(of(0, 2, 0, 9), Pending::Perhaps);
        assert_eq!(of(0, 6, 2, 1), Pending::Certainly);
    }
}
