//! Copies bytes both ways between two sockets: ends and resets pass through, a slow reader slows its
//! writer. All connections share the thread's one large buffer; a connection owns memory only while its
//! peer doesn't take what was read for it, so idle ones cost none.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::gate::{Gate, Pass};
use crate::reply::Reply;

/// One read. Larger ones gain nothing on loopback.
const CHUNK: usize = 256 * 1024;
/// One read while much is held, or where the gate may have to hold it: many such connections then cost
/// little each.
const SMALL_CHUNK: usize = 8 * 1024;
/// Held bytes of all connections above which reads get small.
const HELD_MUCH: usize = 32 * 1024 * 1024;
/// Reads before other connections get their turn.
const BURST: usize = 8;
/// For a first message to be complete.
const HOLD: Duration = Duration::from_secs(60);
/// For the server's answer to a switch of protocols.
const REPLY: Duration = Duration::from_secs(60);
/// For the last bytes of a peer that takes no more: they are here already, the other may read slowly.
const LAST_BYTES: Duration = Duration::from_secs(30);

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

/// Bytes that were read and not yet taken, over all connections.
#[derive(Debug, Default)]
pub(crate) struct Memory(AtomicUsize);

impl Memory {
    fn chunk(&self) -> usize {
        if self.0.load(Ordering::Relaxed) > HELD_MUCH { SMALL_CHUNK } else { CHUNK }
    }

    fn hold(&self, bytes: Vec<u8>) -> Held<'_> {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Held { bytes, memory: self }
    }
}

struct Held<'a> {
    bytes: Vec<u8>,
    memory: &'a Memory,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// One direction.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) from: &'a TcpStream,
    pub(crate) to: &'a TcpStream,
    pub(crate) moved: &'a AtomicU64,
    pub(crate) memory: &'a Memory,
}

/// How a relay ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Both directions reached their end.
    Clean,
    /// One side reset, or vanished.
    Broken,
    /// The gate said no.
    Refused(String),
}

/// Why a direction stopped before its end.
enum Stop {
    /// Reading failed: the source was reset.
    Source,
    /// Writing failed: the other takes no more, though its last bytes may still be on their way.
    Sink,
    Refused(String),
}

enum Turn<'a> {
    Idle,
    End,
    Moved,
    Stuck(Held<'a>),
}

/// Long-lived connections notice a peer that vanished; small messages aren't delayed.
pub(crate) fn prepare(stream: &TcpStream) {
    match (stream.set_nodelay(true), sockopt::set_socket_keepalive(stream, true)) {
        // Comforts: a socket that refuses them still carries bytes.
        (Ok(()) | Err(_), Ok(()) | Err(_)) => {}
    }
}

pub(crate) async fn guarded(up: Side<'_>, down: Side<'_>, gate: Gate) -> Ending {
    let reply = Reply::default();
    both(up.climb(gate, &reply), down.descend(&reply)).await
}

/// Without a gate. Once it is over behind `up`, nobody takes more there, and what `down` still brings is all.
pub(crate) async fn plain(up: Side<'_>, down: Side<'_>, over: impl Future<Output = ()>) -> Ending {
    both(unless(over, up.pump()), down.pump()).await
}

async fn unless(
    over: impl Future<Output = ()>,
    side: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let (mut over, mut side) = (pin!(over), pin!(side));
    poll_fn(|context| match side.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(result),
        Poll::Pending => over.as_mut().poll(context).map(Ok),
    })
    .await
}

async fn both(
    up: impl Future<Output = Result<(), Stop>>,
    down: impl Future<Output = Result<(), Stop>>,
) -> Ending {
    let (mut up, mut down) = (pin!(up), pin!(down));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(result) = up.as_mut().poll(context)
        {
            first = Some(result);
        }
        if second.is_none()
            && let Poll::Ready(result) = down.as_mut().poll(context)
        {
            second = Some(result);
        }
        match (&first, &second) {
            (Some(Err(_)), _) | (_, Some(Err(_))) | (Some(Ok(())), Some(Ok(()))) => Poll::Ready(()),
            (Some(Ok(())) | None, None) | (None, Some(Ok(()))) => Poll::Pending,
        }
    })
    .await;
    match (first, second) {
        (Some(Err(Stop::Refused(reason))), _) | (_, Some(Err(Stop::Refused(reason)))) => {
            Ending::Refused(reason)
        }
        (Some(Err(Stop::Sink)), None) => last_bytes(down).await,
        (None, Some(Err(Stop::Sink))) => last_bytes(up).await,
        (Some(Ok(())), Some(Ok(()))) => Ending::Clean,
        _ => Ending::Broken,
    }
}

async fn last_bytes(other: impl Future<Output = Result<(), Stop>>) -> Ending {
    match timeout(LAST_BYTES, other).await {
        Ok(Err(Stop::Refused(reason))) => Ending::Refused(reason),
        Ok(Ok(()) | Err(Stop::Source | Stop::Sink)) | Err(_) => Ending::Broken,
    }
}

impl<'a> Side<'a> {
    /// From the sandbox: nothing passes that the gate doesn't let through.
    async fn climb(self, mut gate: Gate, reply: &Reply) -> Result<(), Stop> {
        let mut held_since = None;
        let mut turns = 0_usize;
        loop {
            if gate.awaits_reply() {
                let status = timeout(REPLY, reply.status()).await.unwrap_or(0);
                let released = gate.replied(status).map_err(Stop::Refused)?;
                self.settle(self.push(&released)?).await?;
                continue;
            }
            let since = held_since.filter(|_| gate.is_holding());
            held_since = gate.is_holding().then(|| since.unwrap_or_else(Instant::now));
            match held_since {
                Some(since) => match timeout_at(since + HOLD, self.from.readable()).await {
                    Ok(ready) => ready.map_err(|_| Stop::Source)?,
                    Err(_) => {
                        return Err(Stop::Refused("a first message that was not completed in time".into()));
                    }
                },
                None => self.from.readable().await.map_err(|_| Stop::Source)?,
            }
            let most = if gate.is_in_bulk() { CHUNK } else { SMALL_CHUNK };
            let watch = |bytes: &[u8]| {
                if gate.awaits_answer() {
                    gate.answered(reply.answer());
                }
                gate.feed(bytes).map_err(Stop::Refused)
            };
            match self.turn(most, watch)? {
                Turn::End => {
                    let rest = gate.finish().map_err(Stop::Refused)?.ok_or(Stop::Source)?;
                    self.settle(self.push(&rest)?).await?;
                    return self.end();
                }
                turn @ (Turn::Idle | Turn::Moved | Turn::Stuck(_)) => self.settle(turn).await?,
            }
            breathe(&mut turns).await;
        }
    }

    /// Towards the sandbox, with an eye on the first response.
    async fn descend(self, reply: &Reply) -> Result<(), Stop> {
        let result = self
            .run(|bytes| {
                reply.see(bytes);
                Ok(Pass::All)
            })
            .await;
        reply.over();
        result
    }

    async fn pump(self) -> Result<(), Stop> {
        self.run(|_| Ok(Pass::All)).await
    }

    async fn run(self, mut watch: impl FnMut(&[u8]) -> Result<Pass, Stop>) -> Result<(), Stop> {
        let mut turns = 0_usize;
        loop {
            self.from.readable().await.map_err(|_| Stop::Source)?;
            match self.turn(CHUNK, &mut watch)? {
                Turn::End => return self.end(),
                turn @ (Turn::Idle | Turn::Moved | Turn::Stuck(_)) => self.settle(turn).await?,
            }
            breathe(&mut turns).await;
        }
    }

    /// One read and its writes, without waiting.
    fn turn(self, most: usize, watch: impl FnOnce(&[u8]) -> Result<Pass, Stop>) -> Result<Turn<'a>, Stop> {
        BUFFER.with_borrow_mut(|buffer| {
            let room = buffer.get_mut(..self.memory.chunk().min(most)).unwrap_or_default();
            let count = match self.from.try_read(room) {
                Ok(0) => return Ok(Turn::End),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Idle),
                Err(_) => return Err(Stop::Source),
            };
            let bytes = room.get(..count).unwrap_or_default();
            match watch(bytes)? {
                Pass::All => self.push(bytes),
                Pass::Bytes(bytes) => self.push(&bytes),
            }
        })
    }

    fn push(self, mut bytes: &[u8]) -> Result<Turn<'a>, Stop> {
        while !bytes.is_empty() {
            match self.to.try_write(bytes) {
                Ok(count) => {
                    self.count(count);
                    bytes = bytes.get(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Turn::Stuck(self.memory.hold(bytes.to_vec())));
                }
                Err(_) => return Err(Stop::Sink),
            }
        }
        Ok(Turn::Moved)
    }

    /// Waits until what was read has been taken.
    async fn settle(self, turn: Turn<'_>) -> Result<(), Stop> {
        let Turn::Stuck(held) = turn else { return Ok(()) };
        let mut rest = held.bytes.as_slice();
        while !rest.is_empty() {
            self.to.writable().await.map_err(|_| Stop::Sink)?;
            match self.to.try_write(rest) {
                Ok(count) => {
                    self.count(count);
                    rest = rest.get(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Stop::Sink),
            }
        }
        Ok(())
    }

    fn count(self, count: usize) {
        self.moved.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The source is done; the other direction goes on.
    fn end(self) -> Result<(), Stop> {
        shutdown(self.to, Shutdown::Write).map_err(|_| Stop::Sink)
    }
}

async fn breathe(turns: &mut usize) {
    *turns += 1;
    if turns.is_multiple_of(BURST) {
        tokio::task::yield_now().await;
    }
}
