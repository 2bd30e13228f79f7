//! One stream from the command's pipe through redaction to its sink.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use stockade_proto::StreamTotals;
use stockade_redact::{HOLD, Redactor, Stream};

use super::Destination;
use super::sink::{Sink, Written};

/// One read. With a 1 MiB pipe this is where larger reads stop paying.
pub(crate) const CHUNK: usize = 256 * 1024;

pub(crate) struct Relay<'a> {
    source: Option<OwnedFd>,
    redaction: Stream,
    /// When the last byte came, while some are held back.
    held_since: Option<Instant>,
    out: Out<'a>,
    totals: StreamTotals,
}

/// Redacted bytes on their way into the sink. Bounded: nothing is read while anything waits here.
struct Out<'a> {
    sink: Sink<'a>,
    pending: Vec<u8>,
    sent: usize,
    /// Why output was lost.
    failure: Option<Errno>,
}

impl Out<'_> {
    fn emit(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while self.pending.is_empty() && !rest.is_empty() {
            match self.sink.write(rest) {
                Written::Bytes(count) => rest = &rest[count..],
                Written::Full => break,
                Written::Gone => return,
                Written::Failed(errno) => {
                    self.failure.get_or_insert(errno);
                    return;
                }
            }
        }
        self.pending.extend_from_slice(rest);
    }

    fn flush(&mut self) {
        while self.sent < self.pending.len() {
            match self.sink.write(&self.pending[self.sent..]) {
                Written::Bytes(count) => self.sent += count,
                Written::Full => return,
                Written::Gone => break,
                Written::Failed(errno) => {
                    self.failure.get_or_insert(errno);
                    break;
                }
            }
        }
        self.pending.clear();
        self.sent = 0;
    }

    fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

impl<'a> Relay<'a> {
    pub(crate) fn new(source: OwnedFd, destination: Destination<'a>, redactor: &Redactor) -> Self {
        let sink = match destination {
            Destination::Descriptor(fd) => Sink::new(fd),
            Destination::Discard => Sink::Discard,
        };
        Self {
            source: Some(source),
            redaction: redactor.stream(),
            held_since: None,
            out: Out { sink, pending: Vec::new(), sent: 0, failure: None },
            totals: StreamTotals::default(),
        }
    }

    /// Readable when the command wrote and there is room for it.
    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        if self.out.is_idle() { self.source.as_ref().map(AsFd::as_fd) } else { None }
    }

    pub(crate) fn blocked_sink(&self) -> Option<BorrowedFd<'_>> {
        if self.out.is_idle() { None } else { self.out.sink.waits_on() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.source.is_none() && self.out.is_idle()
    }

    pub(crate) fn totals(&self) -> StreamTotals {
        StreamTotals { redactions: self.redaction.redactions(), ..self.totals }
    }

    pub(crate) fn failure(&self) -> Option<Errno> {
        self.out.failure
    }

    /// Reads once. `allowance` is what the output limit still lets through; bytes beyond it are
    /// counted, not passed on.
    pub(crate) fn pump(&mut self, buffer: &mut [u8], allowance: u64) -> std::io::Result<()> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        let count = match rustix::io::read(source, &mut *buffer) {
            Ok(0) => {
                self.close();
                return Ok(());
            }
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let passed = usize::try_from(allowance).unwrap_or(usize::MAX).min(count);
        self.totals.bytes += count as u64;
        self.totals.dropped += (count - passed) as u64;
        let out = &mut self.out;
        self.redaction.push(&buffer[..passed], &mut |bytes: &[u8]| out.emit(bytes));
        self.held_since = self.redaction.has_due().then(Instant::now);
        if matches!(self.out.sink, Sink::Closed) {
            // As in a pipeline: the command gets its SIGPIPE.
            self.source = None;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) {
        self.out.flush();
        if matches!(self.out.sink, Sink::Closed) {
            self.source = None;
        }
    }

    /// When held bytes may be shown, if nothing comes before.
    pub(crate) fn release_at(&self) -> Option<Instant> {
        self.held_since.map(|since| since + HOLD)
    }

    pub(crate) fn release(&mut self) {
        let out = &mut self.out;
        self.redaction.release_due(&mut |bytes: &[u8]| out.emit(bytes));
        self.held_since = None;
    }

    /// No byte will come any more: what redaction still holds is decided now.
    pub(crate) fn close(&mut self) {
        if self.source.take().is_some() {
            let out = &mut self.out;
            self.redaction.finish(&mut |bytes: &[u8]| out.emit(bytes));
            self.held_since = None;
        }
    }
}
