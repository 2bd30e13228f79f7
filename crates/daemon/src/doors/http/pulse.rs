//! What one connection does and since when, as seen from its reads and writes. hyper itself knows one time limit, for
//! heads, and ends with it without a word; a client shall hear 408, and one that never reads shall not stay.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// From the first byte (the first time: from the connection) to the end of the head.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// Between two requests.
const IDLE: Duration = Duration::from_secs(60);
/// Without a byte that the client takes.
const STALLED: Duration = Duration::from_secs(60);
/// For the whole of a reply that is in memory: one that takes a byte now and then would keep it there.
const REPLYING: Duration = Duration::from_secs(300);
/// How often a deadline that came nearer is noticed.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    /// Its body, its command and streams have deadlines of their own.
    Serving,
    Replying,
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    Head,
    Idle,
    Stalled,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    requests: u64,
    /// The client takes nothing.
    stalled: Option<Instant>,
}

#[derive(Debug, Clone)]
pub(super) struct Pulse {
    state: Arc<Mutex<State>>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        let state = State { phase: Phase::Head, since: Instant::now(), requests: 0, stalled: None };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, phase: Phase) {
        let mut state = self.state();
        (state.phase, state.since) = (phase, Instant::now());
    }

    /// A head is whole.
    pub(super) fn serving(&self) -> Turn {
        self.turn(Phase::Serving);
        let mut state = self.state();
        state.requests += 1;
        Turn { pulse: self.clone(), number: state.requests }
    }

    /// When to look again, or what took too long.
    pub(super) fn check(&self, now: Instant) -> Result<Instant, Overdue> {
        let state = self.state();
        if state.stalled.is_some_and(|since| now >= since + STALLED) {
            return Err(Overdue::Stalled);
        }
        let (limit, overdue) = match state.phase {
            Phase::Head => (HEAD, Overdue::Head),
            Phase::Replying => (REPLYING, Overdue::Stalled),
            Phase::Idle => (IDLE, Overdue::Idle),
            Phase::Serving => return Ok(now + LOOK),
        };
        let deadline = state.since + limit;
        if now >= deadline { Err(overdue) } else { Ok(deadline.min(now + LOOK)) }
    }

    fn read(&self) {
        if self.state().phase == Phase::Idle {
            self.turn(Phase::Head);
        }
    }

    fn wrote(&self, polled: &Poll<io::Result<usize>>) {
        let mut state = self.state();
        match polled {
            Poll::Pending => {
                state.stalled.get_or_insert_with(Instant::now);
            }
            Poll::Ready(_) => {
                state.stalled = None;
                if state.phase == Phase::Idle {
                    // The last of a reply.
                    state.since = Instant::now();
                }
            }
        }
    }
}

/// One request of a connection. The next one may be served while its reply is still being written.
#[derive(Debug)]
pub(super) struct Turn {
    pulse: Pulse,
    number: u64,
}

impl Turn {
    /// The reply is in memory.
    pub(super) fn replying(&self) {
        self.turn(Phase::Replying);
    }

    /// The reply is gone.
    pub(super) fn over(&self) {
        self.turn(Phase::Idle);
    }

    fn turn(&self, phase: Phase) {
        if self.pulse.state().requests == self.number {
            self.pulse.turn(phase);
        }
    }
}

/// A connection that tells its pulse.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    pulse: Pulse,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, pulse: Pulse) -> Self {
        Self { stream, pulse }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.pulse.read();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.pulse.wrote(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.pulse.wrote(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_deadline() {
        let pulse = Pulse::new();
        let soon = |pulse: &Pulse, time: Duration| pulse.check(Instant::now() + time);
        assert!(soon(&pulse, HEAD / 2).is_ok());
        assert_eq!(soon(&pulse, HEAD), Err(Overdue::Head));
        let first = pulse.serving();
        assert!(soon(&pulse, Duration::from_secs(3600)).is_ok());
        first.replying();
        assert_eq!(soon(&pulse, REPLYING), Err(Overdue::Stalled));
        let second = pulse.serving();
        first.over();
        assert!(soon(&pulse, Duration::from_secs(3600)).is_ok(), "the second is being served");
        second.over();
        assert!(soon(&pulse, HEAD).is_ok());
        assert_eq!(soon(&pulse, IDLE), Err(Overdue::Idle));
        pulse.read();
        assert_eq!(soon(&pulse, HEAD), Err(Overdue::Head));
    }

    #[test]
    fn a_client_that_takes_nothing_is_overdue_until_it_takes_something() {
        let pulse = Pulse::new();
        let _turn = pulse.serving();
        pulse.wrote(&Poll::Pending);
        assert_eq!(pulse.check(Instant::now() + STALLED), Err(Overdue::Stalled));
        pulse.wrote(&Poll::Ready(Ok(1)));
        assert!(pulse.check(Instant::now() + STALLED).is_ok());
    }
}
