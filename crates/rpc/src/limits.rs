//! Every bound of one connection, with the defaults of a door that strangers knock at. A link between two
//! processes of ours sets its own.

use std::time::Duration;

use crate::frame::MAX_FRAME;

#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of one frame, both ways. At most [`MAX_FRAME`], and enough for an error.
    pub frame: usize,
    /// Calls of the other side that run at once. One more is answered with "busy".
    pub calls: usize,
    /// As many more for what [`Service::urgent`](crate::Service::urgent) names.
    pub urgent_calls: usize,
    /// Bytes of params that running calls and waiting notifications hold. A frame that finds nothing else
    /// held is always taken.
    pub held: usize,
    /// Notifications of the other side that wait for the service. Beyond it, nothing more is read.
    pub notifications: usize,
    /// Bytes of frames that wait to be written. Beyond it, whoever sends waits; a subscription is cut.
    pub outgoing: usize,
    /// Calls of ours that wait for an answer.
    pub pending: usize,
    pub subscriptions: usize,
    /// From the start to the end of the first frame.
    pub first_frame: Option<Duration>,
    /// From a frame's first byte to its last.
    pub whole_frame: Duration,
    /// Without a frame while nothing runs, waits or is subscribed to.
    pub idle: Option<Duration>,
    /// For the other side to take any byte of what is written.
    pub stalled: Duration,
    /// For running calls once the other side sends no more. It may still read, or be gone, and that can't be
    /// told; with zero they are cancelled at once.
    pub after_eof: Duration,
    /// For running calls after [`Peer::close`](crate::Peer::close).
    pub drain: Duration,
}

impl Limits {
    /// For a socket that any admitted user reaches.
    pub const fn door() -> Self {
        Self {
            frame: MAX_FRAME,
            calls: 256,
            urgent_calls: 16,
            held: 2 * MAX_FRAME,
            notifications: 256,
            outgoing: 4 * 1024 * 1024,
            pending: 256,
            subscriptions: 64,
            first_frame: Some(Duration::from_secs(10)),
            whole_frame: Duration::from_secs(30),
            idle: None,
            stalled: Duration::from_secs(30),
            after_eof: Duration::from_secs(2),
            drain: Duration::from_secs(5),
        }
    }

    /// For the side that connects and asks.
    pub const fn client() -> Self {
        Self { first_frame: None, after_eof: Duration::ZERO, ..Self::door() }
    }

    /// Between two processes of ours: smaller frames, more at once. Whoever sends no more is gone; the moment is
    /// for the notifications that it sent last.
    pub const fn link() -> Self {
        Self {
            frame: 1024 * 1024,
            calls: 1024,
            held: 8 * 1024 * 1024,
            notifications: 4096,
            pending: 1024,
            first_frame: Some(Duration::from_secs(10)),
            after_eof: Duration::from_secs(1),
            ..Self::door()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::door()
    }
}
