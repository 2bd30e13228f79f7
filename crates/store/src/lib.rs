//! What outlives an execution: the audit log, the record of executions, their output, tokens and secrets. The only
//! room that opens the database. It runs nothing, decides nothing and has no event loop: every call here
//! blocks for a bounded time, so an asynchronous caller makes it from a thread for that.
//!
//! The order on the line: `executions.start` gives the record, `output.create` the file that the executor gets, `audit.append`
//! the ticket without which nothing runs; then `audit.close` and `ended`.

pub mod audit;
mod clock;
mod database;
mod error;
pub mod executions;
mod hex;
mod id;
pub mod output;
mod random;
pub mod secrets;
mod state;
pub mod tokens;
mod unlogged;

pub use audit::{Audit, AuditError, Ticket};
pub use database::{Database, LOCK_WAIT, QUEUE, WAIT};
pub use error::StoreError;
pub use executions::Executions;
pub use id::{ExecutionId, InvalidId};
pub use output::Output;
pub(crate) use random::random;
pub use secrets::Secrets;
pub use state::{Locked, OpenError, Opened, Store};
pub use tokens::Tokens;
pub use unlogged::{Unlogged, UnloggedError};
