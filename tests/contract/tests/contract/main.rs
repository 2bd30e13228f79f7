//! The HTTP door against its contract, end to end.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod bad_input;
mod compatible;
mod crowds;
mod executions;
mod full;
mod leaving;
mod protocol;
mod secrets;
mod slow;
mod starting;
mod telemetry;
mod tools;
mod walls;
