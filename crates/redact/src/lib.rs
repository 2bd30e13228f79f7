//! Live redaction: bytes in, the same bytes out, except that known secret values, their usual
//! encodings and common token shapes are replaced by `[redacted:NAME]`. Byte-wise and push-style, so
//! it works across chunk and line boundaries and never waits for a line.
//!
//! It must not know where bytes come from or go to, keep time, or log. [`Redactor`] is built once per
//! execution; each output stream gets its own [`Stream`]. Start reading at `stream.rs`.
//!
//! What is redacted is defined on the whole stream, not on chunks: take every occurrence of every
//! form of every secret and every shape match; whatever at least one of them covers is replaced, and
//! occurrences that overlap become one marker. So neither the tail of a shorter secret nor that of an
//! overlapping one can show, and the result doesn't depend on how the bytes were cut.

mod buffer;
mod cover;
mod forms;
mod known;
mod redactor;
mod secret;
mod shapes;
mod sieve;
mod stream;
mod trie;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub use redactor::Redactor;
pub use secret::{MAX_NAME, MAX_SECRET, MIN_SECRET, Secret, SecretError};
pub use stream::{HOLD, Stream};
