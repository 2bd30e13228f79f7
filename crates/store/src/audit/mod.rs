//! The audit log: append-only, each line chained to the bytes of the one before. An entry is opened before an
//! execution begins and gives the [`Ticket`] without which nothing is dispatched; closing takes the ticket away.
//!
//! An append returns after write(2): the death of this process loses nothing. A thread brings the lines to the disk
//! at most [`SYNC_DELAY`] later and moves the anchor; a power cut may lose what is younger, never what is between.
//! To copy a log that is being written, copy the anchor first.

mod anchor;
mod error;
mod line;
mod read;
mod segments;
mod sync;
mod verify;

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::{ExecutionId, clock};
use anchor::Anchor;
pub use error::{AuditError, Broken, Reason, Unclosed};
pub use line::{Entry, Hash, Kind, LINE_LIMIT, ParseError};
pub use read::{TAIL_BYTES, TAIL_LINES, export, tail};
pub use verify::{Verified, verify};

/// How long a line may wait for its fsync: long enough to share one, short enough for a power cut.
pub const SYNC_DELAY: Duration = Duration::from_millis(50);
/// A segment is closed at this size, so that files stay easy to copy and to look at.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Who writes the entries that nobody asked for.
const OURSELVES: &str = "stockade";
/// For a writer that is about to be gone.
const LOCK_WAIT: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Proof that an entry is open. Not to be copied, and gone when the entry is closed.
#[derive(Debug)]
#[must_use = "an opened entry is to be closed"]
pub struct Ticket {
    entry: u64,
    execution: ExecutionId,
    principal: String,
}

impl Ticket {
    /// The number of the entry that was opened.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    pub fn execution(&self) -> ExecutionId {
        self.execution
    }

    pub fn principal(&self) -> &str {
        &self.principal
    }
}

/// What an execution's first entry says.
#[derive(Debug, Clone)]
pub struct Opening {
    pub execution: ExecutionId,
    pub principal: String,
    pub body: Value,
}

/// An entry beside the executions, or about one that nobody holds a ticket of any more.
#[derive(Debug, Clone)]
pub struct Note {
    pub execution: Option<ExecutionId>,
    pub principal: String,
    pub body: Value,
}

/// The one writer of a log.
#[derive(Debug)]
pub struct Audit {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
    unclosed: BTreeSet<ExecutionId>,
}

#[derive(Debug)]
struct Log {
    directory: PathBuf,
    segment_bytes: u64,
    state: Mutex<State>,
    /// There is something to sync, or it is time to stop.
    wake: Condvar,
    /// One sync at a time, so that the anchor only moves forward.
    syncing: Mutex<()>,
    /// Holds the lock on the directory.
    _lock: File,
}

#[derive(Debug)]
struct State {
    file: Arc<File>,
    number: u64,
    /// Of the segment: whole lines only.
    length: u64,
    count: u64,
    first: Hash,
    head: Hash,
    /// How many entries the anchor on the disk counts.
    synced: u64,
    /// The file is in a state that we don't know: nothing is added to it.
    failed: bool,
    stop: bool,
}

impl Audit {
    /// Makes the directory if there is none. Refuses a log that another process writes, or whose chain is broken;
    /// a line that a crash left unfinished is cut off, and an entry says so.
    pub fn open(directory: &Path) -> Result<Self, AuditError> {
        Self::open_with(directory, SEGMENT_BYTES)
    }

    /// Not after a write that may have left half a line: then only a new opener knows where it ends.
    pub fn is_whole(&self) -> bool {
        self.log.state().is_ok()
    }

    /// None where another process writes it.
    pub(crate) fn try_open(directory: &Path) -> Result<Option<Self>, AuditError> {
        match lock(directory, Duration::ZERO) {
            Ok(lock) => Self::opened(directory, SEGMENT_BYTES, lock).map(Some),
            Err(AuditError::Locked { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// With segments of another size.
    pub fn open_with(directory: &Path, segment_bytes: u64) -> Result<Self, AuditError> {
        Self::opened(directory, segment_bytes, lock(directory, LOCK_WAIT)?)
    }

    fn opened(directory: &Path, segment_bytes: u64, lock: File) -> Result<Self, AuditError> {
        let walked = verify::walk(directory)?;
        if walked.anchor.is_none() {
            // Before the first segment, so that segments without an anchor are never our own doing.
            Anchor::EMPTY.write(directory)?;
        }
        let verified = walked.verified;
        let (number, length) = walked.last.unwrap_or((1, 0));
        let file = segment(directory, number)?;
        let whole = || {
            file.set_len(length)?;
            File::open(directory)?.sync_all()
        };
        whole().map_err(|source| AuditError::Write { path: segments::path(directory, number), source })?;
        let state = State {
            file: Arc::new(file),
            number,
            length,
            count: verified.entries,
            first: verified.first,
            head: verified.head,
            synced: verified.anchored,
            failed: false,
            stop: false,
        };
        let log = Arc::new(Log {
            directory: directory.to_owned(),
            segment_bytes,
            state: Mutex::new(state),
            wake: Condvar::new(),
            syncing: Mutex::new(()),
            _lock: lock,
        });
        if verified.torn > 0 {
            let body = json!({ "event": "torn-line-cut", "bytes": verified.torn });
            log.append(Kind::Noted, None, OURSELVES, body)?;
        }
        log.sync()?;
        let thread = sync::start(Arc::clone(&log))?;
        Ok(Self { log, thread: Some(thread), unclosed: walked.unclosed })
    }

    /// Executions whose entry an earlier writer opened and did not close: it was killed, or could not write.
    pub(crate) fn unclosed(&self) -> &BTreeSet<ExecutionId> {
        &self.unclosed
    }

    /// Opens an execution's entry. With an error nothing was written, and nothing may run.
    pub fn append(&self, opening: Opening) -> Result<Ticket, AuditError> {
        let Opening { execution, principal, body } = opening;
        let entry = self.log.append(Kind::Opened, Some(execution), &principal, body)?;
        Ok(Ticket { entry, execution, principal })
    }

    pub fn close(&self, ticket: Ticket, body: Value) -> Result<u64, Box<Unclosed>> {
        let closed = self.log.append(Kind::Closed, Some(ticket.execution), &ticket.principal, body);
        closed.map_err(|source| Box::new(Unclosed { ticket, source }))
    }

    pub fn note(&self, note: Note) -> Result<u64, AuditError> {
        self.log.append(Kind::Noted, note.execution, &note.principal, note.body)
    }

    /// Returns when everything written so far is on the disk and the anchor counts it.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.log.sync()
    }

    pub fn directory(&self) -> &Path {
        &self.log.directory
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if let Ok(mut state) = self.log.state.lock() {
            state.stop = true;
        }
        self.log.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to say here.
            drop(thread.join());
        }
        // Nobody is left to be told; the lines are in the file, and the next opener moves the anchor.
        drop(self.log.sync());
    }
}

impl Log {
    fn failed(&self) -> AuditError {
        AuditError::Failed { path: self.directory.clone() }
    }

    /// A thread that panicked with the lock leaves a state that nobody knows.
    fn state(&self) -> Result<MutexGuard<'_, State>, AuditError> {
        let state = self.state.lock().map_err(|_| self.failed())?;
        if state.failed { Err(self.failed()) } else { Ok(state) }
    }

    fn append(
        &self,
        kind: Kind,
        execution: Option<ExecutionId>,
        principal: &str,
        body: Value,
    ) -> Result<u64, AuditError> {
        let mut state = self.state()?;
        let (seq, prev, at, principal) =
            (state.count + 1, state.head, clock::now_text(), principal.to_owned());
        let entry = Entry { seq, at, kind, execution, principal, body, prev };
        let line = entry.encode().map_err(|source| AuditError::Encode { source })?;
        if line.len() > LINE_LIMIT {
            return Err(AuditError::TooLong { length: line.len() });
        }
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if state.length > 0 && state.length.saturating_add(length) > self.segment_bytes {
            self.next_segment(&mut state)?;
        }
        if let Err(source) = (&*state.file).write_all(&line) {
            // What was written of it must not stand before the next line.
            state.failed = state.file.set_len(state.length).is_err();
            let path = segments::path(&self.directory, state.number);
            return Err(AuditError::Write { path, source });
        }
        let clean = state.synced == state.count;
        state.head = Hash::of(&line[..line.len() - 1]);
        if seq == 1 {
            state.first = state.head;
        }
        state.length += length;
        state.count = seq;
        drop(state);
        if clean {
            self.wake.notify_one();
        }
        Ok(seq)
    }

    /// The old one is on the disk before the new one begins: a sync looks at the last one only.
    fn next_segment(&self, state: &mut State) -> Result<(), AuditError> {
        if let Err(source) = state.file.sync_data() {
            state.failed = true;
            return Err(AuditError::Write { path: segments::path(&self.directory, state.number), source });
        }
        let number = state.number + 1;
        let file = segment(&self.directory, number)?;
        let path = segments::path(&self.directory, number);
        // It may be there, and empty, from an attempt that got no further than this.
        let ready = || match file.metadata()?.len() {
            0 => File::open(&self.directory)?.sync_all(),
            _ => Err(io::ErrorKind::AlreadyExists.into()),
        };
        ready().map_err(|source| AuditError::Write { path, source })?;
        (state.file, state.number, state.length) = (Arc::new(file), number, 0);
        Ok(())
    }

    fn sync(&self) -> Result<(), AuditError> {
        let _one = self.syncing.lock().map_err(|_| self.failed())?;
        let state = self.state()?;
        if state.synced == state.count {
            return Ok(());
        }
        let (file, number) = (Arc::clone(&state.file), state.number);
        let anchor = Anchor { count: state.count, first: state.first, head: state.head };
        drop(state);
        // Appends go on meanwhile.
        if let Err(source) = file.sync_data() {
            // The kernel may have dropped the pages: what is on the disk is not known any more.
            self.state()?.failed = true;
            return Err(AuditError::Write { path: segments::path(&self.directory, number), source });
        }
        anchor.write(&self.directory)?;
        self.state()?.synced = anchor.count;
        Ok(())
    }
}

fn segment(directory: &Path, number: u64) -> Result<File, AuditError> {
    let path = segments::path(directory, number);
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    opened.map_err(|source| AuditError::Write { path, source })
}

fn lock(directory: &Path, wait: Duration) -> Result<File, AuditError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let opened = made.and_then(|()| File::open(directory));
    let file = opened.map_err(|source| AuditError::Directory { path: directory.to_owned(), source })?;
    let until = Instant::now() + wait;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // One that was just killed may take a moment to be gone.
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(AuditError::Locked { path: directory.to_owned() });
            }
            Err(source) => {
                return Err(AuditError::Directory { path: directory.to_owned(), source: source.into() });
            }
        }
    }
}
