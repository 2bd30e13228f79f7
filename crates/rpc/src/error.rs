//! What a call answers when it has no result, and the one way from raw params to a type. Nothing here tells
//! the other side about our insides: a fault of ours is "internal error", and the log knows more.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const UNKNOWN_METHOD: i64 = -32601;
pub const BAD_PARAMS: i64 = -32602;
pub const INTERNAL: i64 = -32603;
/// Too much at once: `data.retry_after_ms` says when to try again.
pub const BUSY: i64 = -32000;
/// This connection may not, whatever it asks.
pub const REFUSED: i64 = -32001;
/// The connection is being closed: `data.deadline` names the limit where one ran out.
pub const CLOSING: i64 = -32002;

/// Characters of the other side's text that come back in a message: enough to recognize it.
const QUOTED: usize = 80;
/// Characters of a reason that a parser gives: it may quote the text, too.
const REASON: usize = 300;

/// The `error` member of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Error {
    pub code: i64,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl Error {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    #[must_use]
    pub fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    pub fn unknown_method(method: &str) -> Self {
        Self::new(UNKNOWN_METHOD, format!("unknown method {}", quoted(method)))
    }

    /// `field` as a path: `limits.memory`, `args[2]`.
    pub fn bad_params(field: &str, why: impl fmt::Display) -> Self {
        let (field, why) = (cut(field, QUOTED), cut(&why.to_string(), REASON));
        Self::new(BAD_PARAMS, format!("bad params: {field}: {why}"))
            .with_data(serde_json::json!({ "field": field }))
    }

    pub fn internal() -> Self {
        Self::new(INTERNAL, "internal error")
    }

    pub fn busy(message: impl Into<String>, retry_after: Duration) -> Self {
        let ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
        Self::new(BUSY, message).with_data(serde_json::json!({ "retry_after_ms": ms }))
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(REFUSED, message)
    }
}

/// What a request or notification carries, as it was written.
#[derive(Debug, Clone, Default)]
pub struct Params(Option<Box<RawValue>>);

impl Params {
    pub fn new(raw: Option<Box<RawValue>>) -> Self {
        Self(raw)
    }

    pub fn raw(&self) -> Option<&RawValue> {
        self.0.as_deref()
    }

    /// Absent params are read as `{}`, so that a type whose fields are all optional takes them.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        params(self.0.as_ref().map_or("{}", |raw| raw.get()))
    }
}

/// Reads params, or says which field is wrong.
pub fn params<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.inner().to_string());
        // The place within the params of a request that was one line tells nobody anything.
        let why = why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why);
        Error::bad_params(&field(&path, why), why)
    })
}

/// The field at fault. One that is missing, unknown or there twice is named by the reason only; the path ends at its
/// parent.
fn field(path: &str, why: &str) -> String {
    let reasons = ["missing field `", "unknown field `", "duplicate field `"];
    let named = reasons.iter().find_map(|reason| why.strip_prefix(reason));
    let named = named.and_then(|rest| rest.split_once('`')).map(|(name, _)| name);
    let inside = path.rsplit('.').next();
    match named {
        Some(name) if path == "." || path == "?" => name.to_owned(),
        Some(name) if inside != Some(name) => format!("{path}.{name}"),
        Some(_) => path.to_owned(),
        None if path == "." || path == "?" => "params".to_owned(),
        None => path.to_owned(),
    }
}

/// The other side's words in our message: no control character, no bidirectional trick, not too long.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", cut(text, QUOTED))
}

/// The same of a parser's words, which may quote the other side's.
pub(crate) fn reason(text: &str) -> String {
    cut(text, QUOTED)
}

fn cut(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).flat_map(escaped).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

fn escaped(character: char) -> impl Iterator<Item = char> {
    let plain = character == ' ' || character.is_alphanumeric() || character.is_ascii_graphic();
    let plain = plain || matches!(character, '…' | '–' | '—' | '“' | '”' | '‘' | '’');
    let (kept, hidden) = match plain {
        true => (Some(character), None),
        false => (None, Some(character.escape_default())),
    };
    kept.into_iter().chain(hidden.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Start {
        command: String,
        #[serde(default)]
        args: Vec<u32>,
        #[serde(default)]
        limits: Option<Limits>,
    }

    #[derive(Debug, Deserialize)]
    struct Limits {
        memory: u64,
    }

    fn wrong_field(text: &str) -> String {
        let error = params::<Start>(text).unwrap_err();
        assert_eq!(error.code, BAD_PARAMS);
        let field = error.data.unwrap()["field"].as_str().unwrap().to_owned();
        assert!(error.message.contains(&field), "{}", error.message);
        field
    }

    #[test]
    fn the_wrong_field_is_named() {
        assert_eq!(wrong_field(r#"{}"#), "command");
        assert_eq!(wrong_field(r#"{"command": 7}"#), "command");
        assert_eq!(wrong_field(r#"{"command": "a", "args": [1, 2, "x"]}"#), "args[2]");
        assert_eq!(wrong_field(r#"{"command": "a", "limits": {}}"#), "limits.memory");
        assert_eq!(wrong_field(r#"{"command": "a", "limits": {"memory": -1}}"#), "limits.memory");
        assert_eq!(wrong_field(r#"{"command": "a", "colour": 1}"#), "colour");
        assert_eq!(wrong_field(r#"{"command": "a", "command": "b"}"#), "command");
        assert_eq!(wrong_field(r#"7"#), "params");
    }

    #[test]
    fn good_params_are_read_and_absent_ones_are_an_empty_object() {
        let start: Start = params(r#"{"command": "a", "args": [1], "limits": {"memory": 5}}"#).unwrap();
        assert_eq!((start.command.as_str(), start.args.as_slice()), ("a", [1].as_slice()));
        assert_eq!(start.limits.unwrap().memory, 5);
        assert_eq!(Params::default().read::<Start>().unwrap_err().data.unwrap()["field"], "command");
    }

    #[test]
    fn a_method_comes_back_escaped_and_cut() {
        let error = Error::unknown_method("a\u{1b}[31m\nb\u{202e}c");
        assert_eq!(error.message, "unknown method \"a\\u{1b}[31m\\nb\\u{202e}c\"");
        let long = Error::unknown_method(&"m".repeat(100_000));
        assert!(long.message.len() < 120 && long.message.contains('…'), "{}", long.message);
    }

    #[test]
    fn errors_carry_no_data_unless_they_have_some() {
        assert_eq!(
            serde_json::to_string(&Error::internal()).unwrap(),
            r#"{"code":-32603,"message":"internal error"}"#
        );
        let busy = Error::busy("too many calls", Duration::from_millis(100));
        assert_eq!(busy.data.unwrap()["retry_after_ms"], 100);
    }
}
