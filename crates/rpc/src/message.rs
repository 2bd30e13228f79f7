//! Frames to messages and back: the JSON-RPC 2.0 envelope, read strictly where it decides what a message is
//! and generously elsewhere (unknown members are ignored). Params and results stay raw text here.
//!
//! Batches are refused: they are of no use where requests are served at once anyway, and they would let one
//! frame stand for any number of calls.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::error::{BAD_PARAMS, Error, INVALID_REQUEST, PARSE_ERROR, Params, reason};

/// Ids come back as they were written, so they are kept; a longer one is no id.
pub const LONGEST_ID: usize = 1024;
const VERSION: &str = "\"2.0\"";

/// A request's id as it was written, a number or a string: `1e400`, `"\u0061"` and integers of any size are
/// echoed to the letter. Two spellings of one number are two ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// The JSON text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// None for what is neither number nor string, and for what is too long.
    fn new(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let kind = text.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit());
        (kind && text.len() <= LONGEST_ID).then(|| Self(text.into()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug)]
pub enum Message {
    Request(Request),
    Notification(Notification),
    Response(Response),
}

#[derive(Debug)]
pub struct Request {
    pub id: Id,
    pub method: String,
    pub params: Params,
}

#[derive(Debug)]
pub struct Notification {
    pub method: String,
    pub params: Params,
}

#[derive(Debug)]
pub struct Response {
    /// None where the other side couldn't tell which request it answers.
    pub id: Option<Id>,
    pub outcome: Result<Box<RawValue>, Error>,
}

/// A frame that is no message.
#[derive(Debug, PartialEq)]
pub struct Invalid {
    pub id: Option<Id>,
    pub error: Error,
    pub from: Sender,
}

/// Whether whoever sent it waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Asks,
    /// It looks like a response. Answering one that is broken would let two peers talk about it forever.
    Answers,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A member that is `null` is there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads one frame.
pub fn read(frame: &str) -> Result<Message, Invalid> {
    if frame.trim_start().starts_with('[') {
        return Err(unknown(INVALID_REQUEST, "batches are not supported: send one request per frame"));
    }
    let envelope: Envelope<'_> = serde_json::from_str(frame).map_err(|error| match error.classify() {
        Category::Syntax | Category::Eof | Category::Io => unknown(PARSE_ERROR, "the frame is no JSON"),
        // A member twice, or no object at all.
        Category::Data => {
            let why = reason(&error.to_string());
            unknown(INVALID_REQUEST, &format!("the frame is no JSON-RPC object: {why}"))
        }
    })?;
    let from = match (envelope.method, envelope.result, envelope.error) {
        (None, Some(_), _) | (None, _, Some(_)) => Sender::Answers,
        (Some(_), _, _) | (None, None, None) => Sender::Asks,
    };
    let id = envelope.id.and_then(Id::new);
    envelope.message(id.clone()).map_err(|error| Invalid { id, error, from })
}

fn unknown(code: i64, message: &str) -> Invalid {
    Invalid { id: None, error: Error::new(code, message), from: Sender::Asks }
}

impl Envelope<'_> {
    fn message(self, id: Option<Id>) -> Result<Message, Error> {
        let invalid = |message: &str| Err(Error::new(INVALID_REQUEST, message));
        if self.jsonrpc.map(RawValue::get) != Some(VERSION) {
            return invalid("`jsonrpc` must be \"2.0\"");
        }
        let Some(method) = self.method else { return self.response(id) };
        if self.result.is_some() || self.error.is_some() {
            return invalid("a message is either a request or a response");
        }
        let Ok(method) = serde_json::from_str::<String>(method.get()) else {
            return invalid("`method` must be a string");
        };
        match (self.id, id) {
            (None, _) => Ok(Message::Notification(Notification { method, params: structured(self.params)? })),
            (Some(_), Some(id)) => {
                Ok(Message::Request(Request { id, method, params: structured(self.params)? }))
            }
            (Some(_), None) => invalid(&format!(
                "`id` must be a number or a string of at most {LONGEST_ID} bytes; null is for notifications, \
                 which have none"
            )),
        }
    }

    fn response(self, id: Option<Id>) -> Result<Message, Error> {
        let invalid = |message: &str| Err(Error::new(INVALID_REQUEST, message));
        let outcome = match (self.result, self.error) {
            (Some(result), None) => Ok(result.to_owned()),
            (None, Some(error)) => match serde_json::from_str::<Error>(error.get()) {
                Ok(error) => Err(error),
                Err(_) => return invalid("`error` must have `code` and `message`"),
            },
            (Some(_), Some(_)) => return invalid("a response has either `result` or `error`"),
            (None, None) => return invalid("`method` is missing"),
        };
        match (self.id.map(RawValue::get), id) {
            (Some("null"), None) => Ok(Message::Response(Response { id: None, outcome })),
            (Some(_), Some(id)) => Ok(Message::Response(Response { id: Some(id), outcome })),
            (None | Some(_), _) => invalid("a response has the id of its request"),
        }
    }
}

/// Null is taken for absent: several clients write it.
fn structured(params: Option<&RawValue>) -> Result<Params, Error> {
    match params {
        Some(raw) if raw.get().starts_with(['{', '[']) => Ok(Params::new(Some(raw.to_owned()))),
        Some(raw) if raw.get() != "null" => {
            Err(Error::new(BAD_PARAMS, "params must be an object or an array")
                .with_data(serde_json::json!({ "field": "params" })))
        }
        Some(_) | None => Ok(Params::default()),
    }
}

#[derive(Serialize)]
struct Sent<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a P,
}

/// The frame of a request of ours.
pub fn request<P: Serialize>(id: u64, method: &str, params: &P) -> serde_json::Result<String> {
    serde_json::to_string(&Sent { jsonrpc: "2.0", id: Some(id), method, params })
}

pub fn notification<P: Serialize>(method: &str, params: &P) -> serde_json::Result<String> {
    serde_json::to_string(&Sent { jsonrpc: "2.0", id: None, method, params })
}

/// The frame of an answer. An id that couldn't be read is answered as null, and what is no JSON with an error.
pub fn response<T: Serialize>(id: Option<&Id>, outcome: &Result<T, Error>) -> String {
    let written = match outcome {
        Ok(answer) => answered(id, "result", answer),
        Err(error) => answered(id, "error", error),
    };
    // Our own error always is.
    written.or_else(|_| answered(id, "error", &Error::internal())).unwrap_or_default()
}

fn answered(id: Option<&Id>, member: &str, body: &impl Serialize) -> serde_json::Result<String> {
    let mut frame = Vec::from(r#"{"jsonrpc":"2.0","id":"#);
    frame.extend_from_slice(id.map_or("null", Id::text).as_bytes());
    frame.extend_from_slice(format!(r#","{member}":"#).as_bytes());
    serde_json::to_writer(&mut frame, body)?;
    frame.push(b'}');
    String::from_utf8(frame).map_err(serde::ser::Error::custom)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
