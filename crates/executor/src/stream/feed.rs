//! The caller's stdin on its way into the sandbox: a copy through a pipe, so that no descriptor of
//! the caller's reaches the command.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::Input;

const CHUNK: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Feed<'a> {
    source: Option<Input<'a>>,
    pipe: Option<OwnedFd>,
    pending: Vec<u8>,
}

impl<'a> Feed<'a> {
    pub(crate) fn new(source: Option<Input<'a>>, pipe: Option<OwnedFd>) -> Self {
        // Without a source the command sees the end of file at once.
        let pipe = if source.is_some() { pipe } else { None };
        Self { source, pipe, pending: Vec::new() }
    }

    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        let open = self.pending.is_empty() && self.pipe.is_some();
        self.source.as_ref().filter(|_| open).map(AsFd::as_fd)
    }

    /// The pipe and what to wait for: room where something is pending; that nobody reads any more, always.
    pub(crate) fn pipe(&self) -> (Option<BorrowedFd<'_>>, PollFlags) {
        let flags = if self.pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        (self.pipe.as_ref().map(AsFd::as_fd), flags)
    }

    pub(crate) fn pump(&mut self) {
        let Some(source) = &self.source else { return };
        let mut buffer = vec![0; CHUNK];
        match rustix::io::read(source, &mut buffer) {
            Ok(0) => self.close(),
            Ok(count) => {
                buffer.truncate(count);
                self.pending = buffer;
                self.flush();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A terminal that hung up, a directory as stdin: nothing more will come.
            Err(_) => self.close(),
        }
    }

    /// The pipe has room, or no reader.
    pub(crate) fn flush(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        if self.pending.is_empty() {
            return self.close();
        }
        while !self.pending.is_empty() {
            match rustix::io::write(pipe, &self.pending) {
                Ok(count) => {
                    self.pending.drain(..count);
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                // The command closed its stdin.
                Err(_) => return self.close(),
            }
        }
    }

    fn close(&mut self) {
        self.source = None;
        self.pipe = None;
        self.pending.clear();
    }
}
