//! One stream from the command's pipe through redaction to its sink.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use stockade_proto::StreamTotals;
use stockade_redact::{HOLD, Redactor, Stream};

use super::Destination;
use super::sink::{Sink, Written};

/// One read. A socket takes some 200 KiB at once (the kernel's default); of a larger chunk the rest would be copied, and wait
/// for a reader that has to be waited for as well. Smaller ones wake everybody more often.
const CHUNK: usize = 192 * 1024;
/// Full reads in a row: of a command that writes faster than we read, poll would say each time that there is more. No more than
/// these: deadlines and the other stream wait meanwhile, about half a millisecond.
const ROW: usize = 8;
/// The first read: most commands write less than this.
const FIRST_CHUNK: usize = 16 * 1024;

/// What is read into, one stream after the other. As large as it was ever worth.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(FIRST_CHUNK))
    }

    fn read(&mut self, source: &OwnedFd) -> Result<&[u8], Errno> {
        self.0.clear();
        let count = rustix::io::read(source, rustix::buffer::spare_capacity(&mut self.0))?;
        if count == self.0.capacity() && count < CHUNK {
            // What is there stays; the next one is larger.
            self.0.reserve_exact(CHUNK - count);
        }
        Ok(&self.0)
    }
}

/// Less is not written on its own while more is coming: every write wakes the reader, and the few bytes
/// that redaction held back from the chunk before would cost as much as the chunk.
const SMALL: usize = 4096;

pub(crate) struct Relay<'a> {
    source: Option<OwnedFd>,
    /// The same, when nothing can come of it any more.
    spent: Option<OwnedFd>,
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
    /// Keeps small pieces for the next large one, or for `flush`.
    fn emit(&mut self, bytes: &[u8]) {
        if bytes.len() < SMALL {
            self.pending.extend_from_slice(bytes);
        } else {
            self.send(bytes);
        }
    }

    fn flush(&mut self) {
        self.send(&[]);
    }

    /// Writes what is pending and then `bytes`; what the sink doesn't take now is pending.
    fn send(&mut self, mut bytes: &[u8]) {
        while self.sent < self.pending.len() || !bytes.is_empty() {
            let waiting = &self.pending[self.sent..];
            match self.sink.write(waiting, bytes) {
                Written::Bytes(count) => {
                    let of_waiting = count.min(waiting.len());
                    self.sent += of_waiting;
                    bytes = &bytes[count - of_waiting..];
                }
                Written::Full => break,
                Written::Gone => (self.sent, bytes) = (self.pending.len(), &[]),
                Written::Failed(errno) => {
                    self.failure.get_or_insert(errno);
                    (self.sent, bytes) = (self.pending.len(), &[]);
                }
            }
        }
        if self.sent == self.pending.len() {
            self.pending.clear();
            self.sent = 0;
        }
        self.pending.extend_from_slice(bytes);
    }

    fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

impl<'a> Relay<'a> {
    pub(crate) fn new(source: OwnedFd, destination: Destination<'a>, redactor: &Redactor) -> Self {
        Self {
            source: Some(source),
            spent: None,
            redaction: redactor.stream(),
            held_since: None,
            out: Out { sink: Sink::new(destination), pending: Vec::new(), sent: 0, failure: None },
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

    /// For whoever has the time to close it: its memory is to be freed.
    pub(crate) fn spent(&mut self) -> Option<OwnedFd> {
        self.spent.take()
    }

    /// Reads what is there, up to a bound. `allowance` is what the output limit still lets through; bytes beyond it are
    /// counted, not passed on.
    pub(crate) fn pump(&mut self, buffer: &mut Buffer, mut allowance: u64) -> std::io::Result<()> {
        for _ in 0..ROW {
            let before = self.totals.bytes;
            self.read_once(buffer, allowance)?;
            let count = self.totals.bytes - before;
            allowance = allowance.saturating_sub(count);
            if count < CHUNK as u64 || allowance == 0 || !self.out.is_idle() {
                break;
            }
        }
        Ok(())
    }

    fn read_once(&mut self, buffer: &mut Buffer, allowance: u64) -> std::io::Result<()> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        let read = match buffer.read(source) {
            Ok([]) => {
                self.close();
                return Ok(());
            }
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let count = read.len();
        let passed = usize::try_from(allowance).unwrap_or(usize::MAX).min(count);
        self.totals.bytes += count as u64;
        self.totals.dropped += (count - passed) as u64;
        let out = &mut self.out;
        self.redaction.push(&read[..passed], &mut |bytes: &[u8]| out.emit(bytes));
        out.flush();
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
        out.flush();
        self.held_since = None;
    }

    /// No byte will come any more: what redaction still holds is decided now.
    pub(crate) fn close(&mut self) {
        if let Some(source) = self.source.take() {
            self.spent = Some(source);
            let out = &mut self.out;
            self.redaction.finish(&mut |bytes: &[u8]| out.emit(bytes));
            out.flush();
            self.held_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
    use stockade_redact::Secret;

    const VALUE: &str = "hunter2-hunter2?";

    /// What arrives at a reader of `kind`, one item per read, of what a command writes bit by bit.
    fn relayed(kind: SocketType, written: &[&[u8]]) -> Vec<Vec<u8>> {
        let secret = Secret::new("K", VALUE.as_bytes()).unwrap();
        let redactor = Redactor::new(&[secret], true).unwrap();
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None).unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&write, 1 << 20).unwrap();
        let mut relay = Relay::new(read, Destination::Descriptor(theirs.as_fd()), &redactor);
        let (mut buffer, mut seen) = (Buffer(Vec::with_capacity(CHUNK)), Vec::new());
        let mut look = || {
            let mut bytes = vec![0; 1 << 20];
            while let Ok((count, _)) = recv(&ours, &mut bytes[..], RecvFlags::empty()) {
                seen.push(bytes[..count].to_vec());
            }
        };
        for part in written {
            assert_eq!(rustix::io::write(&write, part), Ok(part.len()));
            relay.pump(&mut buffer, u64::MAX).unwrap();
            while !relay.out.is_idle() {
                look();
                relay.flush();
            }
            look();
        }
        relay.close();
        look();
        seen
    }

    #[test]
    fn held_bytes_go_out_with_the_next_chunk() {
        let (first, second) = ([b'.'; 2 * SMALL], [b','; 2 * SMALL]);
        let seen = relayed(SocketType::SEQPACKET, &[&[&first[..], b"hun"].concat(), &second]);
        assert!(seen == [first.to_vec(), [b"hun", &second[..]].concat()]);
    }

    /// What one look reads of a pipe that is full, and drops beyond `allowance`.
    fn pumped(allowance: u64) -> (u64, u64) {
        let redactor = Redactor::new(&[], true).unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&write, 1 << 20).unwrap();
        assert_eq!(rustix::io::write(&write, &[b'.'; 1 << 20]), Ok(1 << 20));
        let mut relay = Relay::new(read, Destination::Discard, &redactor);
        relay.pump(&mut Buffer(Vec::with_capacity(CHUNK)), allowance).unwrap();
        (relay.totals().bytes, relay.totals().dropped)
    }

    #[test]
    fn much_is_read_in_a_row_and_passed_on_up_to_the_limit() {
        const WHOLE: u64 = CHUNK as u64;
        assert_eq!(pumped(u64::MAX), (1 << 20, 0));
        assert_eq!(pumped(2 * WHOLE), (2 * WHOLE, 0));
        assert_eq!(pumped(2 * WHOLE + 10), (3 * WHOLE, WHOLE - 10));
    }

    #[test]
    fn a_reader_that_lags_sees_every_byte_once_and_in_order() {
        let mut text = Vec::new();
        while text.len() < CHUNK - 100 {
            text.extend_from_slice(format!("{} {VALUE} ", text.len()).as_bytes());
            text.resize(text.len() + text.len() % (3 * SMALL), b'.');
        }
        let parts: Vec<&[u8]> = text.chunks(150_000).collect();
        let expected = String::from_utf8(text.clone()).unwrap().replace(VALUE, "[redacted:K]");
        assert!(relayed(SocketType::STREAM, &parts).concat() == expected.as_bytes());
    }
}
