//! Output by cursor, and the same as server-sent events. Both pull: what a client does not take is not read, and is
//! in the file for when it does.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use serde::Serialize;
use stockade_frames::FRAME_LIMIT;
use stockade_proto::Code;
use stockade_proto::door::{Chunk, Stream};
use stockade_store::ExecutionId;
use stockade_store::output::{Cursor, Rest};
use tokio::sync::OwnedSemaphorePermit;

use super::executions::id;
use crate::core::Core;
use crate::denied::Denied;
use crate::doors::http::answer::{Asked, Door};
use crate::doors::http::reply::{JSON, More, Pieces, Reply};
use crate::doors::http::route::{LAST_EVENT_ID, OUTPUT_DEFAULT};
use crate::doors::words;
use crate::principal::Principal;

/// Of output that becomes events at a time.
const STEP: usize = 32 << 10;
/// What a byte of output is in memory at worst: itself, and as JSON in two hex digits or an escape.
const WORST: usize = 8;
/// Where there is nothing to say, something is said anyway: proxies close what is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(in crate::doors::http) async fn output(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let id = id(&asked)?;
    let cursor = Cursor::after(asked.query.number("after").unwrap_or_default());
    let limit = usize::try_from(asked.query.number("limit").unwrap_or(OUTPUT_DEFAULT)).unwrap_or(usize::MAX);
    let within = Duration::from_millis(asked.query.number("wait_ms").unwrap_or_default());
    if !within.is_zero() {
        let _place = door.follow()?;
        // Until there is something; what there is then is read with room for it.
        tokio::select! {
            piece = door.core.read(&asked.principal, id, cursor, 1, within) => drop(piece?),
            () = door.stopping() => {}
        }
    }
    // One frame is read whole, however little is asked for.
    let room = door.room_for(id, limit.max(FRAME_LIMIT).saturating_mul(WORST)).await?;
    let piece = door.core.read(&asked.principal, id, cursor, limit, Duration::ZERO).await?;
    let json = door.core.record.blocking(move |_| Ok(serde_json::to_vec(&words::output(piece))));
    match json.await? {
        Ok(json) => Ok(Reply::bytes(StatusCode::OK, JSON, json).holding(room).of(id)),
        // Our own words have string keys and no failing serializer.
        Err(_) => Err(Denied::fault(Code::RecordFailed, "the output can't be shown", "Ask for less of it.")),
    }
}

pub(in crate::doors::http) async fn events(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let id = id(&asked)?;
    // Before the first byte: whoever may not see it gets a status, not an empty stream.
    door.core.look_up(&asked.principal, id).await?;
    let cursor = Cursor::after(match asked.headers.get(LAST_EVENT_ID) {
        None => asked.query.number("after").unwrap_or_default(),
        Some(last) => last.to_str().ok().and_then(|last| last.parse().ok()).ok_or_else(|| {
            Denied::refuse(
                Code::RequestInvalid,
                "the Last-Event-ID is not one of ours",
                "Send the `id` of an event as it was, or none for all of them.",
            )
        })?,
    });
    let place = door.follow()?;
    let (core, principal) = (Arc::clone(&door.core), asked.principal);
    let feed = Feed { core, principal, id, cursor, at: At::Output, _place: place };
    Ok(Reply::events(Box::new(feed)).of(id))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Output,
    /// The output is over; the record is about to be.
    Ending,
    Over,
}

#[derive(Debug)]
struct Feed {
    core: Arc<Core>,
    principal: Principal,
    id: ExecutionId,
    cursor: Cursor,
    at: At,
    _place: OwnedSemaphorePermit,
}

impl Pieces for Feed {
    fn next(mut self: Box<Self>) -> More {
        Box::pin(async move {
            let text = self.step().await?;
            Some((bytes::Bytes::from(text), self as Box<dyn Pieces>))
        })
    }
}

impl Feed {
    async fn step(&mut self) -> Option<String> {
        if self.at == At::Output {
            let text = self.output().await;
            if !text.is_empty() {
                return Some(text);
            }
        }
        match self.at {
            At::Output => Some(": still here\n\n".into()),
            At::Ending => Some(self.ending().await),
            At::Over => None,
        }
    }

    /// Nothing if nothing came for a while, or ever will.
    async fn output(&mut self) -> String {
        let piece = self.core.read(&self.principal, self.id, self.cursor, STEP, KEEP_ALIVE).await;
        let piece = match piece {
            Ok(piece) => piece,
            Err(denied) => return self.give_up(&denied),
        };
        self.cursor = piece.next;
        self.at = match piece.rest {
            Rest::More | Rest::Open => At::Output,
            Rest::Ended | Rest::Damaged => At::Ending,
        };
        let mut text = String::new();
        if piece.rest == Rest::Damaged {
            text.push_str(": what follows can't be read\n\n");
        }
        words::output(piece)
            .chunks
            .iter()
            .for_each(|chunk| write(&mut text, Some(chunk.sequence), name(chunk), chunk));
        text
    }

    async fn ending(&mut self) -> String {
        match self.core.wait(&self.principal, self.id, KEEP_ALIVE).await {
            Ok(Some(row)) => {
                self.at = At::Over;
                let mut text = String::new();
                write(&mut text, self.cursor.sequence.checked_add(1), "ended", &words::execution(row));
                text
            }
            Ok(None) => ": still here\n\n".into(),
            Err(denied) => self.give_up(&denied),
        }
    }

    /// The status is sent already.
    fn give_up(&mut self, denied: &Denied) -> String {
        self.at = At::Over;
        let mut text = String::new();
        write(&mut text, None, "problem", &words::problem(denied));
        text
    }
}

const fn name(chunk: &Chunk) -> &'static str {
    match chunk.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Event => "event",
    }
}

/// JSON has no raw line ends, so the data is one line.
fn write<T: Serialize>(text: &mut String, id: Option<u64>, event: &str, value: &T) {
    if let Some(id) = id {
        text.push_str("id: ");
        text.push_str(&id.to_string());
        text.push('\n');
    }
    text.push_str("event: ");
    text.push_str(event);
    text.push_str("\ndata: ");
    text.push_str(&serde_json::to_string(value).unwrap_or_default());
    text.push_str("\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_three_lines_whatever_is_in_it() {
        let chunk =
            Chunk { sequence: 7, stream: Stream::Stderr, millis: 1, bytes: "a\n\ndata: x\r\u{2028}".into() };
        let mut text = String::new();
        write(&mut text, Some(chunk.sequence), name(&chunk), &chunk);
        let lines: Vec<&str> = text.split(['\n', '\r']).collect();
        assert_eq!(lines.len(), 5, "{text:?}");
        assert_eq!(&lines[..2], ["id: 7", "event: stderr"]);
        assert!(lines[2].starts_with("data: {") && lines[3..].iter().all(|line| line.is_empty()));
    }
}
