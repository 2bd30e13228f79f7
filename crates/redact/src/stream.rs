//! One output stream: takes chunks, shows what may be shown at once, holds what may turn out to be
//! secret, and puts a marker where something was. Keeps no time: the relay calls `release_due` when
//! [`HOLD`] has passed since the last byte.
//!
//! The order of the stream is kept, and nothing is ever shown twice. Memory is bounded by the longest
//! form of the longest secret.

use std::ops::Range;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::cover::Covers;
use crate::redactor::Redactor;
use crate::shapes::Tracker;
use crate::trie::{ROOT, State};

/// How long ordinary output may be held back.
pub const HOLD: Duration = Duration::from_millis(50);

/// Scanned in one go: both scans find it in the first-level cache's reach, and matches found in one
/// piece bound the memory they take.
const PIECE: usize = 64 * 1024;

#[derive(Debug)]
pub struct Stream {
    redactor: Redactor,
    known: State,
    shapes: Tracker,
    covers: Covers,
    held: Buffer,
    /// Number of the first byte in `held`.
    held_from: u64,
    /// Number of the first byte not yet shown or swallowed.
    shown: u64,
    /// Number of the next byte to arrive.
    next: u64,
    redactions: u64,
}

impl Stream {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self {
            covers: Covers::new(redactor.compiled.secrets),
            redactor,
            known: ROOT,
            shapes: Tracker::default(),
            held: Buffer::default(),
            held_from: 0,
            shown: 0,
            next: 0,
            redactions: 0,
        }
    }

    /// Takes the next bytes and calls `out` with what may be shown: slices of `chunk` itself (one, when
    /// nothing was found), bytes held before, and markers.
    pub fn push(&mut self, chunk: &[u8], out: &mut impl FnMut(&[u8])) {
        let mut sink = Sink::new(chunk, self.next, out);
        for piece in chunk.chunks(PIECE) {
            let base = self.next;
            if let Some(known) = &self.redactor.compiled.known {
                self.known = known.scan(self.known, piece, base, &mut self.covers);
            }
            if let Some(shapes) = self.redactor.compiled.shapes() {
                shapes.scan(&mut self.shapes, piece, base, &mut self.covers);
            }
            self.next += piece.len() as u64;
            self.covers.settle();
            self.drain(self.settled(), false, &mut sink);
        }
        sink.flush();
        self.hold(chunk);
    }

    /// Bytes that have arrived and were not shown.
    pub fn held(&self) -> usize {
        self.held.bytes().len()
    }

    /// Whether `release_due` would show anything: only then is a timer worth arming.
    pub fn has_due(&self) -> bool {
        self.held() > 0 && (self.due() > self.shown || self.covers.waits_at(self.shown))
    }

    /// [`HOLD`] has passed since the last byte: ordinary output must wait no longer. Shows held bytes
    /// unless they are four or more bytes of what may be a secret; those wait for the bytes that
    /// decide. The state is kept, so the rest of a secret whose first bytes were shown is still replaced.
    pub fn release_due(&mut self, out: &mut impl FnMut(&[u8])) {
        self.emit_held(self.due(), out);
    }

    /// No more bytes will come. A beginning that is at least half of a secret is redacted, anything
    /// less is shown. The stream can be used again, as a new one.
    pub fn finish(&mut self, out: &mut impl FnMut(&[u8])) {
        if let Some(known) = &self.redactor.compiled.known {
            known.finish(self.known, self.next, &mut self.covers);
        }
        self.covers.settle();
        self.emit_held(self.next, out);
        self.known = ROOT;
        self.shapes = Tracker::default();
        self.covers.forget(u64::MAX);
    }

    /// Markers shown so far.
    pub fn redactions(&self) -> u64 {
        self.redactions
    }

    /// No match that is still to come begins before this byte.
    fn settled(&self) -> u64 {
        let known = self.redactor.compiled.known.as_ref().map_or(0, |known| known.held(self.known));
        (self.next - known).min(self.shapes.holds().unwrap_or(u64::MAX))
    }

    fn due(&self) -> u64 {
        let known = self.redactor.compiled.known.as_ref().map_or(0, |known| known.held_past_due(self.known));
        (self.next - known).min(self.shapes.holds_past_due().unwrap_or(u64::MAX))
    }

    fn emit_held(&mut self, limit: u64, out: &mut impl FnMut(&[u8])) {
        let mut sink = Sink::new(&[], self.next, out);
        self.drain(limit, true, &mut sink);
        self.hold(&[]);
    }

    /// Shows everything before `limit` that is not covered. With `forced`, a covered stretch that is
    /// next in line is announced even though it may still grow: what it grows by is swallowed.
    fn drain(&mut self, limit: u64, forced: bool, sink: &mut Sink<'_>) {
        let mut index = 0;
        while let Some(cover) = self.covers.get_mut(index) {
            index += 1;
            let (start, end) = (cover.start, cover.end);
            if start >= limit && !(forced && start <= self.shown) && !cover.announced {
                break;
            }
            let announce = !std::mem::replace(&mut cover.announced, true);
            self.show(start, sink);
            if announce {
                if let Some(marker) = self.covers.get_mut(index - 1).map(|cover| cover.label) {
                    sink.mark(self.redactor.compiled.marker(marker));
                }
                self.redactions += 1;
            }
            self.shown = self.shown.max(end);
        }
        self.show(limit, sink);
        self.covers.forget(self.settled());
    }

    fn show(&mut self, until: u64, sink: &mut Sink<'_>) {
        if until > self.shown {
            sink.show(self.held.bytes(), self.held_from, self.shown..until);
            self.shown = until;
        }
    }

    /// Keeps what was neither shown nor swallowed.
    fn hold(&mut self, chunk: &[u8]) {
        let chunk_from = self.next - chunk.len() as u64;
        self.held.drop_front(offset(self.shown, self.held_from));
        self.held.append(chunk.get(offset(self.shown, chunk_from)..).unwrap_or_default());
        self.held_from = self.shown;
    }
}

/// Where byte number `at` lies in bytes that begin with number `from`; all of them are in memory, so
/// the difference fits.
fn offset(at: u64, from: u64) -> usize {
    usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX)
}

/// Joins neighbouring stretches of the chunk, so that an ordinary chunk is shown in one call.
struct Sink<'a> {
    chunk: &'a [u8],
    chunk_from: u64,
    pending: Range<usize>,
    out: &'a mut dyn FnMut(&[u8]),
}

impl<'a> Sink<'a> {
    fn new(chunk: &'a [u8], chunk_from: u64, out: &'a mut dyn FnMut(&[u8])) -> Self {
        Self { chunk, chunk_from, pending: 0..0, out }
    }

    fn show(&mut self, held: &[u8], held_from: u64, range: Range<u64>) {
        if range.start < self.chunk_from {
            let end = offset(range.end, held_from).min(held.len());
            self.flush();
            (self.out)(held.get(offset(range.start, held_from)..end).unwrap_or_default());
        }
        if range.end > self.chunk_from {
            let range = offset(range.start, self.chunk_from)..offset(range.end, self.chunk_from);
            if self.pending.end != range.start {
                self.flush();
                self.pending.start = range.start;
            }
            self.pending.end = range.end;
        }
    }

    fn mark(&mut self, marker: &[u8]) {
        self.flush();
        (self.out)(marker);
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            (self.out)(&self.chunk[self.pending.clone()]);
        }
        self.pending = self.pending.end..self.pending.end;
    }
}
