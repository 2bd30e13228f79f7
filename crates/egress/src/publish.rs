//! The other way in: listeners on the host's loopback whose connections go to ports inside the sandbox.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use stockade_charge::Charge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::accept::{accept, reset};
use crate::charged;
use crate::pool::{Inside, Pool, Slot};
use crate::relay::{self, Ending, Memory, Side};

/// Connections at once, those that wait for a slot among them. Each takes a descriptor or two.
const CONNECTIONS: u16 = 256;
/// For a slot to come free. A client that has waited this long is better told than left waiting: whoever
/// holds all slots holds them for long.
const PATIENCE: Duration = Duration::from_secs(5);
/// For clients to take what the sandbox said last. One that takes nothing must not hold up the result.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);

pub(crate) struct Entrance {
    pool: Pool,
    memory: Memory,
    pub(crate) charge: Arc<Charge>,
    connections: Arc<Semaphore>,
    /// Whether nobody is left inside.
    over: watch::Sender<bool>,
}

impl Entrance {
    pub(crate) fn new(inside: Vec<Inside>, charge: Arc<Charge>) -> Self {
        Self {
            pool: Pool::new(inside),
            memory: Memory::default(),
            charge,
            connections: Arc::new(Semaphore::new(usize::from(CONNECTIONS))),
            over: watch::Sender::new(false),
        }
    }

    /// The sandbox is gone, but what it said is still on its way.
    pub(crate) async fn drain(&self) {
        self.over.send_replace(true);
        match timeout(DRAIN, self.connections.acquire_many(u32::from(CONNECTIONS))).await {
            // All are done, or have had their time.
            Ok(_) | Err(_) => {}
        }
    }

    async fn is_over(&self) {
        match self.over.subscribe().wait_for(|over| *over).await {
            Ok(_) | Err(_) => {}
        }
    }

    /// One connection; the slot that it leaves behind, if it had one.
    async fn carry(&self, client: TcpStream, port: u16) -> Option<Slot> {
        let Ok(Some(slot)) = timeout(PATIENCE, self.pool.take()).await else {
            reset(client);
            return None;
        };
        match slot.connect(port).await {
            Some(server) => match self.relay(client, server).await {
                Ending::Clean => {}
                Ending::Broken | Ending::Refused(_) => slot.sever(),
            },
            None => reset(client),
        }
        Some(slot)
    }

    async fn relay(&self, client: TcpStream, server: TcpStream) -> Ending {
        relay::prepare(&client);
        relay::prepare(&server);
        // Not egress: what a published port carries is in no host's row.
        let (moved, memory) = (AtomicU64::new(0), &self.memory);
        let up = Side { from: &client, to: &server, moved: &moved, memory };
        let down = Side { from: &server, to: &client, moved: &moved, memory };
        let ending = relay::plain(up, down, self.is_over()).await;
        match &ending {
            Ending::Clean => {}
            Ending::Broken | Ending::Refused(_) => reset(client),
        }
        ending
    }
}

pub(crate) async fn serve(entrance: Arc<Entrance>, listener: TcpListener, port: u16) {
    loop {
        // Out of descriptors: clients wait in the kernel's queue, as they do for any busy server.
        let client = accept(&listener, |_| {}).await;
        let Ok(one) = Arc::clone(&entrance.connections).try_acquire_owned() else {
            reset(client);
            continue;
        };
        let (entrance, charge) = (Arc::clone(&entrance), &entrance.charge);
        charged::spawn(charge, async move {
            let slot = entrance.carry(client, port).await;
            drop(one);
            if let Some(slot) = slot {
                slot.settle().await;
                entrance.pool.give_back(slot);
            }
        });
    }
}
