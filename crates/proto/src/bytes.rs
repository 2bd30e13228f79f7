//! A byte string as the kernel knows it: arguments, paths and variables need not be UTF-8.
//! Printed as text where it is text, and as `{"hex": "..."}` where it is not, so that nothing is lost.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Characters that show as nothing, or change how their neighbours show: format characters (Unicode's category Cf),
/// separators of lines and paragraphs, selectors of variants, fillers, and what else is drawn as nothing.
const UNSEEN: [(char, char); 27] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d159}', '\u{1d159}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// Whether a character is escaped when it is printed: a terminal would obey it, or a reader not see it.
    pub fn is_unseen(c: char) -> bool {
        c.is_control() || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    pub fn to_path_buf(&self) -> PathBuf {
        self.as_path().to_path_buf()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Bytes {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<OsString> for Bytes {
    fn from(text: OsString) -> Self {
        Self(text.into_vec())
    }
}

impl From<&OsStr> for Bytes {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<PathBuf> for Bytes {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string().into_vec())
    }
}

impl From<&Path> for Bytes {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

/// Control characters, those that hide or turn others around, and broken UTF-8 are escaped: these strings come from
/// agents and go to terminals.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if Self::is_unseen(c) { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[derive(Serialize)]
struct Hex {
    hex: String,
}

/// A map and not a struct: serde would take an array of one string for that as well.
#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrHex {
    Text(String),
    Hex(BTreeMap<String, String>),
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                Hex { hex: self.0.iter().map(|byte| format!("{byte:02x}")).collect() }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match TextOrHex::deserialize(deserializer)? {
            TextOrHex::Text(text) => Ok(Self::from(text)),
            TextOrHex::Hex(map) => {
                let hex = map.get("hex").filter(|_| map.len() == 1);
                let hex =
                    hex.ok_or_else(|| D::Error::custom("a string, or an object with `hex` is expected"))?;
                digits(hex).map(Self).ok_or_else(|| D::Error::custom("hex needs pairs of digits"))
            }
        }
    }
}

/// Digits only: the parser of numbers would take a sign too.
fn digits(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Text where it is UTF-8, an object with the bytes in hex where it is not.",
            "oneOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "hex": { "type": "string", "pattern": "^([0-9a-fA-F]{2})*$" } },
                    "required": ["hex"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_turns_text_around_is_escaped() {
        for c in [
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fffb}',
            '\u{e0001}',
            '\u{e007f}',
            '\u{1b}',
            '\u{85}',
        ] {
            let shown = Bytes::from(format!("/a{c}b")).to_string();
            assert_eq!(shown, format!("/a{}b", c.escape_default()));
            assert!(shown.is_ascii());
        }
        for text in ["/é/e\u{301}", "/עברית", "/日本語 x", "/\u{1f600}", "/\u{fffd}"] {
            assert_eq!(Bytes::from(text).to_string(), text);
        }
        assert_eq!(Bytes::from(&b"/\xff\n"[..]).to_string(), "/\\xff\\n");
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(UNSEEN.iter().all(|(first, last)| first <= last));
        assert!(UNSEEN.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
