//! The parsers that strangers' bytes reach, for `tests/fuzz` and the targets in `fuzz/`. They are private: nothing but
//! their own door calls them. So this room is built only with the feature `fuzzing`, which no shipped program asks
//! for, and it holds no code of its own beyond the way in.

pub use crate::config::fuzz::configuration;
pub use crate::doors::http::fuzz::{Executed, execute, queries, start};
