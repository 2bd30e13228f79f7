//! One connection from its first frame to its last: reads frames, starts calls within their bounds, passes
//! answers to who waits for them, watches the deadlines, and ends everything it began.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::{CLOSING, Error, INTERNAL};
use crate::frame::{FrameError, Item};
use crate::message::{self, Id, Message, Notification, Request, Sender};
use crate::peer::{Peer, Phase, Shared};
use crate::read::FrameReader;
use crate::service::{Connection, Context, Ending, Late, Service};
use crate::write::{self, Kept, Over, Text};

/// When a busy connection may have room again. Calls end when they end; this keeps a loop from spinning.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// For the last frames to be taken, and for a writer to stop so that it can read them.
const LAST_BYTES: Duration = Duration::from_secs(2);
/// A longer request is not urgent, whatever it asks for.
const URGENT_BYTES: usize = 64 * 1024;
/// What is read and dropped meanwhile.
const DISCARDED: u64 = 64 * 1024 * 1024;

/// Tells everyone when it goes, however it goes.
struct Bell(Arc<Shared>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.over();
    }
}

/// Bytes of params in use.
struct Held {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What the loop does next.
enum Next {
    Read,
    /// Until the calls that run are done, or the time is over.
    Drain(Instant, Ending),
    End(Ending),
}

pub(crate) struct Serving<R, S> {
    reader: FrameReader<R>,
    service: Arc<S>,
    peer: Peer,
    phase: watch::Receiver<Phase>,
    /// The one task that writes.
    writer: JoinSet<io::Result<()>>,
    /// Calls, and what takes notifications.
    tasks: JoinSet<()>,
    notes: Option<mpsc::Sender<(Notification, Held)>>,
    calls: Arc<Semaphore>,
    urgent: Arc<Semaphore>,
    held: Arc<AtomicUsize>,
    draining: Option<(Instant, Ending)>,
    first: bool,
    /// The start, then the last frame, or the end of a call.
    heard: Instant,
    bell: Bell,
}

impl<R: AsyncRead + Unpin + Send, S: Service> Serving<R, S> {
    /// Within the runtime.
    pub(crate) fn new<W>(connection: Connection<R, W, S>) -> Self
    where
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let Connection { read, write, service, codec, peer, queued, share } = connection;
        let limits = &peer.shared.limits;
        let mut writer = JoinSet::new();
        let (bell, stalled, spoken) = (Bell(Arc::clone(&peer.shared)), limits.stalled, codec.other_side());
        writer.spawn(async move {
            // Rung when the writer ends, so that nobody waits for room that it will never make.
            let _bell = bell;
            write::run(write, spoken, queued, stalled).await
        });
        let slots = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            reader: FrameReader::new(read, codec, share),
            service,
            phase: peer.shared.phase.subscribe(),
            writer,
            tasks: JoinSet::new(),
            notes: None,
            calls: slots(limits.calls),
            urgent: slots(limits.urgent_calls),
            held: Arc::default(),
            draining: None,
            first: true,
            heard: Instant::now(),
            bell: Bell(Arc::clone(&peer.shared)),
            peer,
        }
    }

    pub(crate) async fn run(mut self) -> Ending {
        loop {
            match self.turn().await {
                Next::Read => {}
                Next::Drain(until, ending) => self.drain(until, ending),
                Next::End(ending) => return self.end(ending).await,
            }
        }
    }

    /// All that is here already, then one wait.
    async fn turn(&mut self) -> Next {
        match self.reader.take() {
            Ok(Some(item)) => return self.receive(item).await,
            Ok(None) => {}
            Err(error) => return Next::End(Ending::Read(error)),
        }
        let limits = &self.peer.shared.limits;
        let at_end = self.reader.at_end();
        if at_end && self.draining.is_none() {
            return Next::Drain(Instant::now() + limits.after_eof, Ending::Gone);
        }
        if self.tasks.is_empty()
            && let Some((_, ending)) = self.draining.take()
        {
            return Next::End(ending);
        }
        let (deadline, drain) = (self.deadline(), limits.drain);
        tokio::select! {
            read = self.reader.fill(), if !at_end => match read {
                Ok(()) => Next::Read,
                Err(error) => Next::End(Ending::Read(error)),
            },
            Some(_) = self.tasks.join_next() => {
                self.heard = Instant::now();
                Next::Read
            }
            written = self.writer.join_next() => Next::End(Ending::Write(write_error(written))),
            phase = no_longer_open(&mut self.phase), if self.draining.is_none() => match phase {
                Phase::Open | Phase::Closing => Next::Drain(Instant::now() + drain, Ending::Closed),
                Phase::Over => Next::End(Ending::Write(write_error(self.writer.join_next().await))),
            },
            () = until(deadline.map(|(instant, _)| instant)) => self.late(deadline).await,
        }
    }

    fn drain(&mut self, until: Instant, ending: Ending) {
        // What takes notifications ends after those that wait.
        self.notes = None;
        if self.draining.is_none() {
            self.draining = Some((until, ending));
        }
    }

    /// The next deadline, and what it means; none where it ends the draining.
    fn deadline(&self) -> Option<(Instant, Option<Late>)> {
        let limits = &self.peer.shared.limits;
        if let Some((until, _)) = &self.draining {
            return Some((*until, None));
        }
        let first =
            limits.first_frame.filter(|_| self.first).map(|time| (self.heard + time, Late::FirstFrame));
        let whole = self.reader.incomplete().map(|since| (since + limits.whole_frame, Late::WholeFrame));
        let idle = limits.idle.map(|time| (self.heard + time, Late::Idle));
        let deadlines = [first, whole, idle].into_iter().flatten();
        deadlines.min_by_key(|(instant, _)| *instant).map(|(instant, late)| (instant, Some(late)))
    }

    fn is_idle(&self) -> bool {
        let shared = &self.peer.shared;
        let free = shared.subscriptions.available_permits() >= shared.limits.subscriptions;
        let taker = usize::from(self.notes.is_some());
        free && self.reader.incomplete().is_none() && !shared.is_waiting() && self.tasks.len() <= taker
    }

    async fn late(&mut self, deadline: Option<(Instant, Option<Late>)>) -> Next {
        if let Some((_, ending)) = self.draining.take() {
            return Next::End(ending);
        }
        let Some((_, Some(late))) = deadline else { return Next::Read };
        let over = match late {
            // Whoever asked first waits for an answer, and how long is its own business.
            Late::FirstFrame => !self.peer.shared.is_waiting(),
            Late::WholeFrame => true,
            Late::Idle => self.is_idle(),
        };
        if !over {
            self.heard = Instant::now();
            return Next::Read;
        }
        let error = late.error(&self.peer.shared.limits);
        match timeout(LAST_BYTES, refuse(&self.peer.shared, None, error)).await {
            // Told or not, it ends.
            Ok(Ok(()) | Err(Over)) | Err(_) => Next::End(Ending::Late(late)),
        }
    }

    async fn receive(&mut self, item: Item) -> Next {
        self.heard = Instant::now();
        self.first = false;
        let done = match item {
            Ok(frame) => self.message(&frame).await,
            Err(error) => {
                let told = Error::new(error.code(), error.to_string());
                let answered = refuse(&self.peer.shared, None, told).await;
                if error.ends() {
                    return Next::End(Ending::Broken(error));
                }
                answered
            }
        };
        match done {
            Ok(()) => Next::Read,
            // The writer knows why.
            Err(Over) => Next::End(Ending::Write(write_error(self.writer.join_next().await))),
        }
    }

    /// Where this waits, it is for the writer to make room: the other side is read only as fast as it reads.
    async fn message(&mut self, frame: &str) -> Result<(), Over> {
        match message::read(frame) {
            Ok(Message::Request(request)) => self.request(request, frame.len()).await,
            Ok(Message::Notification(notification)) => self.notification(notification, frame.len()).await,
            Ok(Message::Response(response)) => {
                self.peer.shared.answered(response);
                Ok(())
            }
            Err(invalid) => match invalid.from {
                Sender::Asks => refuse(&self.peer.shared, invalid.id.as_ref(), invalid.error).await,
                Sender::Answers => Ok(()),
            },
        }
    }

    async fn request(&mut self, request: Request, bytes: usize) -> Result<(), Over> {
        let Request { id, method, params } = request;
        let (slot, held) = match self.admit(&method, bytes) {
            Ok(admitted) => admitted,
            Err(error) => return refuse(&self.peer.shared, Some(&id), error).await,
        };
        let (service, peer) = (Arc::clone(&self.service), self.peer.clone());
        self.tasks.spawn(async move {
            let context = Context::new(peer.clone(), Some(id.clone()));
            let kept = context.kept();
            let outcome = service.call(&method, params, context).await;
            drop(held);
            match answer_keeping(&peer.shared, Some(&id), outcome, kept).await {
                // An error: the connection is over.
                Ok(()) | Err(Over) => drop(slot),
            }
        });
        Ok(())
    }

    fn admit(&self, method: &str, bytes: usize) -> Result<(OwnedSemaphorePermit, Held), Error> {
        if self.draining.is_some() {
            return Err(Error::new(CLOSING, "the connection is being closed"));
        }
        let urgent = bytes <= URGENT_BYTES && self.service.urgent(method);
        let mut slot = Arc::clone(&self.calls).try_acquire_owned().ok();
        if slot.is_none() && urgent {
            slot = Arc::clone(&self.urgent).try_acquire_owned().ok();
        }
        let before = self.held.load(Ordering::Relaxed);
        let fits = before == 0 || before.saturating_add(bytes) <= self.peer.shared.limits.held;
        match slot {
            Some(slot) if fits || urgent => Ok((slot, self.hold(bytes))),
            Some(_) => Err(Error::busy("the calls that run hold too much", RETRY_AFTER)),
            None => Err(Error::busy("too many calls run on this connection", RETRY_AFTER)),
        }
    }

    fn hold(&self, bytes: usize) -> Held {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, total: Arc::clone(&self.held) }
    }

    /// Backpressure: what nobody takes is not read.
    async fn notification(&mut self, notification: Notification, bytes: usize) -> Result<(), Over> {
        if self.draining.is_some() {
            return Ok(());
        }
        let held = self.hold(bytes);
        let notes = match &self.notes {
            Some(notes) => notes.clone(),
            None => {
                let notes = self.take_notifications();
                self.notes.insert(notes).clone()
            }
        };
        tokio::select! {
            // An error: what takes them panicked, and there is nobody to tell.
            _sent = notes.send((notification, held)) => Ok(()),
            _phase = no_longer_open(&mut self.phase) => Ok(()),
        }
    }

    fn take_notifications(&mut self) -> mpsc::Sender<(Notification, Held)> {
        let (service, peer) = (Arc::clone(&self.service), self.peer.clone());
        let (notes, mut queued) = mpsc::channel(self.peer.shared.limits.notifications.max(1));
        self.tasks.spawn(async move {
            while let Some((Notification { method, params }, held)) = queued.recv().await {
                service.notified(&method, params, Context::new(peer.clone(), None)).await;
                drop(held);
            }
        });
        notes
    }

    /// Cancels what still runs, writes what is queued, and says goodbye.
    async fn end(mut self, ending: Ending) -> Ending {
        self.notes = None;
        self.tasks.shutdown().await;
        self.peer.shared.out.last();
        let discard = async {
            if let Ending::Broken(_) | Ending::Late(_) = &ending {
                self.reader.discard(DISCARDED).await;
            }
        };
        let written = self.writer.join_next();
        // Both together: whoever is in the middle of writing reads only after that.
        match tokio::join!(timeout(LAST_BYTES, written), timeout(LAST_BYTES, discard)) {
            // Past the deadline the writer is dropped with the rest.
            (Ok(_) | Err(_), Ok(()) | Err(_)) => {}
        }
        drop(self.bell);
        ending
    }
}

/// By value: what `wait_for` gives is a lock.
async fn no_longer_open(phase: &mut watch::Receiver<Phase>) -> Phase {
    phase.wait_for(|phase| *phase != Phase::Open).await.map_or(Phase::Over, |phase| *phase)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn refuse(shared: &Shared, id: Option<&Id>, error: Error) -> Result<(), Over> {
    answer_keeping(shared, id, Err::<(), _>(error), Kept::default()).await
}

/// An answer that is too long for a frame becomes one that says so.
async fn answer_keeping<T: Serialize>(
    shared: &Shared,
    id: Option<&Id>,
    outcome: Result<T, Error>,
    kept: Kept,
) -> Result<(), Over> {
    let mut text = message::response(id, &outcome);
    drop(outcome);
    if text.len() > shared.limits.frame {
        let error = FrameError::TooLong { limit: shared.limits.frame };
        text = message::response(id, &Err::<(), _>(Error::new(INTERNAL, format!("the answer: {error}"))));
    }
    shared.out.send_keeping(Text::Own(text), kept).await
}

fn write_error(written: Option<Result<io::Result<()>, tokio::task::JoinError>>) -> io::Error {
    match written {
        Some(Ok(Err(error))) => error,
        Some(Ok(Ok(()))) | Some(Err(_)) | None => io::ErrorKind::BrokenPipe.into(),
    }
}
