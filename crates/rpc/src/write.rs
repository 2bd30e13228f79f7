//! The writing end: one task writes, everyone else queues. The queue is bounded in bytes: a frame gets in
//! once there is room for it, in the order of asking, and gives its room back when it was written.

use std::any::Any;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::codec::Encoder;

use crate::frame::Codec;

/// What a queued frame costs beyond its bytes, so that many small ones are bounded too.
const OVERHEAD: usize = 128;
/// Small frames go out together up to here.
const TOGETHER: usize = 64 * 1024;
const KEPT_CAPACITY: usize = 256 * 1024;

/// A frame's text, of one connection or of many.
#[derive(Debug)]
pub(crate) enum Text {
    Own(String),
    Shared(Arc<str>),
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Own(text) => text,
            Self::Shared(text) => text,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Queued {
    /// With its room, and what else is to live until it is written.
    Frame(Text, OwnedSemaphorePermit, Kept),
    /// Nothing comes after it.
    Last,
}

/// What an answer stands for in memory, until the last byte of it is with the kernel.
pub(crate) type Kept = Arc<Mutex<Vec<Box<dyn Any + Send>>>>;

/// The connection takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over;

#[derive(Debug)]
pub(crate) struct Queue {
    room: Arc<Semaphore>,
    bound: usize,
    /// Unbounded itself: each frame in it holds its part of `room`.
    frames: UnboundedSender<Queued>,
}

impl Queue {
    pub(crate) fn new(bound: usize) -> (Self, UnboundedReceiver<Queued>) {
        let (frames, queued) = unbounded_channel();
        let bound = bound.clamp(OVERHEAD, Semaphore::MAX_PERMITS);
        (Self { room: Arc::new(Semaphore::new(bound)), bound, frames }, queued)
    }

    pub(crate) async fn send(&self, text: Text) -> Result<(), Over> {
        self.send_keeping(text, Kept::default()).await
    }

    /// Waits for room. A frame larger than the whole queue waits until it is empty.
    pub(crate) async fn send_keeping(&self, text: Text, kept: Kept) -> Result<(), Over> {
        let cost = (text.len() + OVERHEAD).min(self.bound);
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(cost).await.map_err(|_| Over)?;
        self.frames.send(Queued::Frame(text, room, kept)).map_err(|_| Over)
    }

    /// What is queued is written, and then nothing more.
    pub(crate) fn last(&self) {
        match self.frames.send(Queued::Last) {
            // An error: the writer ended before.
            Ok(()) | Err(_) => {}
        }
    }

    /// Whoever waits for room is told.
    pub(crate) fn close(&self) {
        self.room.close();
    }
}

/// Until the last frame is written, or none can be.
pub(crate) async fn run<W: AsyncWrite + Unpin>(
    mut io: W,
    mut codec: Codec,
    mut queue: UnboundedReceiver<Queued>,
    stalled: Duration,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let mut open = true;
    while open {
        let mut held: Option<OwnedSemaphorePermit> = None;
        let mut kept = Vec::new();
        let mut next = queue.recv().await;
        while let Some(queued) = next {
            match queued {
                Queued::Frame(text, room, keeps) => {
                    codec.encode(&text, &mut buffer)?;
                    kept.push(keeps);
                    match &mut held {
                        Some(held) => held.merge(room),
                        None => held = Some(room),
                    }
                }
                Queued::Last => open = false,
            }
            next = if open && buffer.len() < TOGETHER { queue.try_recv().ok() } else { None };
        }
        open = open && held.is_some();
        put(&mut io, &mut buffer, stalled).await?;
        drop(kept);
        if buffer.capacity() > KEPT_CAPACITY {
            buffer = BytesMut::new();
        }
    }
    timeout(stalled, io.shutdown()).await?
}

/// Each step gets the whole deadline: a slow reader is one that takes nothing, not one that takes long.
async fn put<W: AsyncWrite + Unpin>(io: &mut W, buffer: &mut BytesMut, stalled: Duration) -> io::Result<()> {
    while !buffer.is_empty() {
        if timeout(stalled, io.write_buf(buffer)).await?? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    timeout(stalled, io.flush()).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Framing;
    use tokio::io::AsyncReadExt;

    fn text(length: usize) -> Text {
        Text::Own("x".repeat(length))
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_bounded_in_bytes_and_frames_keep_their_order() {
        let (queue, queued) = Queue::new(1000);
        queue.send(text(500)).await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, queue.send(text(500))).await.is_err(), "there was no room");
        let (ours, mut theirs) = tokio::io::duplex(64);
        let writer = tokio::spawn(run(ours, Codec::with_framing(1 << 20, Framing::Lines), queued, wait));
        let reader = tokio::spawn(async move {
            let mut all = String::new();
            theirs.read_to_string(&mut all).await.map(|_| all)
        });
        for length in [1, 5000, 2] {
            queue.send(text(length)).await.unwrap();
        }
        queue.last();
        writer.await.unwrap().unwrap();
        let lengths: Vec<usize> = reader.await.unwrap().unwrap().lines().map(str::len).collect();
        assert_eq!(lengths, [500, 1, 5000, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_answer_holds_it_holds_until_it_is_written() {
        let (queue, queued) = Queue::new(1 << 20);
        let held = Arc::new(());
        let kept: Kept = Arc::new(Mutex::new(vec![Box::new(Arc::clone(&held))]));
        queue.send_keeping(text(5000), kept).await.unwrap();
        let wait = Duration::from_secs(30);
        let (ours, mut theirs) = tokio::io::duplex(64);
        let writer = tokio::spawn(run(ours, Codec::with_framing(1 << 20, Framing::Lines), queued, wait));
        let mut most = vec![0; 4900];
        theirs.read_exact(&mut most).await.unwrap();
        assert_eq!(Arc::strong_count(&held), 2, "the rest of it is still here");
        queue.last();
        theirs.read_to_end(&mut most).await.unwrap();
        writer.await.unwrap().unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_ends_the_writer() {
        let (queue, queued) = Queue::new(1000);
        let (ours, _theirs) = tokio::io::duplex(64);
        queue.send(text(500)).await.unwrap();
        let ended = run(ours, Codec::new(1 << 20), queued, Duration::from_secs(30)).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn whoever_waits_is_told_of_the_end() {
        let (queue, _queued) = Queue::new(200);
        queue.send(text(100)).await.unwrap();
        let (waits, ()) = tokio::join!(queue.send(text(100)), async { queue.close() });
        assert_eq!(waits, Err(Over));
    }
}
