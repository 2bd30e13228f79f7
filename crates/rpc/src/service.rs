//! What a program serves, and how a connection is set up. One [`Service`] value per connection: who the
//! other side is, is a field of it, never a word in the params.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::{Error, Params};
use crate::frame::{Codec, FrameError, Framing, MAX_FRAME, MIN_FRAME};
use crate::limits::Limits;
use crate::message::Id;
use crate::peer::Peer;
use crate::serve::Serving;
use crate::share::Share;
use crate::write::{Kept, Queued};

/// Implement with `async fn`. A call runs in a task of its own, beside others; it is dropped at an `await` when
/// the connection ends, so what must outlive the connection is spawned elsewhere.
pub trait Service: Send + Sync + 'static {
    /// What a call is answered with: a [`serde_json::Value`], or something that is written as it is.
    type Answer: Serialize + Send;

    fn call(
        &self,
        method: &str,
        params: Params,
        context: Context,
    ) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    /// One after the other, in the order they came; requests and answers may overtake them. While one takes
    /// long the others wait, and past their bound nothing more is read: be quick.
    fn notified(&self, _method: &str, _params: Params, _context: Context) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Calls that are served even when the connection runs as many as it may: health, cancel.
    fn urgent(&self, _method: &str) -> bool {
        false
    }
}

/// Where a call came from.
#[derive(Debug, Clone)]
pub struct Context {
    peer: Peer,
    request: Option<Id>,
    kept: Kept,
}

impl Context {
    pub(crate) fn new(peer: Peer, request: Option<Id>) -> Self {
        Self { peer, request, kept: Arc::default() }
    }

    /// Lives until the answer is written: what it stands for is in memory until then.
    pub fn keep(&self, what: impl Any + Send) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(what));
    }

    pub(crate) fn kept(&self) -> Kept {
        Arc::clone(&self.kept)
    }

    /// To ask back, notify, or subscribe.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// None for a notification.
    pub fn request(&self) -> Option<&Id> {
        self.request.as_ref()
    }
}

/// How a connection ended.
#[derive(Debug)]
pub enum Ending {
    /// The other side sends no more.
    Gone,
    /// By [`Peer::close`].
    Closed,
    /// It was told why.
    Broken(FrameError),
    Late(Late),
    Read(io::Error),
    /// Also when the other side takes nothing for too long (`TimedOut`).
    Write(io::Error),
}

/// A deadline of [`Limits`] that ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    FirstFrame,
    WholeFrame,
    Idle,
}

impl Late {
    pub(crate) fn error(self, limits: &Limits) -> Error {
        let (name, message, after) = match self {
            Self::FirstFrame => ("first_frame", "no request came", limits.first_frame),
            Self::WholeFrame => ("whole_frame", "a frame was not complete", Some(limits.whole_frame)),
            Self::Idle => ("idle", "nothing came", limits.idle),
        };
        let message = format!("{message} within {:?}: closing", after.unwrap_or(Duration::ZERO));
        Error::new(crate::error::CLOSING, message).with_data(serde_json::json!({ "deadline": name }))
    }
}

/// A connection that nobody runs yet.
pub struct Connection<R, W, S> {
    pub(crate) read: R,
    pub(crate) write: W,
    pub(crate) service: Arc<S>,
    pub(crate) codec: Codec,
    pub(crate) peer: Peer,
    pub(crate) queued: UnboundedReceiver<Queued>,
    pub(crate) share: Option<Share>,
}

impl<R, W, S> fmt::Debug for Connection<R, W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// How the two sides agree on a framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speak {
    /// As the other side does: for the side that is called.
    Likewise,
    This(Framing),
}

impl<R, W, S> Connection<R, W, S>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
    S: Service,
{
    /// Over the two halves of anything: a socket's, or stdin and stdout.
    pub fn new((read, write): (R, W), speak: Speak, limits: Limits, service: S) -> Self {
        let limits = Limits { frame: limits.frame.clamp(MIN_FRAME, MAX_FRAME), ..limits };
        let codec = match speak {
            Speak::Likewise => Codec::new(limits.frame),
            Speak::This(framing) => Codec::with_framing(limits.frame, framing),
        };
        let (peer, queued) = Peer::new(limits);
        Self { read, write, service: Arc::new(service), codec, peer, queued, share: None }
    }

    /// Bounds its unfinished frames together with those of others.
    #[must_use]
    pub fn sharing(self, share: Share) -> Self {
        Self { share: Some(share), ..self }
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Serves until the connection is over. Whatever it began is over then, too, also where this is dropped
    /// unfinished.
    pub async fn run(self) -> Ending {
        Serving::new(self).run().await
    }
}
