//! Subscriptions of one connection to what happens to executions. Each has a task that forwards; one whose reader is
//! too slow is cut, and its last message says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::json;
use stockade_proto::door::method;
use stockade_rpc::{BUSY, Bounds, Error, Note, Peer, Subscription};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

use crate::events::Change;
use crate::principal::Principal;

/// Of one connection: they all carry the same.
pub(super) const SUBSCRIPTIONS: usize = 4;

/// What one holds for its reader, beyond what the connection does.
const BEHIND: Bounds = Bounds { messages: 256, bytes: 256 * 1024 };
const TOO_SLOW: &str = "too slow: events were lost, subscribe again";

#[derive(Debug)]
struct Forwarding {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    forwarding: HashMap<u64, Forwarding>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Subscriptions {
    open: Arc<Mutex<Open>>,
}

impl Subscriptions {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number. What happens after this is told.
    pub(super) fn subscribe(
        &self,
        peer: &Peer,
        principal: &Principal,
        changes: broadcast::Receiver<Change>,
    ) -> Result<u64, Error> {
        let mut open = self.open();
        open.forwarding.retain(|_, forwarding| !forwarding.task.is_finished());
        open.last += 1;
        let number = open.last;
        let cut = Note::new(method::CUT, &json!({ "subscription": number, "reason": TOO_SLOW }));
        let cut = cut.map_err(|_| Error::internal())?;
        let subscription =
            peer.subscribe(BEHIND, cut.clone()).map_err(|why| Error::new(BUSY, why.to_string()))?;
        let (stop, stopped) = oneshot::channel();
        let forward = Forward { number, peer: peer.clone(), principal: principal.clone(), subscription };
        let task = tokio::spawn(forward.run(changes, stopped));
        open.forwarding.insert(number, Forwarding { stop, task });
        Ok(number)
    }

    /// What was published before is sent before the answer.
    pub(super) async fn unsubscribe(&self, number: u64) -> Result<(), Error> {
        let forwarding = self.open().forwarding.remove(&number);
        let Some(Forwarding { stop, task }) = forwarding else {
            return Err(Error::bad_params("subscription", "this connection has none of that number"));
        };
        drop(stop);
        match task.await {
            // An error: the runtime is going down.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// One change, and which subscription it is for.
#[derive(Serialize)]
struct Told<'a> {
    subscription: u64,
    #[serde(flatten)]
    change: &'a Change,
}

struct Forward {
    number: u64,
    peer: Peer,
    principal: Principal,
    subscription: Subscription,
}

/// Why forwarding ended.
enum End {
    /// By unsubscribing, or with the connection; or cut, which its reader is told by the subscription.
    Quiet,
    /// This task itself did not keep up with what happens.
    Behind,
}

impl Forward {
    async fn run(self, mut changes: broadcast::Receiver<Change>, mut stopped: oneshot::Receiver<()>) {
        let end = loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                _ = &mut stopped => break End::Quiet,
                () = self.peer.closed() => break End::Quiet,
            };
            match change {
                Ok(change) => {
                    if self.principal.sees(change.principal()) && self.tell(&change).is_err() {
                        break End::Quiet;
                    }
                }
                Err(RecvError::Lagged(_)) => break End::Behind,
                Err(RecvError::Closed) => break End::Quiet,
            }
        };
        let Self { number, peer, subscription, .. } = self;
        subscription.finish().await;
        if let End::Behind = end {
            let last = json!({ "subscription": number, "reason": TOO_SLOW });
            match peer.notify(method::CUT, &last).await {
                // An error: nobody is there to read it.
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn tell(&self, change: &Change) -> Result<(), stockade_rpc::PublishError> {
        let event = Told { subscription: self.number, change };
        match Note::new(method::EVENT, &event) {
            Ok(note) => self.subscription.publish(&note),
            // Changes are always JSON.
            Err(_) => Ok(()),
        }
    }
}
