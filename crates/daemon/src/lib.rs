//! The service: doors, admission, the pipeline, dispatch, records. It plans no walls and builds none; executors
//! do, and it reaches them over a socketpair. `pipeline` is the whole story.

pub mod admission;
pub mod attached;
pub mod config;
pub mod core;
pub mod denied;
pub mod dispatch;
pub mod doors;
pub mod ending;
pub mod events;
pub mod execution;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod inherited;
pub mod logging;
pub mod metrics;
mod noting;
mod owed;
pub mod pipeline;
pub mod principal;
pub mod record;
pub mod refusals;
mod retention;
pub mod seat;
mod service;
mod stray;
pub mod systemd;
pub mod telemetry;
mod telling;
mod unlogged;

pub use inherited::Inherited;
pub use service::{NO_SECRET, Orders, ServeError, Stop, serve};
