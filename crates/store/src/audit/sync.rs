//! The thread that brings lines to the disk: it sleeps while there is nothing, lets a batch gather, syncs it once.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::{AuditError, Log, SYNC_DELAY};

pub(super) fn start(log: Arc<Log>) -> Result<JoinHandle<()>, AuditError> {
    let thread = thread::Builder::new().name("audit-sync".into()).spawn(move || run(&log));
    thread.map_err(|source| AuditError::Thread { source })
}

/// Ends when the log is dropped, or when it failed: then every append says so.
fn run(log: &Log) {
    while gathered(log) {
        match log.sync() {
            // An anchor that could not be written (a full disk) is tried again with the next batch: the lines are
            // on the disk, and a log may be longer than its anchor.
            Ok(()) | Err(AuditError::Write { .. }) => {}
            Err(_) => return,
        }
    }
}

/// Waits for a first line, then lets others join it. False when it is time to stop.
fn gathered(log: &Log) -> bool {
    let Ok(state) = log.state.lock() else { return false };
    let idle = log.wake.wait_while(state, |state| !state.stop && state.synced == state.count);
    let Ok(state) = idle else { return false };
    match log.wake.wait_timeout_while(state, SYNC_DELAY, |state| !state.stop) {
        Ok((state, _)) => !state.stop,
        Err(_) => false,
    }
}
