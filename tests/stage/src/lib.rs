//! The ground of the socket door's suite: `stockaded` started in a world of its own, and a client that writes bytes
//! and reads frames. It holds no promise: those are in `tests/stage/`, one file per theme. Every wait has a deadline.

#![expect(clippy::expect_used, clippy::panic, reason = "a test's fixture fails by panicking")]

mod service;
mod wire;

pub use service::{Service, Settings, stockaded};
pub use wire::{Framing, Wire, code, field};
