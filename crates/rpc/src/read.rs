//! The reading end: takes bytes in small steps, so that no more than a frame and a step are ever here, and
//! knows since when a frame is incomplete.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;
use tokio_util::codec::Decoder;

use crate::frame::{Codec, FrameError, Item};
use crate::share::{Part, Share};

/// One read.
const STEP: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    io: R,
    codec: Codec,
    buffer: BytesMut,
    at_end: bool,
    incomplete: Option<Instant>,
    part: Part,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(io: R, codec: Codec, share: Option<Share>) -> Self {
        let (buffer, part) = (BytesMut::new(), Part::new(share));
        Self { io, codec, buffer, at_end: false, incomplete: None, part }
    }

    /// The next item of what is here.
    pub(crate) fn take(&mut self) -> io::Result<Option<Item>> {
        let item = match self.at_end {
            true => self.codec.decode_eof(&mut self.buffer)?,
            false => self.codec.decode(&mut self.buffer)?,
        };
        let partial = item.is_none() && (!self.buffer.is_empty() || self.codec.is_skipping());
        self.incomplete = partial.then(|| self.incomplete.unwrap_or_else(Instant::now));
        // What is here whole is the calls' to count.
        match self.part.set(if partial { self.buffer.len() } else { 0 }) {
            Ok(()) => Ok(item),
            Err(bound) => {
                // The connection ends; nobody waits for this memory until it has.
                self.buffer = BytesMut::new();
                self.part.clear();
                Ok(Some(Err(FrameError::TooMuch { bound })))
            }
        }
    }

    /// One read. Nothing is lost where it is dropped unfinished.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        self.buffer.reserve(STEP);
        let step = u64::try_from(STEP).unwrap_or(u64::MAX);
        let count = (&mut self.io).take(step).read_buf(&mut self.buffer).await?;
        self.at_end = count == 0;
        Ok(())
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at_end
    }

    /// Since when the frame at the front lacks its end.
    pub(crate) fn incomplete(&self) -> Option<Instant> {
        self.incomplete
    }

    /// Reads what nobody wants, at most `most` bytes: whoever is still writing then gets to read why.
    pub(crate) async fn discard(&mut self, most: u64) {
        match tokio::io::copy(&mut (&mut self.io).take(most), &mut tokio::io::sink()).await {
            // The connection ends either way.
            Ok(_) | Err(_) => {}
        }
    }
}
