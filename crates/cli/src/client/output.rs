//! Raw bytes to where they go, and our own tables to stdout. A reader that has gone is no failure: `head` has seen
//! enough.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use stockade_executor::Abort;
use stockade_proto::{Code, Fault};

use super::text::clean_json;

/// What became of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Reader {
    There,
    Gone,
}

/// All of it, past the standard library's buffers, which would cut it into lines.
pub(super) fn put(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<Reader, io::Error> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Somebody who shares it does not want to wait; we do.
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&to, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            },
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(Reader::Gone),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Reader::There)
}

pub(super) fn failed(error: &io::Error) -> Fault {
    Fault::new(
        Code::OutputFailed,
        format!("the output could not be written: {error}"),
        "Check where it goes: a disk may be full.",
    )
}

/// Our own words.
pub(super) fn print(text: &str) -> Result<Reader, Abort> {
    put(io::stdout().as_fd(), text.as_bytes()).map_err(|error| failed(&error).into())
}

pub(super) fn print_json(value: &impl serde::Serialize) -> Result<Reader, Abort> {
    let text = serde_json::to_string(value).map_err(|error| failed(&io::Error::other(error)))?;
    print(&format!("{}\n", clean_json(&text)))
}
