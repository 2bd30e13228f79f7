//! What a stage writes, told while it runs: at most so often and so much at a time. It reads the file that the
//! executor writes to, so a caller who takes nothing slows nobody; what comes faster is left out and counted.

use std::sync::Arc;
use std::time::Duration;

use stockade_proto::door::{self, StageProgress, StageStep, method};
use stockade_rpc::Peer;
use stockade_store::ExecutionId;
use stockade_store::output::{Chunk, Cursor, Rest, Stream};
use tokio::time::{Instant, sleep, timeout};

use crate::core::Core;

/// Between two looks while something is written, and while nothing is.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_millis(800);
/// One look. Of a command that writes faster, progress falls behind.
const LOOK: usize = 256 << 10;
/// Text of one notification.
const TEXT: usize = 8 << 10;
/// For the last words to be taken before the answer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// In the order in which they are told.
const STREAMS: [(Stream, door::Stream); 3] = [
    (Stream::Stdout, door::Stream::Stdout),
    (Stream::Stderr, door::Stream::Stderr),
    (Stream::Event, door::Stream::Event),
];

#[derive(Debug)]
pub(super) struct Progress<'a> {
    core: &'a Arc<Core>,
    peer: &'a Peer,
    stage_id: &'a str,
    execution: ExecutionId,
    begun: Instant,
    cursor: Cursor,
    sequence: u64,
    told_bytes: u64,
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        core: &'a Arc<Core>,
        peer: &'a Peer,
        stage_id: &'a str,
        execution: ExecutionId,
    ) -> Self {
        Self {
            core,
            peer,
            stage_id,
            execution,
            begun: Instant::now(),
            cursor: Cursor::START,
            sequence: 0,
            told_bytes: 0,
        }
    }

    /// Until the output or the connection ends. Dropped anywhere, it has lost at most what it was about to tell.
    pub(super) async fn tell(&mut self) {
        self.notify(StageStep::Started, None, Told::default()).await;
        let mut pause = OFTEN;
        loop {
            sleep(pause).await;
            match self.look().await {
                Some(Look { rest: Rest::Ended | Rest::Damaged, .. }) | None => return,
                Some(Look { rest: Rest::Open, something: false }) => pause = (pause * 2).min(SELDOM),
                Some(Look { rest: Rest::More | Rest::Open, .. }) => pause = OFTEN,
            }
        }
    }

    /// What was written since, once it has ended: one more look. Says how many bytes of stdout and stderr were told.
    pub(super) async fn last(mut self) -> u64 {
        match timeout(LAST_WORDS, self.look()).await {
            // The answer has it all.
            Ok(_) | Err(_) => self.told_bytes,
        }
    }

    async fn look(&mut self) -> Option<Look> {
        let piece = self.core.record.read(self.execution, self.cursor, LOOK).await.ok()?;
        self.cursor = piece.next;
        for (stream, shown) in STREAMS {
            let told = Told::of(&piece.chunks, stream);
            if told.text.is_empty() && told.dropped == 0 {
                continue;
            }
            self.notify(StageStep::Output, Some(shown), told).await;
        }
        (!self.peer.is_closed()).then_some(Look { rest: piece.rest, something: !piece.chunks.is_empty() })
    }

    async fn notify(&mut self, step: StageStep, stream: Option<door::Stream>, told: Told) {
        self.sequence += 1;
        if stream != Some(door::Stream::Event) {
            self.told_bytes = self.told_bytes.saturating_add(told.bytes);
        }
        let progress = StageProgress {
            stage_id: self.stage_id.to_owned(),
            execution: self.execution.to_string(),
            sequence: self.sequence,
            step,
            stream,
            text: told.text,
            dropped_bytes: told.dropped,
            elapsed_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        match self.peer.notify(method::PROGRESS, &progress).await {
            // An error: the connection is over, which whoever runs it sees.
            Ok(()) | Err(_) => {}
        }
    }
}

#[derive(Debug)]
struct Look {
    rest: Rest,
    something: bool,
}

/// The newest part of what was written to one stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    text: String,
    bytes: u64,
    dropped: u64,
}

impl Told {
    fn of(chunks: &[Chunk], stream: Stream) -> Self {
        let mut parts: Vec<&[u8]> = Vec::new();
        let (mut kept, mut dropped) = (0_usize, 0_usize);
        for chunk in chunks.iter().rev().filter(|chunk| chunk.stream == stream) {
            let room = TEXT.saturating_sub(kept);
            let fits = match stream {
                // Half a decision is none.
                Stream::Event if chunk.bytes.len() > room => 0,
                Stream::Event | Stream::Stdout | Stream::Stderr | Stream::End => chunk.bytes.len().min(room),
            };
            let skipped = if dropped > 0 { chunk.bytes.len() } else { chunk.bytes.len() - fits };
            dropped += skipped;
            let part = chunk.bytes.get(skipped..).unwrap_or_default();
            kept += part.len();
            parts.push(part);
        }
        parts.reverse();
        let between: &[u8] = if stream == Stream::Event { b"\n" } else { b"" };
        let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let count = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        Self {
            text: String::from_utf8_lossy(&parts.join(between)).into_owned(),
            bytes: count(kept),
            dropped: count(dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(stream: Stream, text: &str) -> Chunk {
        Chunk { sequence: 1, stream, millis: 0, bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn streams_are_told_apart_and_joined() {
        let chunks = [chunk(Stream::Stdout, "a"), chunk(Stream::Stderr, "x"), chunk(Stream::Stdout, "b")];
        let told = Told::of(&chunks, Stream::Stdout);
        assert_eq!(told, Told { text: "ab".to_owned(), bytes: 2, dropped: 0 });
        assert_eq!(Told::of(&chunks, Stream::Event), Told::default());
    }

    #[test]
    fn the_newest_is_told_and_the_rest_counted() {
        let old = "o".repeat(TEXT);
        let told = Told::of(&[chunk(Stream::Stdout, &old), chunk(Stream::Stdout, "new")], Stream::Stdout);
        assert!(told.text.ends_with("onew") && told.text.len() == TEXT);
        assert_eq!(told.dropped, 3);
    }

    #[test]
    fn decisions_are_whole_and_parted() {
        let long = "e".repeat(TEXT);
        let chunks = [chunk(Stream::Event, "gone"), chunk(Stream::Event, &long), chunk(Stream::Event, "{}")];
        let told = Told::of(&chunks, Stream::Event);
        assert_eq!((told.text.as_str(), told.dropped), ("{}", 4 + 8192));
        let two = Told::of(&[chunk(Stream::Event, "{}"), chunk(Stream::Event, "{}")], Stream::Event);
        assert_eq!(two.text, "{}\n{}");
    }
}
