//! The HTTP door: the two routes of the compatible server, and `/v1`. Plain HTTP/1 on loopback, or behind a proxy
//! that has the certificates. The way of a request: `serve` (accept) → `connection` (deadlines) → `answer`
//! (route, credential) → `compatible` or `v1` → the pipeline. Other origins get no CORS header, ever.

mod answer;
pub mod auth;
mod body;
mod captured;
mod compatible;
mod connection;
mod escape;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod listen;
#[cfg(test)]
mod openapi;
mod pulse;
mod query;
mod reply;
mod route;
mod serve;
#[cfg(test)]
mod tests;
mod trouble;
mod v1;

pub use listen::{BindError, Listening, bind, inherit};
pub use serve::serve;
