//! One named secret value and the rules it must meet to be redactable at all. Must not print a value,
//! not even in an error. The forms a value may appear in are next, in `forms.rs`.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

/// Shorter values occur in ordinary output by chance (`root`, `1234567`): redacting them would shred
/// it, and a marker in place of a common word gives the value away.
pub const MIN_SECRET: usize = 8;
/// Far above any key file; it bounds the memory of the automaton.
pub const MAX_SECRET: usize = 64 * 1024;
/// A name is printed in every marker.
pub const MAX_NAME: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the secret name {0:?} can't stand in a marker; use 1 to {MAX_NAME} of A-Z a-z 0-9 '_' '-' '.'")]
    Name(String),
    #[error(
        "secret {name}: {length} bytes (without trailing newlines) can't be redacted without shredding \
         ordinary output; use a value of at least {MIN_SECRET} bytes"
    )]
    TooShort { name: String, length: usize },
    #[error("secret {name}: {length} bytes; the longest that is redacted is {MAX_SECRET}")]
    TooLong { name: String, length: usize },
    #[error(
        "secret {name}: the secrets of this execution need more than {limit} automaton states; name \
         fewer or shorter secrets"
    )]
    TooMuch { name: String, limit: usize },
}

/// A name and a value, wiped on drop.
pub struct Secret {
    name: Box<str>,
    value: Zeroizing<Box<[u8]>>,
}

impl Secret {
    /// Trailing newlines are not part of the secret: files and here-documents add them, and every form
    /// of the bare value is found inside the form of the value with its newline too.
    pub fn new(name: &str, value: &[u8]) -> Result<Self, SecretError> {
        let printable = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(printable) {
            return Err(SecretError::Name(name.chars().take(MAX_NAME).collect()));
        }
        let mut bare = value;
        while let [rest @ .., b'\n' | b'\r'] = bare {
            bare = rest;
        }
        let (name, length) = (name.to_owned(), bare.len());
        if length < MIN_SECRET {
            return Err(SecretError::TooShort { name, length });
        }
        if length > MAX_SECRET {
            return Err(SecretError::TooLong { name, length });
        }
        Ok(Self { name: name.into(), value: Zeroizing::new(bare.into()) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Appends without leaving a copy behind: `Vec` would move the bytes on growth and free the old ones
/// as they are.
pub(crate) fn append_wiped<T: Copy + Default + Zeroize>(to: &mut Vec<T>, more: &[T]) {
    if to.capacity() - to.len() < more.len() {
        let mut grown = Vec::with_capacity((to.len() + more.len()).max(to.capacity() * 2));
        grown.extend_from_slice(to);
        to.zeroize();
        *to = grown;
    }
    to.extend_from_slice(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_cannot_be_redacted() {
        assert!(matches!(Secret::new("", b"longenough"), Err(SecretError::Name(_))));
        assert!(matches!(Secret::new("a]b", b"longenough"), Err(SecretError::Name(_))));
        assert_eq!(
            Secret::new("K", b"1234567\n\r\n").unwrap_err(),
            SecretError::TooShort { name: "K".into(), length: 7 }
        );
        assert!(matches!(Secret::new("K", &vec![b'x'; MAX_SECRET + 1]), Err(SecretError::TooLong { .. })));
        assert_eq!(Secret::new("K", b"12345678\n").unwrap().value(), b"12345678");
    }

    #[test]
    fn debug_and_errors_never_hold_the_value() {
        let secret = Secret::new("KEY", b"hunter2hunter2").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret { name: \"KEY\", .. }");
        assert!(!format!("{}", Secret::new("KEY", b"short").unwrap_err()).contains("short\""));
    }

    #[test]
    fn append_keeps_the_bytes() {
        let mut bytes = Vec::new();
        for n in 0..100_u8 {
            append_wiped(&mut bytes, &[n, n]);
        }
        assert_eq!(bytes.len(), 200);
        assert_eq!(bytes[198..], [99, 99]);
    }
}
