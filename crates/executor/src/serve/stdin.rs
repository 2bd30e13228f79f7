//! The writing end of a command's stdin. A command that does not read holds up whoever writes, for a while; never
//! the thread that serves the link.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Sender;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// For the command to make room.
const PATIENCE: Duration = Duration::from_secs(30);
/// Writes that wait for one execution.
const MOST_WAITING: usize = 32;

/// Why bytes were not taken.
#[derive(Debug)]
pub(super) enum NotWritten {
    /// The command reads too slowly; this many of the bytes are in the pipe.
    Slow { written: usize },
    /// Too many others wait.
    Busy,
    /// By an earlier write.
    Ended,
    /// The command, or its end, closed it.
    Closed,
}

#[derive(Debug)]
enum State {
    Open(Sender),
    Ended,
    Closed,
}

#[derive(Debug)]
pub(super) struct Stdin {
    state: Mutex<State>,
    waiting: AtomicUsize,
}

/// A place among those who wait, given back when a write is dropped unfinished, too.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stdin {
    /// Within the runtime. The other end is for the execution.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let state = Mutex::new(State::Open(Sender::from_owned_fd(write)?));
        Ok((Self { state, waiting: AtomicUsize::new(0) }, read))
    }

    /// Until all bytes are in the pipe. Writes of several callers happen in the order in which they came.
    pub(super) async fn write(&self, bytes: &[u8], end: bool) -> Result<(), NotWritten> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
            drop(Waits(&self.waiting));
            return Err(NotWritten::Busy);
        }
        let _waits = Waits(&self.waiting);
        let deadline = Instant::now() + PATIENCE;
        let mut state =
            timeout_at(deadline, self.state.lock()).await.map_err(|_| NotWritten::Slow { written: 0 })?;
        let sender = match &*state {
            State::Open(sender) => sender,
            State::Ended => return Err(NotWritten::Ended),
            State::Closed => return Err(NotWritten::Closed),
        };
        let mut written = 0;
        while written < bytes.len() {
            let room = timeout_at(deadline, sender.writable()).await;
            let room = room.map_err(|_| NotWritten::Slow { written })?;
            match room.and_then(|()| sender.try_write(&bytes[written..])) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    *state = State::Closed;
                    return Err(NotWritten::Closed);
                }
            }
        }
        if end {
            *state = State::Ended;
        }
        Ok(())
    }
}
