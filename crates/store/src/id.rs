//! The name of one execution: a UUID of version 7, so that names sort by the time they were made.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Only ever a valid UUID, so it is safe as a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecutionId(Uuid);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no execution's id: give it as it was shown, 36 characters in lower case")]
pub struct InvalidId;

impl ExecutionId {
    /// A new one, greater than all that this process made before.
    #[expect(clippy::new_without_default, reason = "each one is another: there is no default")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// As others know it that have no text for ids.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// When it was made, in milliseconds since 1970.
    pub(crate) fn made_ms(&self) -> i64 {
        let (seconds, nanos) = self.0.get_timestamp().map_or((0, 0), |timestamp| timestamp.to_unix());
        i64::try_from(seconds).unwrap_or(0).saturating_mul(1000).saturating_add(i64::from(nanos / 1_000_000))
    }

    /// Two hex digits that are random even for ids of one millisecond, where the leading parts count.
    pub(crate) fn shard(&self) -> String {
        format!("{:02x}", self.0.as_bytes()[12])
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_hyphenated(), f)
    }
}

impl FromStr for ExecutionId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let id = Uuid::try_parse(text).map_err(|_| InvalidId)?;
        // One spelling only: the text is a key in the database and a name in the file system.
        let canonical = id.get_version_num() == 7 && id.as_hyphenated().to_string() == text;
        canonical.then_some(Self(id)).ok_or(InvalidId)
    }
}

impl TryFrom<String> for ExecutionId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<ExecutionId> for String {
    fn from(id: ExecutionId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_their_making_and_have_one_spelling() {
        let ids: Vec<ExecutionId> = (0..100).map(|_| ExecutionId::new()).collect();
        assert!(ids.is_sorted());
        let text = ids[0].to_string();
        assert_eq!(text.parse(), Ok(ids[0]));
        for other in [text.to_uppercase(), text.replace('-', ""), format!("{{{text}}}"), "../../etc".into()] {
            assert_eq!(other.parse::<ExecutionId>(), Err(InvalidId), "{other}");
        }
        assert_eq!(
            "5e2f1b5c-8a76-4c53-9d1e-2f8f3f1d5a10".parse::<ExecutionId>(),
            Err(InvalidId),
            "version 4"
        );
    }
}
