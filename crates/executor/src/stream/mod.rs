//! Output on its way out: read from the command's pipes, redacted, written to where the caller
//! wants it. Raw bytes, order kept per stream, memory bounded, exact totals. Nothing here blocks:
//! the supervisor must see its deadlines even when nobody reads.

mod events;
mod feed;
mod relay;
mod sink;

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use stockade_frames::Frames;
use stockade_redact::Redactor;

pub(crate) use events::Events;
pub(crate) use feed::Feed;
pub(crate) use relay::{Buffer, Relay};

/// Where one stream goes.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// A descriptor of the caller's: terminal, pipe, socket or file.
    Descriptor(BorrowedFd<'a>),
    /// Frames of this stream, in a file that others' frames go to as well.
    Frames(&'a RefCell<Frames>, stockade_frames::Stream),
    /// Counted and dropped.
    Discard,
}

/// Where the command's stdin comes from.
#[derive(Debug)]
pub enum Input<'a> {
    /// The caller's own.
    Borrowed(BorrowedFd<'a>),
    /// Closed as soon as the command takes no more, so that whoever writes to it learns of that.
    Owned(OwnedFd),
}

impl AsFd for Input<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Borrowed(fd) => *fd,
            Self::Owned(fd) => fd.as_fd(),
        }
    }
}

/// The caller's side of an execution's standard streams.
#[derive(Debug)]
pub struct Io<'a> {
    /// Read and passed on where the plan's stdin is piped.
    pub stdin: Option<Input<'a>>,
    pub stdout: Destination<'a>,
    pub stderr: Destination<'a>,
    /// Where decisions of the live walls go, one JSON object per line, or per frame.
    pub events: Option<Destination<'a>>,
    pub redactor: &'a Redactor,
}
