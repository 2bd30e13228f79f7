//! Events to a reader that may be slow. Publishing never waits: each subscription has a queue of its own, and
//! when that is full the subscription is cut. Its reader gets what was queued, then one last message that
//! says so; other subscriptions, and whoever publishes, notice nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::message;
use crate::peer::{Peer, Phase, Shared};
use crate::write::Text;

/// What one subscription may hold for its reader.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub messages: usize,
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { messages: 1024, bytes: 1024 * 1024 }
    }
}

/// A notification, written once for however many subscriptions.
#[derive(Debug, Clone)]
pub struct Note(Arc<str>);

impl Note {
    pub fn new<P: Serialize + ?Sized>(method: &str, params: &P) -> Result<Self, serde_json::Error> {
        Ok(Self(message::notification(method, &params)?.into()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    #[error("the connection has {bound} subscriptions already")]
    TooMany { bound: usize },
    #[error("the connection is closed")]
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Now or before. The reader is told, or gone.
    #[error("the reader is too slow: its subscription is cut")]
    Cut,
    #[error("the connection is closed")]
    Closed,
    /// This one is not sent; the subscription goes on.
    #[error("a notification of {length} bytes is longer than a frame may be ({limit})")]
    TooLong { length: usize, limit: usize },
}

#[derive(Debug, Default)]
struct State {
    bytes: AtomicUsize,
    cut: AtomicBool,
}

/// The publishing end. Dropped, it ends: what is queued is still sent.
#[derive(Debug)]
pub struct Subscription {
    /// None once it is cut.
    queue: Mutex<Option<mpsc::Sender<Note>>>,
    state: Arc<State>,
    bounds: Bounds,
    frame: usize,
    forward: JoinHandle<()>,
}

impl Peer {
    /// `last` is what the reader hears when it was too slow. Must be called within the runtime.
    pub fn subscribe(&self, bounds: Bounds, last: Note) -> Result<Subscription, SubscribeError> {
        let bound = self.shared.limits.subscriptions;
        let place = Arc::clone(&self.shared.subscriptions).try_acquire_owned();
        let place = place.map_err(|_| SubscribeError::TooMany { bound })?;
        if *self.shared.phase.borrow() == Phase::Over {
            return Err(SubscribeError::Closed);
        }
        let (queue, queued) = mpsc::channel(bounds.messages.max(1));
        let state = Arc::new(State::default());
        let forwarding = forward(Arc::clone(&self.shared), queued, Arc::clone(&state), last);
        let forward = tokio::spawn(async move {
            forwarding.await;
            drop(place);
        });
        Ok(Subscription {
            queue: Mutex::new(Some(queue)),
            state,
            bounds,
            frame: self.shared.limits.frame,
            forward,
        })
    }
}

/// Ends when the subscription does, or with the connection, which a publisher learns from its next message.
async fn forward(shared: Arc<Shared>, mut queued: mpsc::Receiver<Note>, state: Arc<State>, last: Note) {
    let mut phase = shared.phase.subscribe();
    loop {
        let note = tokio::select! {
            note = queued.recv() => note,
            () = over(&mut phase) => return,
        };
        let Some(Note(text)) = note else { break };
        let length = text.len();
        if shared.out.send(Text::Shared(text)).await.is_err() {
            return;
        }
        state.bytes.fetch_sub(length, Ordering::Relaxed);
    }
    if state.cut.load(Ordering::Acquire) {
        match shared.out.send(Text::Shared(last.0)).await {
            // An error: the connection is over, and nobody reads.
            Ok(()) | Err(_) => {}
        }
    }
}

async fn over(phase: &mut watch::Receiver<Phase>) {
    match phase.wait_for(|phase| *phase == Phase::Over).await {
        // An error: the other end is dropped, which is over, too.
        Ok(_) | Err(_) => {}
    }
}

impl Subscription {
    /// Never waits.
    pub fn publish(&self, note: &Note) -> Result<(), PublishError> {
        let length = note.0.len();
        if length > self.frame {
            return Err(PublishError::TooLong { length, limit: self.frame });
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = queue.as_ref() else { return Err(PublishError::Cut) };
        let held = self.state.bytes.fetch_add(length, Ordering::Relaxed);
        let sent = if held.saturating_add(length) > self.bounds.bytes {
            Err(mpsc::error::TrySendError::Full(note.clone()))
        } else {
            sender.try_send(note.clone())
        };
        match sent {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(PublishError::Closed),
            Err(mpsc::error::TrySendError::Full(_)) => {
                // Before the queue's end is seen.
                self.state.cut.store(true, Ordering::Release);
                *queue = None;
                Err(PublishError::Cut)
            }
        }
    }

    pub fn is_cut(&self) -> bool {
        self.state.cut.load(Ordering::Acquire)
    }

    /// Until all that was published is on its way, ahead of whatever is sent after this: progress first, then
    /// the result. Waits as long as the reader takes; the connection's deadlines bound that.
    pub async fn finish(self) {
        drop(self.queue);
        match self.forward.await {
            // An error: the runtime is going down.
            Ok(()) | Err(_) => {}
        }
    }
}
