//! Ends of executions, and what of them is still to be written: what the disk does not take now it is asked to take
//! again. Part of `record`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use stockade_proto::Bytes;
use stockade_store::audit::Unclosed;
use stockade_store::executions::End;
use stockade_store::output::{Piece, Sealed, Whole};
use stockade_store::{ExecutionId, Store, StoreError, Ticket};
use tracing::{error, warn};

use crate::ending::Ending;
use crate::record::chain;

/// Ends that wait for the disk: more than can run, since what ends makes no room for others while it is full.
const MOST_OWED: usize = 1024;
/// Bytes of a command in a record's result; the record has more of it as text.
const KEPT_COMMAND: usize = 4096;

/// What the disk did not take, until it does.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    failing: AtomicBool,
    ends: Mutex<Vec<Closing>>,
}

/// An end, and what of it is still to be written.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) id: ExecutionId,
    /// Until the audit entry is closed; none where none was opened.
    pub(crate) ticket: Option<Ticket>,
    /// Until the row says so.
    pub(crate) row: bool,
    pub(crate) started_ms: Option<i64>,
    pub(crate) ending: Arc<Ending>,
}

impl Owed {
    fn ends(&self) -> MutexGuard<'_, Vec<Closing>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those beyond the bound are ended by the next start, as lost.
    pub(crate) fn add(&self, rest: Option<Closing>) {
        let Some(rest) = rest else { return };
        self.failed();
        let mut ends = self.ends();
        if ends.len() < MOST_OWED {
            ends.push(rest);
        }
    }

    pub(crate) fn failed(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Tries all of it again, where the disk takes anything. Whether nothing is left.
    pub(crate) fn retry(&self, store: &Store) -> bool {
        if !store.probe() {
            return false;
        }
        self.failing.store(false, Ordering::Relaxed);
        let ends = std::mem::take(&mut *self.ends());
        ends.into_iter().for_each(|end| self.add(settle(store, end).rest));
        !self.is_failing()
    }
}

fn end(store: &Store, closing: &Closing, output: Output) -> OnRecord {
    let Closing { id, started_ms, ending, .. } = closing;
    let failure = ending.failure();
    let totals = ending.result().map(|result| (result.stdout.bytes, result.stderr.bytes)).unwrap_or_default();
    let end = End {
        started_ms: *started_ms,
        result: kept(ending),
        code: failure.map(|failure| failure.code.to_owned()),
        class: failure.map(|failure| failure.class.to_owned()),
        stdout_bytes: totals.0,
        stderr_bytes: totals.1,
        output_bytes: output.bytes,
        frames: output.frames,
    };
    match store.executions.ended(*id, end) {
        // The others: written before, and not known to be.
        Ok(()) | Err(StoreError::WrongState { .. } | StoreError::NotFound { .. }) => OnRecord::Yes,
        Err(error) => {
            error!(execution = %id, "the end is not on record: {}", chain(&error));
            // What is too long is so the next time, too.
            if matches!(error, StoreError::TooLong { .. }) { OnRecord::Yes } else { OnRecord::NotYet }
        }
    }
}

/// What is on record of what it wrote.
#[derive(Debug, Default)]
struct Output {
    bytes: Option<u64>,
    frames: Option<Vec<u8>>,
}

/// What became of an end.
#[derive(Debug)]
#[must_use]
pub(crate) struct Settled {
    /// What could not be written.
    pub(crate) rest: Option<Closing>,
    /// The whole output, where it is short: it was looked at anyway.
    pub(crate) output: Option<Piece>,
}

/// Writes what is still to be written of it.
pub(crate) fn settle(store: &Store, mut closing: Closing) -> Settled {
    let (id, ending) = (closing.id, &closing.ending);
    // First: a crash between the two leaves a row that the next start ends, never an entry that nobody does.
    let unclosed = closing.ticket.take().and_then(|ticket| {
        let failure = ending.failure();
        let body = json!({
            "outcome": ending.word(),
            "exit_code": ending.result().map(|result| result.exit_code),
            "code": failure.map(|failure| failure.code),
        });
        store.audit.close(ticket, body).err()
    });
    closing.ticket = unclosed.map(|unclosed| {
        let Unclosed { ticket, source } = *unclosed;
        error!(execution = %id, "the audit entry can't be closed: {}", chain(&source));
        ticket
    });
    let mut output = None;
    if closing.row {
        // The executor may have died before it could say that nothing follows.
        let sealed = store.output.seal(&id).inspect_err(|error| {
            warn!(execution = %id, "the output has no end: {error}");
        });
        let (mut kept, whole) = match sealed {
            Ok(Sealed { bytes, whole }) => (Output { bytes: Some(bytes), frames: None }, whole),
            Err(_) => (Output::default(), None),
        };
        if let Some(Whole { piece, frames }) = whole {
            // An executor that has given its result has closed the file. One that is lost may not have.
            kept.frames = closing.ending.result().map(|_| frames);
            output = Some(piece);
        }
        closing.row = end(store, &closing, kept) == OnRecord::NotYet;
    }
    let rest = (closing.ticket.is_some() || closing.row).then_some(closing);
    Settled { rest, output }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
enum OnRecord {
    Yes,
    /// It may be tried again.
    NotYet,
}

/// As it is kept: without a long command, of which the record has enough.
fn kept(ending: &Ending) -> Option<Box<RawValue>> {
    let text = match ending {
        Ending::Result(result) if result.command.iter().map(Bytes::len).sum::<usize>() > KEPT_COMMAND => {
            let mut result = result.clone();
            result.command.clear();
            to_raw_value(&Ending::Result(result))
        }
        Ending::Result(_) | Ending::NotRun(_) => to_raw_value(ending),
    };
    text.ok()
}
