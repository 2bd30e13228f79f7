//! Threads that interrupt nobody. What they are woken for they do when whoever runs has come to rest, and then often find
//! more of it done: a command that wrote its last line is about to end.

use std::sync::atomic::{AtomicBool, Ordering};

/// Some thread of this process was made patient, and what [`crate::spawn`] starts is not to be.
static IS_PATIENT: AtomicBool = AtomicBool::new(false);

const USUAL: i32 = libc::SCHED_OTHER;
const PATIENT: i32 = libc::SCHED_BATCH;

/// From one class to the other; `false` if it was of neither, or the kernel does not allow it.
fn change(from: i32, to: i32) -> bool {
    // SAFETY: a number; nought is this thread.
    if unsafe { libc::sched_getscheduler(0) } != from {
        return false;
    }
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: a whole struct, only read.
    unsafe { libc::sched_setscheduler(0, to, &raw const parameter) == 0 }
}

/// This thread, and those that it starts. No matter where it can't be: nobody is less patient than others then.
pub fn be_patient() {
    if change(USUAL, PATIENT) {
        IS_PATIENT.store(true, Ordering::Relaxed);
    }
}

/// While it is there, processes that this thread starts are of the class that it had before.
#[derive(Debug)]
#[must_use]
pub(crate) struct Eager(bool);

impl Eager {
    pub(crate) fn for_now() -> Self {
        Self(IS_PATIENT.load(Ordering::Relaxed) && change(PATIENT, USUAL))
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        if self.0 {
            change(USUAL, PATIENT);
        }
    }
}
