//! How changes get in: one transaction at a time. Whoever comes while nobody writes writes by itself, which wakes nobody;
//! others queue for a thread that runs what waits in one transaction, commits once, and only then answers. A piece of
//! work that fails takes its own changes back and leaves the others alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::StoreError;

/// More waiting than this means that the disk can't keep up: better refused than late.
pub const QUEUE: usize = 1024;
/// How long a caller waits at most for others: two lock waits of ours, and a slow disk.
pub const WAIT: Duration = Duration::from_secs(20);
/// One commit's worth. Each one waits for the last, so not too many.
const BATCH: usize = 128;

#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// None only while it is dropped.
    queue: Option<SyncSender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Poisoned by work that panicked: then nobody knows what is in the transaction.
    connection: Mutex<Connection>,
    /// Queued, or with the thread. Nobody passes those: they would wait forever, and in a crowd one commit for many
    /// is cheaper.
    waiting: AtomicUsize,
}

impl Shared {
    /// Where nobody writes, and nobody waits to.
    fn free(&self) -> Result<Option<MutexGuard<'_, Connection>>, StoreError> {
        if self.waiting.load(Ordering::Acquire) > 0 {
            return Ok(None);
        }
        match self.connection.try_lock() {
            Ok(connection) => Ok(Some(connection)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(StoreError::WriterGone),
        }
    }
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared { connection: Mutex::new(connection), waiting: AtomicUsize::new(0) });
        let (queue, jobs) = sync_channel(QUEUE);
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("store-writer".into()).spawn(move || run(&own, &jobs));
        let thread = thread.map_err(|source| StoreError::Thread { source })?;
        Ok(Self { shared, queue: Some(queue), thread: Some(thread) })
    }

    pub(super) fn write<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        if let Some(mut connection) = self.shared.free()? {
            return alone(&mut connection, what, work);
        }
        let (reply, answer) = sync_channel(1);
        self.send(Box::new(Work { what, work: Some(work), done: None, reply: Some(reply) }))?;
        match answer.recv_timeout(WAIT) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => Err(StoreError::WriterSlow { waited: WAIT }),
            Err(RecvTimeoutError::Disconnected) => Err(StoreError::WriterGone),
        }
    }

    pub(super) fn post<F>(&self, what: &'static str, work: F)
    where
        F: FnOnce(&Connection) -> Result<(), StoreError> + Send + 'static,
    {
        // What is posted may be lost: that is what posting says.
        drop(self.send(Box::new(Work { what, work: Some(work), done: None, reply: None })));
    }

    fn send(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        let queue = self.queue.as_ref().ok_or(StoreError::WriterGone)?;
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        queue.try_send(job).map_err(|error| {
            self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
            match error {
                TrySendError::Full(_) => StoreError::Busy { limit: QUEUE },
                TrySendError::Disconnected(_) => StoreError::WriterGone,
            }
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread ends when it has done what is queued.
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Without the thread. With an error its changes are taken back.
fn alone<T>(
    connection: &mut Connection,
    what: &'static str,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let sqlite = |error| StoreError::sqlite(what, error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
    let done = work(&transaction)?;
    transaction.commit().map_err(sqlite)?;
    Ok(done)
}

/// Why something failed, if that was SQLite.
type Cause = Option<Arc<rusqlite::Error>>;

trait Job: Send {
    fn run(&mut self, connection: &Connection) -> Result<(), Cause>;
    /// `lost` is why the transaction that it ran in did not come to be.
    fn answer(self: Box<Self>, lost: Option<&Arc<rusqlite::Error>>);
}

struct Work<T, F> {
    what: &'static str,
    work: Option<F>,
    done: Option<Result<T, StoreError>>,
    reply: Option<SyncSender<Result<T, StoreError>>>,
}

impl<T, F> Job for Work<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<(), Cause> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let done = self.done.insert(work(connection));
        done.as_ref().map(drop).map_err(StoreError::cause)
    }

    fn answer(self: Box<Self>, lost: Option<&Arc<rusqlite::Error>>) {
        let Self { what, done, reply, .. } = *self;
        let answer = match (lost, done) {
            (None, Some(done)) => done,
            // Its own failure says more than the batch's.
            (Some(_), Some(Err(error))) => Err(error),
            (Some(lost), Some(Ok(_)) | None) => Err(StoreError::of_batch(what, lost)),
            (None, None) => Err(StoreError::WriterGone),
        };
        if let Some(reply) = reply {
            // The caller may have gone; there is room for its one answer otherwise.
            drop(reply.try_send(answer));
        }
    }
}

/// Ends when the queue is closed, or when nobody knows what is in the transaction: then every caller is told.
fn run(shared: &Shared, jobs: &Receiver<Box<dyn Job>>) {
    while let Ok(first) = jobs.recv() {
        let Ok(mut connection) = shared.connection.lock() else { return };
        let mut batch = vec![first];
        batch.extend(jobs.try_iter().take(BATCH - 1));
        let (count, lost) = (batch.len(), commit(&mut connection, &mut batch).err());
        drop(connection);
        for job in batch {
            job.answer(lost.as_ref());
        }
        shared.waiting.fetch_sub(count, Ordering::AcqRel);
    }
}

fn commit(connection: &mut Connection, batch: &mut [Box<dyn Job>]) -> Result<(), Arc<rusqlite::Error>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for job in batch {
        transaction.prepare_cached("SAVEPOINT job")?.execute([])?;
        if let Err(cause) = job.run(&transaction) {
            // A full disk, say, may have ended the whole transaction: then the batch has failed with it.
            match cause {
                Some(cause) if transaction.is_autocommit() => return Err(cause),
                Some(_) | None => transaction.prepare_cached("ROLLBACK TO job")?.execute([])?,
            };
        }
        transaction.prepare_cached("RELEASE job")?.execute([])?;
    }
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn writer() -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY) STRICT").unwrap();
        Writer::start(connection).unwrap()
    }

    fn insert(connection: &Connection, number: i64) -> Result<(), StoreError> {
        let inserted = connection.execute("INSERT INTO t VALUES (?1)", [number]);
        inserted.map(drop).map_err(|error| StoreError::sqlite("insert", error))
    }

    #[test]
    fn a_failure_takes_back_its_own_changes_only() {
        let writer = writer();
        let (go, wait) = sync_channel::<()>(0);
        writer.post("hold", move |_| {
            wait.recv().unwrap();
            Ok(())
        });
        // All of these share a transaction: they queue up behind the one that waits.
        writer.post("one", |connection| insert(connection, 1));
        writer.post("half", |connection| {
            insert(connection, 2)?;
            insert(connection, 1)
        });
        writer.post("three", |connection| insert(connection, 3));
        go.send(()).unwrap();
        let count = writer.write("count", |connection| {
            let sum =
                connection.query_row("SELECT group_concat(n) FROM t", [], |row| row.get::<_, String>(0));
            sum.map_err(|error| StoreError::sqlite("count", error))
        });
        assert_eq!(count.unwrap(), "1,3".to_owned());
    }

    #[test]
    fn a_full_queue_and_a_dead_writer_are_errors() {
        let held = writer();
        let (go, wait) = sync_channel::<()>(0);
        let (started, running) = sync_channel(0);
        held.post("hold", move |_| {
            started.send(()).unwrap();
            wait.recv().unwrap();
            Ok(())
        });
        running.recv().unwrap();
        for _ in 0..QUEUE {
            held.post("fill", |_| Ok(()));
        }
        assert!(matches!(held.write("late", |_| Ok(())), Err(StoreError::Busy { .. })));
        go.send(()).unwrap();
        drop(held);

        let die = |_: &Connection| -> Result<(), StoreError> { panic!("as the test wants") };
        let dying = writer();
        let died = catch_unwind(AssertUnwindSafe(|| dying.write("die", die)));
        assert!(died.is_err(), "it was the caller's own work, on the caller's own thread");
        assert!(matches!(dying.write("after", |_| Ok(())), Err(StoreError::WriterGone)));
        let dying = writer();
        dying.post("die", die);
        assert!(matches!(dying.write("after", |_| Ok(())), Err(StoreError::WriterGone)));
    }

    #[test]
    fn who_comes_alone_writes_by_itself_and_nobody_passes_those_that_wait() {
        let writer = writer();
        let own = thread::current().id();
        let here = || writer.write("look", move |_| Ok(thread::current().id() == own)).unwrap();
        assert!(here());
        let failed = writer.write("half", |connection| {
            insert(connection, 1)?;
            insert(connection, 1)
        });
        assert!(failed.is_err());
        writer.write("again", |connection| insert(connection, 1)).unwrap();
        let (go, wait) = sync_channel::<()>(0);
        writer.post("hold", move |_| {
            wait.recv().unwrap();
            Ok(())
        });
        thread::scope(|scope| {
            let behind = scope.spawn(here);
            while writer.shared.waiting.load(Ordering::Acquire) < 2 {
                thread::yield_now();
            }
            go.send(()).unwrap();
            assert!(!behind.join().unwrap(), "it came while another was at it");
        });
    }
}
