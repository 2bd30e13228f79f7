//! What was sent for the command over AF_UNIX sockets and nobody has read yet. The kernel charges the memory of
//! a message to whoever sends it; that is the executor here, and the sandbox's limit does not hold it. So only
//! a few sockets may have something of theirs on the way at once, each as much as its send buffer takes. What
//! the command sends with calls that don't wait for the supervisor is its own, and is charged to it.
//!
//! A socket is counted until it is proven that nothing of it is left: by the kernel's socket diagnosis, also
//! where the sender is gone and its bytes lie with the peer.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send};
use stockade_sys::notify;

use crate::call::{Ground, errno};
use crate::diag::{self, Show};

/// With send buffers as Linux has them, some thirty megabytes in all.
const SENDERS: usize = 128;
const ANSWER_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Queued {
    /// In the sandbox's network namespace.
    diagnosis: OwnedFd,
    /// By their cookies, which are never used again.
    senders: HashMap<u64, Sender>,
}

#[derive(Debug)]
struct Sender {
    number: u32,
    way: Way,
    /// Sends that have not returned.
    busy: usize,
}

/// Where what it sends lies until it is read.
#[derive(Debug)]
enum Way {
    /// With the one peer that a stream ever has.
    Peer(u32),
    /// Anywhere: a datagram socket is held open while something of it is left, which no receiver notices.
    Held(OwnedFd),
    Unknown,
}

/// Counts a send as long as it lasts.
pub(crate) struct Admitted<'a> {
    ground: &'a Ground,
    cookie: Option<u64>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let Some(cookie) = self.cookie else { return };
        let mut queued = self.ground.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = queued.senders.get_mut(&cookie) {
            sender.busy -= 1;
        }
    }
}

/// Room for what this socket is about to send; ENOBUFS where too many others have not been read.
pub(crate) fn admit<'a>(
    ground: &'a Ground,
    socket: &OwnedFd,
    kind: SocketType,
) -> Result<Admitted<'a>, Errno> {
    let mut queued = ground.queued.lock().unwrap_or_else(PoisonError::into_inner);
    let cookie = queued.admit(socket, kind)?;
    Ok(Admitted { ground, cookie })
}

impl Queued {
    pub(crate) fn new(diagnosis: OwnedFd) -> Self {
        Self { diagnosis, senders: HashMap::new() }
    }

    /// The sender's cookie; none where it has no peer, so that nothing comes of the send.
    fn admit(&mut self, socket: &OwnedFd, kind: SocketType) -> Result<Option<u64>, Errno> {
        let cookie = rustix::net::sockopt::socket_cookie(socket)?;
        if let Some(known) = self.senders.get_mut(&cookie) {
            known.busy += 1;
            return Ok(Some(cookie));
        }
        if self.senders.len() >= SENDERS {
            self.sweep();
        }
        if self.senders.len() >= SENDERS {
            return Err(Errno::NOBUFS);
        }
        let number = u32::try_from(rustix::fs::fstat(socket)?.st_ino).map_err(|_| Errno::OVERFLOW)?;
        let way = match kind {
            SocketType::DGRAM => Way::Held(socket.try_clone().map_err(|error| errno(&error))?),
            _ => match self.ask(number, cookie) {
                Ok(Some(Queues { peer: Some(peer), .. })) => Way::Peer(peer),
                Ok(Some(Queues { peer: None, .. })) => return Ok(None),
                // It is open, so a kernel that does not find it does not look.
                Ok(None) | Err(_) => Way::Unknown,
            },
        };
        self.senders.insert(cookie, Sender { number, way, busy: 1 });
        Ok(Some(cookie))
    }

    /// Forgets the senders of which nothing is left.
    pub(crate) fn sweep(&mut self) {
        let done: Vec<u64> = self
            .senders
            .iter()
            .filter(|(cookie, sender)| sender.busy == 0 && self.is_read(**cookie, sender))
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in done {
            self.senders.remove(&cookie);
        }
    }

    fn is_read(&self, cookie: u64, sender: &Sender) -> bool {
        match &sender.way {
            Way::Held(socket) => matches!(notify::unread(socket.as_fd()), Ok(0)),
            Way::Peer(peer) => match self.ask(sender.number, cookie) {
                Ok(Some(own)) => own.sent == 0,
                // It was closed. A peer of that number that is another by now has none of its bytes.
                Ok(None) => match self.ask(*peer, diag::ANY_COOKIE) {
                    Ok(Some(theirs)) => theirs.received == 0,
                    Ok(None) => true,
                    Err(_) => false,
                },
                Err(_) => false,
            },
            Way::Unknown => false,
        }
    }

    /// What the kernel says of a socket; none where there is no such.
    fn ask(&self, number: u32, cookie: u64) -> Result<Option<Queues>, Errno> {
        send(&self.diagnosis, &diag::request(number, cookie, Show::QUEUES), SendFlags::empty())?;
        let mut answer = [0; ANSWER_MAX];
        // It was made while we sent.
        let (length, _) = recv(&self.diagnosis, &mut answer, RecvFlags::DONTWAIT)?;
        diag::queues(answer.get(..length).unwrap_or_default(), number)
    }
}

/// What lies in the queues of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) peer: Option<u32>,
    /// Not read by others yet; with the kernel's overhead.
    pub(crate) sent: u32,
    pub(crate) received: u32,
}
