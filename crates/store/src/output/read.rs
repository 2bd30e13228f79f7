//! Reads frames by their sequence, while they are written or long after. Nothing in the file is trusted: it was
//! written by a process that runs as someone else.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use stockade_frames::{FRAME_LIMIT, HEADER, Header, Position, Stream};

/// What one answer holds at most.
pub const READ_LIMIT: usize = 4 << 20;

/// Where a reader is. Text of it is the sequence alone; the offset only saves the way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// Of the last frame that was read; 0 for none.
    pub sequence: u64,
    offset: u64,
}

impl Cursor {
    pub const START: Self = Self { sequence: 0, offset: 0 };

    pub fn after(sequence: u64) -> Self {
        Self { sequence, offset: 0 }
    }

    /// Of a reader that began at the start.
    pub(super) fn position(self) -> Position {
        Position { sequence: self.sequence, length: self.offset }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub sequence: u64,
    pub stream: Stream,
    pub millis: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Of anything but the end.
    pub chunks: Vec<Chunk>,
    /// For the next read.
    pub next: Cursor,
    pub rest: Rest,
}

/// What is after the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Frames that did not fit into this answer.
    More,
    /// Nothing yet.
    Open,
    /// Nothing, ever.
    Ended,
    /// Bytes that are no frame. What is after them can't be read.
    Damaged,
}

enum Next {
    Frame(Header),
    /// The file ends here, perhaps in the middle of a frame.
    EndOfFile,
    Damaged,
}

/// Of a file, or of frames that are in memory.
pub(super) struct Reader<F> {
    file: F,
    length: u64,
    offset: u64,
    sequence: u64,
}

impl Reader<BufReader<File>> {
    pub(super) fn new(file: File, length: u64) -> Self {
        Self { file: BufReader::with_capacity(1 << 15, file), length, offset: 0, sequence: 0 }
    }
}

impl<'a> Reader<io::Cursor<&'a [u8]>> {
    pub(super) fn of(frames: &'a [u8]) -> Self {
        let length = u64::try_from(frames.len()).unwrap_or(u64::MAX);
        Self { file: io::Cursor::new(frames), length, offset: 0, sequence: 0 }
    }
}

impl<F: Read + Seek> Reader<F> {
    /// The header at the offset, if its bytes are all there too.
    fn next(&mut self) -> io::Result<Next> {
        if self.length - self.offset < HEADER_BYTES {
            return Ok(Next::EndOfFile);
        }
        let mut bytes = [0; HEADER];
        match self.file.read_exact(&mut bytes) {
            // Cut back by its writer meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Next::EndOfFile),
            other => other?,
        }
        let header = match Header::decode(&bytes) {
            Some(header) if header.sequence == self.sequence + 1 => header,
            Some(_) | None => return Ok(Next::Damaged),
        };
        let whole = self.length - self.offset - HEADER_BYTES >= u64::from(header.length);
        Ok(if whole { Next::Frame(header) } else { Next::EndOfFile })
    }

    fn passed(&mut self, header: &Header) {
        self.offset += HEADER_BYTES + u64::from(header.length);
        self.sequence = header.sequence;
    }

    fn skip(&mut self, header: &Header) -> io::Result<()> {
        self.file.seek_relative(i64::from(header.length))?;
        self.passed(header);
        Ok(())
    }

    /// Goes to the frame after the cursor: straight there if it has been there before, else from frame to frame.
    fn go_to(&mut self, cursor: Cursor) -> io::Result<Option<Rest>> {
        if cursor.offset > 0 && cursor.offset <= self.length {
            self.file.seek(SeekFrom::Start(cursor.offset))?;
            (self.offset, self.sequence) = (cursor.offset, cursor.sequence);
            return Ok(None);
        }
        while self.sequence < cursor.sequence {
            match self.next()? {
                Next::Frame(Header { stream: Stream::End, .. }) => return Ok(Some(Rest::Ended)),
                Next::Frame(header) => self.skip(&header)?,
                Next::EndOfFile => return Ok(Some(Rest::Open)),
                Next::Damaged => return Ok(Some(Rest::Damaged)),
            }
        }
        Ok(None)
    }

    pub(super) fn read(mut self, cursor: Cursor, limit: usize) -> io::Result<Piece> {
        let mut room = limit.min(READ_LIMIT);
        let mut chunks = Vec::new();
        let before = self.go_to(cursor)?;
        if let Some(rest) = before {
            return Ok(Piece { chunks, next: cursor, rest });
        }
        let rest = loop {
            let header = match self.next()? {
                Next::Frame(Header { stream: Stream::End, .. }) => break Rest::Ended,
                Next::Frame(header) => header,
                Next::EndOfFile => break Rest::Open,
                Next::Damaged => break Rest::Damaged,
            };
            let length = usize::try_from(header.length).unwrap_or(FRAME_LIMIT);
            // One always goes, or a small limit would never get past a large frame. Each one costs its header
            // too, or empty frames would cost nothing.
            if !chunks.is_empty() && length + HEADER > room {
                break Rest::More;
            }
            let mut bytes = vec![0; length];
            match self.file.read_exact(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Rest::Open,
                other => other?,
            }
            room = room.saturating_sub(length + HEADER);
            self.passed(&header);
            let Header { sequence, stream, millis, .. } = header;
            chunks.push(Chunk { sequence, stream, millis, bytes });
        };
        let next = Cursor { sequence: self.sequence, offset: self.offset };
        Ok(Piece { chunks, next, rest })
    }

    /// Where the whole frames end, and whether the last of them says so.
    pub(super) fn end(mut self) -> io::Result<(Position, Rest)> {
        let rest = loop {
            match self.next()? {
                Next::Frame(header) => {
                    self.skip(&header)?;
                    if header.stream == Stream::End {
                        break Rest::Ended;
                    }
                }
                Next::EndOfFile => break Rest::Open,
                Next::Damaged => break Rest::Damaged,
            }
        };
        Ok((Position { sequence: self.sequence, length: self.offset }, rest))
    }
}

pub(super) const HEADER_BYTES: u64 = 24;
const _: () = assert!(HEADER == 24);
