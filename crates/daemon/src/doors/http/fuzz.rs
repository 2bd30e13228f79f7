//! The way in for `tests/fuzz`: the bodies and the queries that callers write, read as the routes read them.

use stockade_proto::door;

use super::compatible::Wanted;
use super::query::Query;
use super::route::ROUTES;
use super::v1::executions;
use crate::denied::Denied;

/// What `POST /execute` was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Executed {
    pub command: String,
    pub cwd: Option<String>,
    pub timeout_ms: u32,
}

/// The body of `POST /execute`, or that of the answer.
pub fn execute(body: &[u8]) -> Result<Executed, &'static str> {
    let Wanted { command, cwd, timeout_ms } = Wanted::read(body)?;
    Ok(Executed { command, cwd, timeout_ms })
}

/// The body of `POST /v1/executions`.
pub fn start(body: &[u8]) -> Result<door::Start, Denied> {
    executions::read(body)
}

/// The text behind `?`, as each route reads it.
pub fn queries(text: &str) -> impl Iterator<Item = Result<(), Denied>> {
    ROUTES.iter().map(move |route| Query::read(text, route.query).map(drop))
}
