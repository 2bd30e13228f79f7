//! The Unix-socket door: JSON-RPC 2.0 for whoever the kernel says may come in. `admit` decides who that is,
//! `visitor` serves one connection, `stage` runs agent stages. It translates; what it calls decides.

mod admit;
mod errors;
mod events;
mod fields;
mod room;
mod stage;
mod verbs;
mod visitor;

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::time::Duration;

use stockade_rpc::{Admitted, Caller, Connection, Limits, ListenError, Listener, Places, Speak};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use crate::config::SocketDoor;
use crate::core::Core;
use crate::principal::Principal;
use events::SUBSCRIPTIONS;
use room::Room;
use stage::Stages;
use visitor::Visitor;

/// Of a socket's directory that is not there: anyone may pass, and the socket has its own mode.
const DIRECTORY_MODE: u32 = 0o755;
/// A worker may connect long before it has work. Seats are counted, so silence costs little.
const SILENCE: Duration = Duration::from_secs(10 * 60);
/// For the answers of calls that are ended with the service.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// Beyond that, for bytes that nobody takes.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// Readers that wait for output. Each looks again many times a second; more of them wait their turn.
const WAITING_READERS: usize = 256;

/// A socket at the configured path, or the one that was bound before us. Within the runtime.
pub fn bind(door: &SocketDoor, inherited: Option<OwnedFd>) -> Result<Listener, ListenError> {
    if let Some(socket) = inherited {
        return Listener::inherited(socket, Places::default());
    }
    if let Some(directory) = door.path.parent().filter(|directory| !directory.exists()) {
        match DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory) {
            // What is wrong with it is told next.
            Ok(()) | Err(_) => {}
        }
    }
    Listener::bind(&door.path, Places::default())
}

/// What all connections share.
#[derive(Debug)]
struct Door {
    core: Arc<Core>,
    stages: Arc<Stages>,
    readers: Semaphore,
    room: Room,
    /// Calls that something waits for.
    calls: watch::Sender<usize>,
}

/// Serves until `stop` is set, and then until the calls that run are answered or the configured time is over.
pub async fn serve(core: Arc<Core>, listener: Listener, mut stop: watch::Receiver<bool>) {
    let door = Arc::new(Door {
        stages: Arc::default(),
        core,
        readers: Semaphore::new(WAITING_READERS),
        room: Room::default(),
        calls: watch::Sender::new(0),
    });
    let (close, closing) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(|caller| admit::admit(&door.core, caller)) => match accepted {
                Ok(admitted) => {
                    connections.spawn(visit(Arc::clone(&door), admitted, closing.clone()));
                }
                Err(reason) => {
                    error!("the socket takes nobody any more: {reason}");
                    told(&mut stop).await;
                    break;
                }
            },
            Some(_) = connections.join_next() => {}
            () = told(&mut stop) => break,
        }
    }
    drop(listener);
    drain(&door, &close, connections).await;
}

/// Until it is set. Where nobody can set it any more, that is the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    match stop.wait_for(|stop| *stop).await {
        Ok(_) | Err(_) => {}
    }
}

/// While calls run, everything but new executions is served as before: health, cancel, reading.
async fn drain(door: &Door, close: &watch::Sender<bool>, mut connections: JoinSet<()>) {
    let mut calls = door.calls.subscribe();
    let idle = calls.wait_for(|calls| *calls == 0);
    if tokio::time::timeout(door.core.config().drain, idle).await.is_err() {
        warn!("calls still run after {:?}: they are ended", door.core.config().drain);
        door.stages.cancel_all(&door.core).await;
    }
    close.send_replace(true);
    let over = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS + LAST_BYTES, over).await.is_err() {
        connections.shutdown().await;
    }
}

fn limits() -> Limits {
    let door = Limits::door();
    Limits { subscriptions: SUBSCRIPTIONS, first_frame: Some(SILENCE), drain: LAST_ANSWERS, ..door }
}

/// Until a reload names others. What it subscribed to ends with its connection.
async fn not_admitted(core: &Core, caller: Caller) {
    let mut changes = core.changes();
    while changes.changed().await.is_ok() {
        if admit::admit(core, caller).is_err() {
            return;
        }
    }
    std::future::pending().await
}

/// One connection, from its admission to its end.
async fn visit(door: Arc<Door>, admitted: Admitted<Principal>, mut closing: watch::Receiver<bool>) {
    let Admitted { stream, caller, terms: principal, seat } = admitted;
    debug!(principal = principal.name(), pid = caller.pid, "connected");
    let core = Arc::clone(&door.core);
    let visitor = Visitor::new(door, caller, principal);
    let connection = Connection::new(stream.into_split(), Speak::Likewise, limits(), visitor);
    let connection = connection.sharing(seat.share());
    let peer = connection.peer().clone();
    let running = connection.run();
    tokio::pin!(running);
    let ending = tokio::select! {
        ending = &mut running => ending,
        () = told(&mut closing) => {
            peer.close();
            running.await
        }
        () = not_admitted(&core, caller) => {
            peer.close();
            running.await
        }
    };
    debug!(pid = caller.pid, "connection over: {ending:?}");
    drop(seat);
}
