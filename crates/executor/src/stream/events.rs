//! Event lines on their way out: redacted, never blocking, bounded. A reader that does not read loses lines,
//! and the ledger says how many.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use stockade_redact::Redactor;

use super::Destination;
use super::sink::{Sink, Written};

/// While this much waits, no more is taken from the ledger, which has a bound of its own.
const MOST_WAITING: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Events<'a> {
    sink: Option<Sink<'a>>,
    redactor: &'a Redactor,
    waiting: Vec<u8>,
    /// Why lines were lost, where they belong to a file of frames.
    failure: Option<Errno>,
}

impl<'a> Events<'a> {
    pub(crate) fn new(target: Option<Destination<'a>>, redactor: &'a Redactor) -> Self {
        Self { sink: target.map(Sink::new), redactor, waiting: Vec::new(), failure: None }
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.sink.is_some() && self.waiting.len() < MOST_WAITING
    }

    pub(crate) fn blocked_sink(&self) -> Option<BorrowedFd<'_>> {
        self.sink.as_ref().filter(|_| !self.waiting.is_empty())?.waits_on()
    }

    pub(crate) fn push(&mut self, lines: &[u8]) {
        let Some(sink) = &mut self.sink else { return };
        if let Sink::Frames(..) = sink {
            return self.push_frames(lines);
        }
        self.waiting.extend_from_slice(&self.redactor.redact(lines));
        while !self.waiting.is_empty() {
            match sink.write(&self.waiting, &[]) {
                Written::Bytes(count) => drop(self.waiting.drain(..count)),
                Written::Full => return,
                // Nobody is told any more; the result still lists what was blocked.
                Written::Gone | Written::Failed(_) => self.waiting.clear(),
            }
        }
    }

    /// Each line is a frame of its own, without its end; a file takes them all at once.
    fn push_frames(&mut self, lines: &[u8]) {
        let Some(sink) = &mut self.sink else { return };
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match sink.write(&self.redactor.redact(line), &[]) {
                Written::Bytes(_) => {}
                Written::Failed(errno) => drop(self.failure.get_or_insert(errno)),
                // Not what a file answers, or lost with the one before.
                Written::Full | Written::Gone => {}
            }
        }
    }

    pub(crate) fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// What a slow reader has room for now.
    pub(crate) fn finish(&mut self) {
        self.push(&[]);
    }
}
