//! Accepts connections until told to stop, so many at a time, and then waits for those that are being answered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::answer::Door;
use super::connection::{self, TOO_MANY, last_word};
use super::listen::Listening;
use crate::core::Core;

/// Connections at a time; fewer where the process may have fewer descriptors. Beyond it one hears 503.
const CONNECTIONS: usize = 4096;
/// Those that hear it at a time. Beyond that they are closed without a word.
const TURNED_AWAY: usize = 64;
/// When there is no descriptor left for another connection.
const PAUSE: Duration = Duration::from_millis(50);
/// For replies, once what ran has ended or its time to is over.
const AFTER_DRAIN: Duration = Duration::from_secs(10);

/// Until `stop` is set, or whoever could set it is gone.
pub async fn serve(core: Arc<Core>, listening: Listening, mut stop: watch::Receiver<bool>) -> io::Result<()> {
    let reach = listening.reach();
    let listener = TcpListener::from_std(listening.listener)?;
    let drain = core.config().drain;
    let door = Arc::new(Door::new(core, reach, stop.clone()));
    let (places, turned_away) = (Arc::new(Semaphore::new(places())), Arc::new(Semaphore::new(TURNED_AWAY)));
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = told_to(&mut stop) => break,
            Some(ended) = connections.join_next() => {
                drop(ended);
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(reason) => {
                    pause(&reason).await;
                    continue;
                }
            },
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let (door, stop) = (Arc::clone(&door), stop.clone());
                connections.spawn(async move {
                    connection::serve(door, stream, stop).await;
                    drop(place);
                });
            }
            Err(_) => turn_away(&mut connections, &turned_away, stream),
        }
    }
    drop(listener);
    info!(connections = connections.len(), "http: no more connections");
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain + AFTER_DRAIN, all).await.is_err() {
        warn!("http: connections are left and are closed now");
    }
    Ok(())
}

/// Until it is time to stop, or whoever would say so is gone.
pub(super) async fn told_to(stop: &mut watch::Receiver<bool>) {
    match stop.wait_for(|stop| *stop).await {
        Ok(_) | Err(_) => {}
    }
}

/// Half of the descriptors: the other half is for executions and the store.
fn places() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 2).unwrap_or(CONNECTIONS).clamp(1, CONNECTIONS)
}

fn turn_away(connections: &mut JoinSet<()>, room: &Arc<Semaphore>, stream: TcpStream) {
    if let Ok(place) = Arc::clone(room).try_acquire_owned() {
        connections.spawn(async move {
            last_word(stream, TOO_MANY).await;
            drop(place);
        });
    }
}

/// A connection that was reset before it was accepted is nothing; anything else would come again at once.
async fn pause(reason: &io::Error) {
    if !matches!(reason.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        warn!("http: a connection can't be accepted: {reason}");
        tokio::time::sleep(PAUSE).await;
    }
}
