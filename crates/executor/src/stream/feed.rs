//! The caller's stdin on its way into the sandbox: a copy through a pipe, so that no descriptor of
//! the caller's reaches the command.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

const CHUNK: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Feed<'a> {
    source: Option<BorrowedFd<'a>>,
    pipe: Option<OwnedFd>,
    pending: Vec<u8>,
}

impl<'a> Feed<'a> {
    pub(crate) fn new(source: Option<BorrowedFd<'a>>, pipe: Option<OwnedFd>) -> Self {
        // Without a source the command sees the end of file at once.
        let pipe = if source.is_some() { pipe } else { None };
        Self { source, pipe, pending: Vec::new() }
    }

    pub(crate) fn source(&self) -> Option<BorrowedFd<'a>> {
        if self.pending.is_empty() && self.pipe.is_some() { self.source } else { None }
    }

    pub(crate) fn blocked_pipe(&self) -> Option<BorrowedFd<'_>> {
        if self.pending.is_empty() { None } else { self.pipe.as_ref().map(AsFd::as_fd) }
    }

    pub(crate) fn pump(&mut self) {
        let Some(source) = self.source else { return };
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

    pub(crate) fn flush(&mut self) {
        let Some(pipe) = &self.pipe else { return };
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
