//! `/v1`: the words of `stockade_proto::door` over HTTP. Each function is one row of the route table; what may go wrong
//! is a [`Denied`](crate::denied::Denied), and its code has the status.

pub(super) mod executions;
pub(super) mod output;
pub(super) mod secrets;
pub(super) mod service;
