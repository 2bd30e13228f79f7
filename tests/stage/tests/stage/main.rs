//! The Unix-socket door, end to end: STAGE-1 to STAGE-7 against the real service, by bytes on its socket.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod callers;
mod concurrency;
mod contract;
mod crashes;
mod events;
mod executions;
mod frames;
mod greed;
mod moments;
mod socket;
mod stages;
