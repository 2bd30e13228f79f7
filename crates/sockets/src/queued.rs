//! What was sent for the command over AF_UNIX sockets and nobody has read yet. The kernel charges the memory of
//! a message to whoever sends it; that is the executor here, and the sandbox's limit does not hold it. So only
//! a few sockets may have something of theirs on the way at once, each as much as its send buffer takes. What
//! the command sends with calls that don't wait for the supervisor is its own, and is charged to it.
//!
//! A sender is counted until the kernel's socket diagnosis shows that nothing of it can be left. While it is open,
//! its own queue tells. What a closed stream sent lies with its one peer, which may not have been accepted yet, so
//! there can't be more such senders than there are sockets with unread bytes and connections that wait: as many
//! are counted, at most. What lies with a server outside the sandbox's network namespace is not seen: a person
//! allowed that one.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::SocketType;
use stockade_sys::notify;

use crate::call::{Call, Ground, errno};
use crate::diag;

/// With send buffers as Linux has them, some thirty megabytes in all.
const SENDERS: usize = 128;

#[derive(Debug)]
pub(crate) struct Queued {
    /// In the sandbox's network namespace.
    diagnosis: OwnedFd,
    /// By their cookies, which are never used again.
    open: HashMap<u64, Sender>,
    /// Streams that are closed, of which something may be left.
    closed: usize,
}

#[derive(Debug, Default)]
struct Sender {
    /// Sends that have not returned.
    busy: usize,
    /// Of a datagram socket, whose messages may lie anywhere: held while some of them are left, which no receiver
    /// notices.
    held: Option<OwnedFd>,
}

/// Counts a send as long as it lasts.
pub(crate) struct Admitted<'a> {
    ground: &'a Ground,
    cookie: u64,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some(sender) = locked(self.ground).open.get_mut(&self.cookie) {
            sender.busy -= 1;
        }
    }
}

pub(crate) fn locked(ground: &Ground) -> MutexGuard<'_, Queued> {
    ground.queued.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for what this socket is about to send; ENOBUFS where too many others have not been read. To look at all of
/// them may take long, so that it is done by one thread at a time, and by none while there is something to pay.
pub(crate) fn admit<'a>(call: &Call<'a>, socket: &OwnedFd, kind: SocketType) -> Result<Admitted<'a>, Errno> {
    let (ground, cookie) = (call.ground, rustix::net::sockopt::socket_cookie(socket)?);
    loop {
        let mut queued = locked(ground);
        let looks = !queued.has_room(cookie);
        if looks && ground.charge.owes() {
            drop(queued);
            call.pay();
            call.go_on()?;
            continue;
        }
        let admitted = queued.admit(cookie, socket, kind);
        if looks {
            // Before the next who waits for the lock.
            ground.charge.settle();
        }
        return admitted.map(|()| Admitted { ground, cookie });
    }
}

impl Queued {
    pub(crate) fn new(diagnosis: OwnedFd) -> Self {
        Self { diagnosis, open: HashMap::new(), closed: 0 }
    }

    fn is_full(&self) -> bool {
        self.open.len() + self.closed >= SENDERS
    }

    fn has_room(&self, cookie: u64) -> bool {
        self.open.contains_key(&cookie) || !self.is_full()
    }

    fn admit(&mut self, cookie: u64, socket: &OwnedFd, kind: SocketType) -> Result<(), Errno> {
        if let Some(known) = self.open.get_mut(&cookie) {
            known.busy += 1;
            return Ok(());
        }
        if self.is_full() {
            self.let_go_of_datagrams();
            // Without a whole list nothing is proven, and nobody is forgotten.
            self.forget_streams()?;
        }
        if self.is_full() {
            return Err(Errno::NOBUFS);
        }
        let held = match kind {
            SocketType::DGRAM => Some(socket.try_clone().map_err(|error| errno(&error))?),
            _ => None,
        };
        self.open.insert(cookie, Sender { busy: 1, held });
        Ok(())
    }

    /// Forgets datagram sockets whose messages have all been read.
    pub(crate) fn let_go_of_datagrams(&mut self) {
        self.open.retain(|_, sender| match &sender.held {
            Some(socket) => sender.busy > 0 || !matches!(notify::unread(socket.as_fd()), Ok(0)),
            None => true,
        });
    }

    /// Forgets streams of which nothing is left.
    fn forget_streams(&mut self) -> Result<(), Errno> {
        let mut sent = HashMap::new();
        let mut unread = 0_usize;
        diag::for_each(&self.diagnosis, |seen| {
            if self.open.contains_key(&seen.cookie) {
                sent.insert(seen.cookie, seen.sent);
            }
            let places = if seen.listens { seen.received } else { seen.received.min(1) };
            unread = unread.saturating_add(usize::try_from(places).unwrap_or(usize::MAX));
        })?;
        let mut closed = 0;
        self.open.retain(|cookie, sender| {
            if sender.busy > 0 || sender.held.is_some() {
                return true;
            }
            match sent.get(cookie) {
                Some(left) => *left > 0,
                None => {
                    closed += 1;
                    false
                }
            }
        });
        self.closed = (self.closed + closed).min(unread);
        Ok(())
    }
}
