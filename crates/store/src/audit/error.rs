//! What can go wrong with the log: each variant says what, where, and what to do.

use std::io;
use std::path::PathBuf;

use super::Ticket;
use super::line::{LINE_LIMIT, ParseError};

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit log in {} is in use by another process: stop that one first", .path.display())]
    Locked { path: PathBuf },
    #[error("the audit log's directory {} can't be made or locked: check who owns it", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the audit log's {} can't be read: check who owns it", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the audit log's {} can't be written: make room on its disk, then try again", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the audit log's anchor {} is not one: restore it from a copy of the log", .path.display())]
    Anchor { path: PathBuf, source: serde_json::Error },
    #[error("an audit entry can't be put into JSON: this is a defect, report it")]
    Encode { source: serde_json::Error },
    #[error("an audit entry of {length} bytes is over the limit of {LINE_LIMIT}: shorten what it tells")]
    TooLong { length: usize },
    #[error("the audit log's chain is broken: keep a copy of the directory and find out who changed it")]
    Broken(#[from] Broken),
    #[error(
        "the audit log in {} failed earlier and takes no more entries: see the first error, then restart",
        .path.display()
    )]
    Failed { path: PathBuf },
    #[error("the audit log's entries can't be written where they were asked for: check that it takes them")]
    Export { source: io::Error },
    #[error("the audit log's thread can't be started: raise the limit of threads")]
    Thread { source: io::Error },
}

/// The first entry that is not as it was written.
#[derive(Debug, thiserror::Error)]
#[error("entry {entry} in {}: {reason}", .path.display())]
pub struct Broken {
    /// Its number, from one: the line it is, counted from the start of the log.
    pub entry: u64,
    /// The segment that it is in, or should be in.
    pub path: PathBuf,
    pub reason: Reason,
}

#[derive(Debug, thiserror::Error)]
pub enum Reason {
    #[error("it is missing; the log has an anchor that counts {anchored}")]
    Cut { anchored: u64 },
    #[error("another one stands in its place, numbered {found}")]
    Order { found: u64 },
    #[error("its bytes are no entry ({0})")]
    Unreadable(ParseError),
    #[error("its line has no end though the anchor counts it")]
    Torn,
    #[error("its line is longer than any that is written")]
    TooLong,
    #[error("its bytes are not those that the next entry was chained to")]
    Edited,
    #[error("it is not chained to the entry before it")]
    Unchained,
    #[error("its bytes are not those that the anchor was made from")]
    NotAnchored,
    #[error("the segment that it was in is missing")]
    SegmentMissing,
    #[error("there are segments, and no anchor beside them")]
    NoAnchor,
}

/// The entry could not be closed. The ticket comes back, to be closed when there is room again.
#[derive(Debug, thiserror::Error)]
#[error("the audit entry of execution {} could not be closed", .ticket.execution())]
pub struct Unclosed {
    pub ticket: Ticket,
    #[source]
    pub source: AuditError,
}
