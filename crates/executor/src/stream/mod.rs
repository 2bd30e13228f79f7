//! Output on its way out: read from the command's pipes, redacted, written to where the caller
//! wants it. Raw bytes, order kept per stream, memory bounded, exact totals. Nothing here blocks:
//! the supervisor must see its deadlines even when nobody reads.

mod events;
mod feed;
mod relay;
mod sink;

use std::os::fd::BorrowedFd;

use stockade_redact::Redactor;

pub(crate) use events::Events;
pub(crate) use feed::Feed;
pub(crate) use relay::{CHUNK, Relay};

/// Where one stream goes.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// A descriptor of the caller's: terminal, pipe, socket or file.
    Descriptor(BorrowedFd<'a>),
    /// Counted and dropped.
    Discard,
}

/// The caller's side of an execution's standard streams.
#[derive(Debug, Clone, Copy)]
pub struct Io<'a> {
    /// Read and passed on where the plan's stdin is piped.
    pub stdin: Option<BorrowedFd<'a>>,
    pub stdout: Destination<'a>,
    pub stderr: Destination<'a>,
    /// Where decisions of the live walls go, one JSON object per line.
    pub events: Option<BorrowedFd<'a>>,
    pub redactor: &'a Redactor,
}
