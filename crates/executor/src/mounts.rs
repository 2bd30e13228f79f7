//! Whether the host's mounts are those that were seen. A sandbox that was built before its request has a copy of them: what was
//! mounted or unmounted since would be missing there, or still be held.

use std::fs::File;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[derive(Debug)]
pub(crate) struct Watch {
    /// The kernel marks it when something was mounted or unmounted in this mount namespace.
    file: Option<File>,
    changes: Mutex<u64>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { file: File::open("/proc/self/mountinfo").ok(), changes: Mutex::new(0) }
    }

    /// A number that stays the same as long as the mounts do. Where that can't be told it never does.
    pub(crate) fn now(&self) -> u64 {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.file.as_ref().is_none_or(|file| {
            let mut event = [PollFd::new(file, PollFlags::PRI)];
            poll(&mut event, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
        });
        *changes += u64::from(changed);
        *changes
    }
}
