//! One entry as it is stored: a line of JSON, and the hash over exactly these bytes.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::ser::Formatter;
use sha2::{Digest as _, Sha256};

use crate::{ExecutionId, hex};

/// An entry is a summary, not a store of payloads; and a reader holds two lines at a time.
pub const LINE_LIMIT: usize = 1 << 20;

/// SHA-256 of a stored line without its newline: `head -n1 000001.log | tr -d '\n' | sha256sum`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Stands before the first entry.
    pub const ZERO: Self = Self([0; 32]);

    pub(crate) fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(&text).map(Self).ok_or_else(|| serde::de::Error::custom("64 hex digits are expected"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An execution may begin.
    Opened,
    /// What became of it.
    Closed,
    /// Anything else worth keeping.
    Noted,
}

/// The order of the fields is the order in the line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub seq: u64,
    /// RFC 3339, UTC.
    pub at: String,
    pub kind: Kind,
    pub execution: Option<ExecutionId>,
    pub principal: String,
    pub body: Value,
    /// Of the line before.
    pub prev: Hash,
}

impl Entry {
    /// The bytes to store, with their newline.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = Vec::with_capacity(512);
        self.serialize(&mut serde_json::Serializer::with_formatter(&mut line, Escaping))?;
        line.push(b'\n');
        Ok(line)
    }

    /// A stored line without its newline.
    pub fn parse(line: &[u8]) -> Result<Self, ParseError> {
        let text = std::str::from_utf8(line).map_err(|_| ParseError::Text)?;
        if text.chars().any(unsafe_on_a_terminal) {
            return Err(ParseError::Control);
        }
        serde_json::from_str(text).map_err(ParseError::Json)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("it is not UTF-8")]
    Text,
    #[error("it holds a raw control character")]
    Control,
    #[error("it is no entry in JSON")]
    Json(#[source] serde_json::Error),
}

/// What a terminal would act on, or would hide something with, if someone looked at the file: control
/// characters (C1 too), line separators and marks that change the direction of text.
fn unsafe_on_a_terminal(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Compact JSON that escapes those too; serde_json itself stops at U+001F.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some((at, character)) = rest.char_indices().find(|(_, one)| unsafe_on_a_terminal(*one)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            // All of them are below U+FFFF, so one escape is enough.
            write!(writer, "\\u{:04x}", u32::from(character))?;
            rest = &rest[at + character.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(text: &str) -> Entry {
        let body = serde_json::json!({ text: [text, 1, null] });
        let (at, principal) = ("2026-01-01T00:00:00.000000Z".to_owned(), text.to_owned());
        Entry { seq: 1, at, kind: Kind::Noted, execution: None, principal, body, prev: Hash::ZERO }
    }

    proptest! {
        #[test]
        fn any_text_comes_back_from_one_clean_line(text in any::<String>()) {
            let line = entry(&text).encode().unwrap();
            let (newline, line) = line.split_last().unwrap();
            prop_assert_eq!(*newline, b'\n');
            prop_assert!(!std::str::from_utf8(line).unwrap().chars().any(unsafe_on_a_terminal));
            prop_assert_eq!(Entry::parse(line).unwrap(), entry(&text));
        }
    }

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        let text = "\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2028}é";
        let line = String::from_utf8(entry(text).encode().unwrap()).unwrap();
        assert!(line.contains(r"\u001b[2J\u007f\u009b31m\u202e\u2028é"), "{line}");
        assert!(matches!(Entry::parse(b"{\"seq\":1,\x07}"), Err(ParseError::Control)));
    }

    #[test]
    fn the_hash_is_what_sha256sum_prints() {
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Hash::of(b"abc").to_string(), known);
        assert_eq!(Hash::ZERO.to_string(), "0".repeat(64));
    }
}
