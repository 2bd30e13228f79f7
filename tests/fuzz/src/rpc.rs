//! Both framings of JSON-RPC and the messages in them. The first byte says how long a frame may be and in which pieces
//! the rest comes.

use bytes::BytesMut;
use serde_json::Value;
use stockade_proto::door;
use stockade_rpc::frame::Item;
use stockade_rpc::message::{self, LONGEST_ID, Message};
use stockade_rpc::{Codec, Error, FrameError, Framing, Id, MAX_FRAME, Params};
use tokio_util::codec::{Decoder as _, Encoder as _};

use crate::{must, seen, sentence};

/// Short enough to be exceeded, and long enough for the longest id.
const LIMITS: [usize; 2] = [256, 4096];
const LENGTH: usize = size_of::<u32>();
/// What an answer of ours to a frame of nonsense may cost: the least that any connection lets through.
const ANSWER: usize = 2 * LONGEST_ID;

pub(crate) fn check(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let limit = LIMITS[usize::from(how & 1)];
    let items = decode(bytes, bytes.len().max(1), limit);
    let pieces = decode(bytes, usize::from(how >> 1).max(1), limit);
    assert_eq!(items, pieces, "the pieces of a stream changed its frames");
    for item in items {
        match item {
            Ok(frame) => {
                assert!(frame.len() <= limit && !frame.contains('\0'), "{frame:?}");
                read(&frame);
            }
            Err(error) => refused(&error),
        }
    }
}

fn decode(bytes: &[u8], piece: usize, limit: usize) -> Vec<Item> {
    let mut codec = Codec::new(limit);
    let (mut source, mut items) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        source.extend_from_slice(piece);
        while let Some(item) = must(codec.decode(&mut source), "decode") {
            items.push(item);
        }
        assert!(source.len() <= limit + LENGTH, "{} bytes are kept", source.len());
    }
    while let Some(item) = must(codec.decode_eof(&mut source), "decode at the end") {
        items.push(item);
    }
    assert!(source.is_empty(), "bytes are left at the end");
    assert!(items.len() <= bytes.len(), "more frames than bytes");
    let ends = items.iter().position(|item| item.as_ref().is_err_and(FrameError::ends));
    assert!(ends.is_none_or(|at| at + 1 == items.len()), "something was read after the end");
    items
}

fn refused(error: &FrameError) {
    sentence(&error.to_string());
    answered(None, Error::new(error.code(), error.to_string()));
}

fn read(frame: &str) {
    match message::read(frame) {
        Ok(message) => {
            again(frame);
            answer(message);
        }
        Err(invalid) => {
            sentence(&invalid.error.message);
            let length = answered(invalid.id.as_ref(), invalid.error);
            assert!(length <= ANSWER, "{length} bytes answer what is no message");
        }
    }
}

/// A message in either framing is the same frame, but for the space between tokens that would end a line.
fn again(frame: &str) {
    let line = frame.trim_start_matches([' ', '\t', '\r', '\n']).replace('\n', " ");
    for (framing, text) in [(Framing::Lines, line.as_str()), (Framing::Lengths, frame)] {
        let mut wire = BytesMut::new();
        must(Codec::with_framing(MAX_FRAME, framing).encode(frame, &mut wire), "encode");
        let mut reader = Codec::new(MAX_FRAME);
        assert_eq!(must(reader.decode(&mut wire), "decode"), Some(Ok(text.to_owned())), "{framing}");
        assert_eq!(reader.framing(), Some(framing), "the framing is not told by the first byte");
        assert!(wire.is_empty());
    }
}

fn answer(message: Message) {
    match message {
        Message::Request(request) => {
            assert!(request.id.text().len() <= LONGEST_ID);
            answered(Some(&request.id), Error::unknown_method(&request.method));
            if let Some(error) = misread(&request.params) {
                answered(Some(&request.id), error);
            }
        }
        Message::Notification(notification) => drop(misread(&notification.params)),
        // What is in it are the other side's words, and nobody is told them.
        Message::Response(response) => assert!(response.id.is_none_or(|id| id.text().len() <= LONGEST_ID)),
    }
}

/// The params as those of a method that takes many kinds of fields; the error if they are not.
fn misread(params: &Params) -> Option<Error> {
    match params.read::<door::Start>() {
        Ok(start) => {
            let text = must(serde_json::to_string(&start), "write");
            assert_eq!(stockade_rpc::params::<door::Start>(&text), Ok(start), "{text}");
            None
        }
        Err(error) => Some(error),
    }
}

/// Our answer is read by the other side as we meant it. Gives its length.
fn answered(id: Option<&Id>, error: Error) -> usize {
    sentence(&error.message);
    if let Some(Value::String(field)) = error.data.as_ref().and_then(|data| data.get("field")) {
        seen(field);
    }
    let outcome = Err::<(), _>(error);
    let text = message::response(id, &outcome);
    let Message::Response(read) = must(message::read(&text), "our own answer") else {
        panic!("our answer is no response: {text}");
    };
    assert_eq!((read.id.as_ref(), read.outcome.err()), (id, outcome.err()));
    text.len()
}
