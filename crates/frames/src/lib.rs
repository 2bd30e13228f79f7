//! How an execution's output is kept in a file: frames, each with its sequence. The executor writes them as the
//! user it serves, the store reads them as the daemon; this is all that the two share.

mod header;
mod write;

pub use header::{FRAME_LIMIT, HEADER, Header, Stream};
pub use write::{Frames, Position};
