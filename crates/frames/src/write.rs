//! The writer of one execution's output. It needs nothing but the file, which may have come from another process.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::time::Instant;

use crate::header::{FRAME_LIMIT, Header, Stream};

/// Appends frames, each with one writev: a reader sees a frame whole, or its beginning at the end of the file.
#[derive(Debug)]
pub struct Frames {
    file: File,
    started: Instant,
    sequence: u64,
    /// Whole frames only.
    length: u64,
    ended: bool,
}

impl Frames {
    /// For an empty file that is open for appending, as `create` gives it.
    pub fn new(file: File, started: Instant) -> Self {
        Self::resume(file, started, Position { sequence: 0, length: 0 })
    }

    /// Goes on behind whole frames that are there already.
    pub fn resume(file: File, started: Instant, position: Position) -> Self {
        let Position { sequence, length } = position;
        Self { file, started, sequence, length, ended: false }
    }

    /// The sequence of the last frame that was written; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// More than a frame holds becomes several. With an error the file ends with the last whole frame.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<u64> {
        for piece in bytes.chunks(FRAME_LIMIT) {
            self.frame(stream, piece)?;
        }
        Ok(self.sequence)
    }

    /// Says that nothing follows.
    pub fn end(&mut self) -> io::Result<u64> {
        self.frame(Stream::End, &[])?;
        self.ended = true;
        Ok(self.sequence)
    }

    fn frame(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if self.ended {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the output has ended"));
        }
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let sequence = self.sequence + 1;
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let header = Header { stream, length, sequence, millis }.encode();
        if let Err(error) = self.write(&header, bytes) {
            // If this fails too the reader stops at the unfinished frame, and so does everything after it.
            self.ended = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.sequence = sequence;
        self.length += u64::try_from(header.len() + bytes.len()).unwrap_or(0);
        Ok(())
    }

    fn write(&mut self, header: &[u8], bytes: &[u8]) -> io::Result<()> {
        let mut slices = [IoSlice::new(header), IoSlice::new(bytes)];
        let mut rest = &mut slices[..];
        // One call, unless the disk is about to be full or a signal came.
        loop {
            match self.file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if rest.iter().all(|slice| slice.is_empty()) {
                return Ok(());
            }
        }
    }
}

/// Where a file's whole frames end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub sequence: u64,
    pub length: u64,
}
