//! `stockade-executor`: the execution core behind a link. The daemon starts it with the link as its stdin and a socket
//! for output files as its stdout; it does what the link says, and ends with it.

mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(serve::executor())
}
