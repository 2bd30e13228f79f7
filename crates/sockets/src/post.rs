//! What one thread is doing, for the watch that may relieve or interrupt it. Written by the thread with plain
//! stores, because it stands on the way of every call.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use stockade_sys::notify::Notification;

/// Known to the kernel only: the call runs again once the signal's handler has, if that handler says so.
const ERESTARTSYS: i32 = 512;

/// Why a call must end without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Nobody waits for the answer any more.
    Gone,
    /// The supervisor ends.
    Stopped,
    /// A signal that perhaps another thread takes.
    Signal,
    /// A signal that this thread takes next.
    OwnSignal,
    /// As many calls block as may.
    Crowded,
}

const REASONS: [Reason; 5] =
    [Reason::Gone, Reason::Stopped, Reason::Signal, Reason::OwnSignal, Reason::Crowded];

impl Reason {
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::Gone | Self::Stopped | Self::Signal => Errno::INTR,
            Self::OwnSignal => Errno::from_raw_os_error(ERESTARTSYS),
            Self::Crowded => Errno::NOBUFS,
        }
    }

    fn code(self) -> u32 {
        REASONS.iter().position(|one| *one == self).and_then(|at| u32::try_from(at + 1).ok()).unwrap_or(1)
    }
}

/// Whether the thread still receives calls after this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Leads,
    Relieved,
}

// The lower two bits of `state`; above them counts the thread's calls.
const IDLE: u64 = 0;
const BUSY: u64 = 1;
const RELIEVED: u64 = 2;

#[derive(Debug, Default)]
pub(crate) struct Post {
    tid: AtomicU32,
    state: AtomicU64,
    call: AtomicU64,
    target: AtomicU32,
    reason: AtomicU32,
}

impl Post {
    /// By the thread itself, before anyone else knows the post.
    pub(crate) fn take(&self) {
        self.tid.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Release);
    }

    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Acquire)
    }

    pub(crate) fn begin(&self, note: &Notification) {
        self.call.store(note.id, Ordering::Relaxed);
        self.target.store(note.tid, Ordering::Relaxed);
        self.reason.store(0, Ordering::Relaxed);
        let count = (self.state.load(Ordering::Relaxed) >> 2).wrapping_add(1);
        self.state.store(count << 2 | BUSY, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) -> Duty {
        let busy = self.state.load(Ordering::Relaxed);
        let idle = busy & !3 | IDLE;
        match self.state.compare_exchange(busy & !3 | BUSY, idle, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Duty::Leads,
            Err(_) => {
                self.state.store(idle, Ordering::SeqCst);
                Duty::Relieved
            }
        }
    }

    /// Which of the thread's calls is under way, if one is.
    pub(crate) fn busy(&self) -> Option<u64> {
        let state = self.state.load(Ordering::SeqCst);
        (state & 3 == BUSY).then_some(state >> 2)
    }

    /// Takes the thread off the listener if it is still in that call.
    pub(crate) fn relieve(&self, count: u64) -> bool {
        let (busy, relieved) = (count << 2 | BUSY, count << 2 | RELIEVED);
        self.state.compare_exchange(busy, relieved, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The notification and the thread that the call under way is for.
    pub(crate) fn call(&self) -> (u64, u32) {
        (self.call.load(Ordering::Relaxed), self.target.load(Ordering::Relaxed))
    }

    /// The first reason stays.
    pub(crate) fn give_up(&self, reason: Reason) {
        match self.reason.compare_exchange(0, reason.code(), Ordering::SeqCst, Ordering::SeqCst) {
            // One reason is enough, whoever was first.
            Ok(_) | Err(_) => {}
        }
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        match self.reason.load(Ordering::SeqCst) {
            0 => None,
            code => usize::try_from(code - 1).ok().and_then(|at| REASONS.get(at)).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Notification {
        Notification { id: 7, tid: 8, number: 0, arch: 0, args: [0; 6] }
    }

    #[test]
    fn a_thread_is_relieved_in_the_call_it_is_in() {
        let post = Post::default();
        assert_eq!(post.busy(), None);
        post.begin(&note());
        let first = post.busy().expect("busy");
        assert_eq!(post.call(), (7, 8));
        assert_eq!(post.end(), Duty::Leads);
        assert!(!post.relieve(first), "that call is over");
        post.begin(&note());
        let second = post.busy().expect("busy");
        assert_ne!(first, second);
        assert!(!post.relieve(first) && post.relieve(second) && !post.relieve(second));
        assert_eq!(post.end(), Duty::Relieved);
    }

    #[test]
    fn the_first_reason_stays() {
        let post = Post::default();
        post.begin(&note());
        assert_eq!(post.reason(), None);
        for reason in REASONS {
            post.begin(&note());
            post.give_up(reason);
            post.give_up(Reason::Gone);
            assert_eq!(post.reason(), Some(reason));
        }
    }
}
