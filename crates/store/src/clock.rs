//! The wall clock as the records want it.

use jiff::Timestamp;

/// Milliseconds since 1970, UTC.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// RFC 3339, UTC, to the microsecond.
pub(crate) fn now_text() -> String {
    format!("{:.6}", Timestamp::now())
}
