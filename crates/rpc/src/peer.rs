//! What the program holds of a connection: a [`Peer`] to call, notify, subscribe and close by. The other
//! half, which reads, serves and answers, is `serve`.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;
use crate::limits::Limits;
use crate::message::{self, Id, Response};
use crate::write::{Over, Queue, Queued, Text};

/// Longer than any connection lives, and near enough for a clock to hold.
const LONGEST_WAIT: Duration = Duration::from_secs(400 * 24 * 60 * 60);

type Answer = Result<Box<RawValue>, Error>;
type Waiting = oneshot::Sender<Answer>;

/// Why a call of ours has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The other side's answer.
    #[error(transparent)]
    Answered(Error),
    #[error("no answer within {within:?}")]
    TimedOut { within: Duration },
    #[error("the connection is closed")]
    Closed,
    #[error("{bound} calls wait for an answer already")]
    TooMany { bound: usize },
    #[error("a message of {length} bytes is longer than a frame may be ({limit})")]
    TooLong { length: usize, limit: usize },
    #[error("the params can't be written as JSON")]
    NotJson,
}

impl From<Over> for CallError {
    fn from(Over: Over) -> Self {
        Self::Closed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Nothing new is begun.
    Closing,
    Over,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) out: Queue,
    pub(crate) limits: Limits,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) subscriptions: Arc<Semaphore>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    next: AtomicU64,
}

/// One end of a connection. Clones are the same end. It does not keep the connection open: that is whoever
/// runs the [`Connection`](crate::Connection).
#[derive(Clone)]
pub struct Peer {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("phase", &*self.shared.phase.borrow()).finish_non_exhaustive()
    }
}

impl Peer {
    pub(crate) fn new(limits: Limits) -> (Self, UnboundedReceiver<Queued>) {
        let (out, queued) = Queue::new(limits.outgoing);
        let shared = Shared {
            out,
            phase: watch::Sender::new(Phase::Open),
            subscriptions: Arc::new(Semaphore::new(limits.subscriptions.min(Semaphore::MAX_PERMITS))),
            limits,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
        };
        (Self { shared: Arc::new(shared) }, queued)
    }

    /// Asks the other side. Where this is dropped unfinished, the answer is ignored when it comes.
    pub async fn call<P: Serialize + Sync + ?Sized>(
        &self,
        method: &str,
        params: &P,
        within: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let deadline = Instant::now() + within.min(LONGEST_WAIT);
        let answered = async { self.ask(method, params).await?.answer().await };
        timeout_at(deadline, answered).await.unwrap_or(Err(CallError::TimedOut { within }))
    }

    /// The same in two steps, for whoever has something to do meanwhile. Waits only while the queue is full.
    pub async fn ask<P: Serialize + Sync + ?Sized>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<Asked, CallError> {
        let (call, answer) = self.open_call()?;
        let text = message::request(call.id, method, &params).map_err(|_| CallError::NotJson)?;
        self.send(text).await?;
        Ok(Asked { answer, _call: call })
    }

    /// Tells the other side. Waits while the queue is full; for events use [`Peer::subscribe`], which doesn't.
    pub async fn notify<P: Serialize + Sync + ?Sized>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<(), CallError> {
        let text = message::notification(method, &params).map_err(|_| CallError::NotJson)?;
        self.send(text).await
    }

    /// Ends the connection: running calls get their time, new ones are answered with an error, what is
    /// queued is written. Returns at once; [`Peer::closed`] waits.
    pub fn close(&self) {
        self.shared.phase.send_if_modified(|phase| {
            let open = *phase == Phase::Open;
            if open {
                *phase = Phase::Closing;
            }
            open
        });
    }

    /// Until the connection is over. Its deadlines bound that once it is being closed.
    pub async fn closed(&self) {
        match self.shared.phase.subscribe().wait_for(|phase| *phase == Phase::Over).await {
            // An error can't be: the sender is ours.
            Ok(_) | Err(_) => {}
        }
    }

    pub fn is_closed(&self) -> bool {
        *self.shared.phase.borrow() == Phase::Over
    }

    async fn send(&self, text: String) -> Result<(), CallError> {
        let (length, limit) = (text.len(), self.shared.limits.frame);
        if length > limit {
            return Err(CallError::TooLong { length, limit });
        }
        Ok(self.shared.out.send(Text::Own(text)).await?)
    }

    fn open_call(&self) -> Result<(OpenCall, oneshot::Receiver<Answer>), CallError> {
        let bound = self.shared.limits.pending;
        let (sender, answer) = oneshot::channel();
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.shared.waiting();
        // Looked at under the lock: `over` sets the phase first and empties the table under the lock then.
        if *self.shared.phase.borrow() == Phase::Over {
            return Err(CallError::Closed);
        }
        if waiting.len() >= bound {
            return Err(CallError::TooMany { bound });
        }
        waiting.insert(id, sender);
        drop(waiting);
        Ok((OpenCall { id, shared: Arc::clone(&self.shared) }, answer))
    }
}

/// A question that was asked. Where this is dropped, the answer is ignored when it comes.
#[derive(Debug)]
pub struct Asked {
    answer: oneshot::Receiver<Answer>,
    _call: OpenCall,
}

impl Asked {
    /// As long as it takes.
    pub async fn answer(self) -> Result<Box<RawValue>, CallError> {
        match self.answer.await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(CallError::Answered(error)),
            Err(_) => Err(CallError::Closed),
        }
    }
}

/// A place in the table of calls that wait, given back however the wait ends.
#[derive(Debug)]
struct OpenCall {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.id);
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting().is_empty()
    }

    /// An answer to nobody's question is dropped: the question may have timed out.
    pub(crate) fn answered(&self, response: Response) {
        let id = response.id.as_ref().map(Id::text).and_then(|text| text.parse().ok());
        let waiting = id.and_then(|id: u64| self.waiting().remove(&id));
        if let Some(waiting) = waiting {
            match waiting.send(response.outcome) {
                // An error: whoever asked has just gone.
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Whoever waits for anything of this connection is told. Once is enough, twice does no harm.
    pub(crate) fn over(&self) {
        self.phase.send_replace(Phase::Over);
        self.out.close();
        self.waiting().clear();
    }
}
