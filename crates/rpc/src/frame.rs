//! Bytes to frames and back. One connection speaks one of two framings, told by its first byte: a JSON text
//! per line, or a big-endian u32 length before each. A frame here is text that is worth parsing: within the
//! limit, UTF-8, not nested too deep. What it says is read next, in `message`.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::{Buf, BufMut, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use crate::error::{BUSY, INVALID_REQUEST, PARSE_ERROR};

/// No frame is longer, whatever its limit. It also keeps the framings apart: the first byte of a length is
/// never above 1, and no JSON text starts with such a byte.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;
/// No limit of a connection is lower: an error with the longest id must fit.
pub(crate) const MIN_FRAME: usize = 2 * crate::message::LONGEST_ID;
/// As deep as `serde_json` reads. Params are kept as raw text, which it skips at any depth: without this,
/// whoever reads them later would find out.
pub const NESTING: usize = 127;
/// A buffer that grew for a large frame is given back once what is left in it is small.
const KEPT_CAPACITY: usize = 256 * 1024;
const SMALL_REST: usize = 32 * 1024;
/// Bytes of a length.
const HEAD: usize = size_of::<u32>();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One JSON text per line.
    Lines,
    /// A big-endian u32 length before each JSON text.
    Lengths,
}

impl Framing {
    /// By the first byte of a connection. Printable garbage counts as a line: it gets an answer that can be
    /// read by eye.
    fn told_by(first: u8) -> Self {
        if first < b' ' && !blank(first) { Self::Lengths } else { Self::Lines }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lines => "lines",
            Self::Lengths => "length-prefixed frames",
        })
    }
}

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame is longer than the limit of {limit} bytes")]
    TooLong { limit: usize },
    #[error("a frame of {length} bytes is announced and the limit is {limit}")]
    Announced { length: u32, limit: usize },
    #[error("a frame of length zero is announced")]
    Empty,
    #[error("the connection began with {began}: the other framing can't follow")]
    Mixed { began: Framing },
    #[error("a frame is not UTF-8")]
    NotUtf8,
    #[error("a frame holds a NUL byte")]
    Nul,
    #[error("a frame is nested deeper than {}", NESTING)]
    TooDeep,
    #[error("the connection ended within a frame")]
    CutOff,
    #[error("the unfinished frames of all your connections are more than {bound} bytes together")]
    TooMuch { bound: usize },
}

impl FrameError {
    pub fn code(&self) -> i64 {
        match self {
            Self::TooLong { .. } | Self::Announced { .. } | Self::Empty | Self::Mixed { .. } => {
                INVALID_REQUEST
            }
            Self::NotUtf8 | Self::Nul | Self::TooDeep | Self::CutOff => PARSE_ERROR,
            Self::TooMuch { .. } => BUSY,
        }
    }

    /// Whether nobody can tell any more where the next frame begins, or should try.
    pub fn ends(&self) -> bool {
        match self {
            Self::Announced { .. }
            | Self::Empty
            | Self::Mixed { .. }
            | Self::CutOff
            | Self::TooMuch { .. } => true,
            Self::TooLong { .. } | Self::NotUtf8 | Self::Nul | Self::TooDeep => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// Within a line that is too long and was reported: its bytes are dropped as they come.
    Skipping,
    /// After an error that ends: whatever comes is dropped.
    Ended,
}

/// A broken frame is an item, not an error of the decoder: the peer is told, and the next frame is read.
pub type Item = Result<String, FrameError>;

/// One direction of a connection. [`Codec::other_side`] is for the other direction: it answers in the
/// framing that this one heard.
#[derive(Debug)]
pub struct Codec {
    limit: usize,
    framing: Arc<OnceLock<Framing>>,
    state: State,
    /// How far the line at the front was searched for its end.
    searched: usize,
}

impl Codec {
    /// The framing is told by the first byte. A `limit` above [`MAX_FRAME`] is cut to it.
    pub fn new(limit: usize) -> Self {
        let framing = Arc::new(OnceLock::new());
        Self { limit: limit.min(MAX_FRAME), framing, state: State::Reading, searched: 0 }
    }

    /// For the side that speaks first, and for links whose framing is agreed.
    pub fn with_framing(limit: usize, framing: Framing) -> Self {
        Self { framing: Arc::new(OnceLock::from(framing)), ..Self::new(limit) }
    }

    #[must_use]
    pub fn other_side(&self) -> Self {
        Self { framing: Arc::clone(&self.framing), ..Self::new(self.limit) }
    }

    pub fn framing(&self) -> Option<Framing> {
        self.framing.get().copied()
    }

    pub(crate) fn is_skipping(&self) -> bool {
        self.state == State::Skipping
    }

    fn settle(&self, source: &[u8]) -> Option<Framing> {
        match self.framing() {
            Some(framing) => Some(framing),
            None => source.first().map(|first| *self.framing.get_or_init(|| Framing::told_by(*first))),
        }
    }

    fn line(&mut self, source: &mut BytesMut) -> Option<Item> {
        if self.state == State::Skipping {
            let Some(end) = source.iter().position(|byte| *byte == b'\n') else {
                source.clear();
                return None;
            };
            source.advance(end + 1);
            self.state = State::Reading;
        }
        let blanks = source.iter().take_while(|byte| blank(**byte)).count();
        source.advance(blanks);
        if Framing::told_by(*source.first()?) == Framing::Lengths {
            return Some(Err(FrameError::Mixed { began: Framing::Lines }));
        }
        let rest = source.get(self.searched..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
        self.searched = if end.is_some() { 0 } else { source.len() };
        match end {
            Some(end) if end > self.limit => {
                source.advance(end + 1);
                Some(Err(FrameError::TooLong { limit: self.limit }))
            }
            Some(end) => {
                let item = text(source.get(..end).unwrap_or_default());
                source.advance(end + 1);
                Some(item)
            }
            None if source.len() > self.limit => {
                source.clear();
                self.searched = 0;
                self.state = State::Skipping;
                Some(Err(FrameError::TooLong { limit: self.limit }))
            }
            None => None,
        }
    }

    fn counted(&self, source: &mut BytesMut) -> Option<Item> {
        if Framing::told_by(*source.first()?) == Framing::Lines {
            return Some(Err(FrameError::Mixed { began: Framing::Lengths }));
        }
        let (head, rest) = source.split_first_chunk::<HEAD>()?;
        let announced = u32::from_be_bytes(*head);
        let length = match usize::try_from(announced) {
            Ok(0) => return Some(Err(FrameError::Empty)),
            Ok(length) if length <= self.limit => length,
            Ok(_) | Err(_) => {
                return Some(Err(FrameError::Announced { length: announced, limit: self.limit }));
            }
        };
        let item = text(rest.get(..length)?);
        source.advance(HEAD + length);
        Some(item)
    }

    /// What is left when nothing more comes. A last line may lack its end.
    fn rest(&mut self, source: &mut BytesMut) -> Option<Item> {
        let whole = match (self.state, self.framing()) {
            (State::Reading, Some(Framing::Lines)) => text(source),
            (State::Reading, Some(Framing::Lengths) | None) => Err(FrameError::CutOff),
            (State::Skipping | State::Ended, _) => return None,
        };
        let item = (!source.is_empty()).then_some(whole);
        self.state = State::Ended;
        source.clear();
        item
    }
}

impl Decoder for Codec {
    type Item = Item;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> io::Result<Option<Item>> {
        let item = match (self.state, self.settle(source)) {
            (State::Ended, _) => {
                source.clear();
                None
            }
            (State::Reading | State::Skipping, Some(Framing::Lines)) => self.line(source),
            (State::Reading | State::Skipping, Some(Framing::Lengths)) => self.counted(source),
            (State::Reading | State::Skipping, None) => None,
        };
        if matches!(&item, Some(Err(error)) if error.ends()) {
            self.state = State::Ended;
            source.clear();
        }
        if source.capacity() > KEPT_CAPACITY && source.len() < SMALL_REST {
            *source = BytesMut::from(source.as_ref());
        }
        Ok(item)
    }

    fn decode_eof(&mut self, source: &mut BytesMut) -> io::Result<Option<Item>> {
        match self.decode(source)? {
            Some(item) => Ok(Some(item)),
            None => Ok(self.rest(source)),
        }
    }
}

impl Encoder<&str> for Codec {
    type Error = io::Error;

    /// Before the other side was heard, in lines.
    fn encode(&mut self, text: &str, to: &mut BytesMut) -> io::Result<()> {
        let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= self.limit);
        let length = length.ok_or_else(|| io::Error::other(FrameError::TooLong { limit: self.limit }))?;
        to.reserve(HEAD + text.len());
        match self.framing().unwrap_or(Framing::Lines) {
            Framing::Lengths => {
                to.put_u32(length);
                to.put_slice(text.as_bytes());
            }
            Framing::Lines => {
                // In a JSON text a bare newline is space between tokens, so another space does as well.
                for (index, line) in text.split('\n').enumerate() {
                    if index > 0 {
                        to.put_u8(b' ');
                    }
                    to.put_slice(line.as_bytes());
                }
                to.put_u8(b'\n');
            }
        }
        Ok(())
    }
}

/// JSON's white space.
fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn text(bytes: &[u8]) -> Item {
    let text = str::from_utf8(bytes).map_err(|_| FrameError::NotUtf8)?;
    if bytes.contains(&0) {
        return Err(FrameError::Nul);
    }
    if nesting(bytes) > NESTING {
        return Err(FrameError::TooDeep);
    }
    Ok(text.to_owned())
}

/// How deep brackets go, outside strings. Of what is no JSON it says something, which is enough.
fn nesting(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut string, mut escaped) = (false, false);
    for byte in bytes {
        match (string, *byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => string = !string,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (true | false, _) => {}
        }
    }
    deepest
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
