//! `stockade-executor`: the execution core behind a link. The daemon starts one per Unix user, with the link as
//! descriptor 3 and a socket for output files as descriptor 4; it does what the link says, and ends with it.

mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(serve::executor())
}
