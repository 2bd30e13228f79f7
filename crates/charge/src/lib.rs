//! What is used for a command outside of its cgroup: the CPU time of threads that serve it. Each thread measures itself, so
//! that a call that blocks costs nothing, and all of them share one account. Where the command has a share of the
//! CPU, the account has the same once more: what was used beyond it is waited for before more is done.
//!
//! A long piece of work is known only when it is done, so the bound is one over time, and not of a moment. Of many
//! threads that wait, one goes at a time, and leaves as much as its last piece took for the next to wait for.

mod bucket;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

pub use bucket::BURST;
use bucket::{Bucket, nanos};

/// The longest that a thread which waits does not look up.
const STEP: Duration = Duration::from_millis(50);
/// The shortest wait: many who wake for every piece would have a price of their own.
const NAP: Duration = Duration::from_millis(2);
/// What one thread may hold booked. More is seldom used at once.
const PIECE_MOST: u64 = 20_000_000;

thread_local! {
    /// A thread works for one account, all its life.
    static METER: Meter = const { Meter { read: Cell::new(0), booked: Cell::new(0) } };
}

/// Of one thread, in nanoseconds.
struct Meter {
    /// Its clock when it was charged last.
    read: Cell<u64>,
    /// Of what it may use next, spent already.
    booked: Cell<u64>,
}

/// The calling thread's own time.
fn used() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// The account of one execution.
#[derive(Debug)]
pub struct Charge {
    begun: Instant,
    /// In nanoseconds.
    spent: AtomicU64,
    /// None where the command has no share.
    bucket: Option<Bucket>,
    closed: Mutex<bool>,
    closing: Condvar,
}

impl Charge {
    /// A share in thousandths of a core; none is no bound, and is counted all the same.
    pub fn new(millicores: Option<u64>) -> Self {
        Self {
            begun: Instant::now(),
            spent: AtomicU64::new(0),
            bucket: millicores.map(Bucket::new),
            closed: Mutex::new(false),
            closing: Condvar::new(),
        }
    }

    /// All that was charged.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    fn now(&self, bucket: &Bucket) -> u64 {
        nanos(self.begun.elapsed()).saturating_add(bucket.rest())
    }

    fn spend(&self, amount: u64, booked: u64) {
        self.spent.fetch_add(amount, Ordering::Relaxed);
        if let Some(bucket) = &self.bucket {
            bucket.spend(amount, booked, self.now(bucket));
        }
    }

    /// Charges what someone else used: a child.
    pub fn add(&self, amount: Duration) {
        self.spend(nanos(amount), 0);
    }

    /// Charges what the calling thread has used since it was charged last, the first time since it began. Says how much.
    pub fn settle(&self) -> Duration {
        METER.with(|meter| {
            let used = used();
            let amount = used.saturating_sub(meter.read.replace(used));
            self.spend(amount, meter.booked.replace(0));
            Duration::from_nanos(amount)
        })
    }

    /// How long the command's share takes to earn that much.
    pub fn earning(&self, amount: Duration) -> Duration {
        let earning = self.bucket.as_ref().map_or(0, |bucket| bucket.earning(nanos(amount)));
        Duration::from_nanos(earning)
    }

    /// Settles. Whether more was used than there was.
    pub fn owes(&self) -> bool {
        self.settle();
        self.bucket.as_ref().is_some_and(|bucket| bucket.book(0, self.now(bucket)).is_err())
    }

    /// Settles, and waits while something is owed, until the account is closed or the caller has given up. Not to be
    /// called with a lock held.
    pub fn pass(&self, has_given_up: impl Fn() -> bool) {
        let last = nanos(self.settle()).min(PIECE_MOST);
        let Some(bucket) = &self.bucket else { return };
        let mut piece = 0;
        while let Err(left) = bucket.book(piece, self.now(bucket)) {
            piece = last;
            if has_given_up() || self.is_closed_after(Duration::from_nanos(left).clamp(NAP, STEP)) {
                return;
            }
        }
        METER.with(|meter| meter.booked.set(piece));
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed_after(&self, time: Duration) -> bool {
        let waited = self.closing.wait_timeout_while(self.closed(), time, |closed| !*closed);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Nobody waits any more: the command is gone, and what is left to do for it is little. It is counted.
    pub fn close(&self) {
        *self.closed() = true;
        self.closing.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Uses that much of the calling thread's time.
    fn burn(time: Duration) {
        let end = used() + nanos(time);
        while used() < end {}
    }

    #[test]
    fn threads_are_charged_for_what_they_use_and_not_for_waiting() {
        let charge = Arc::new(Charge::new(None));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let charge = Arc::clone(&charge);
                thread::spawn(move || {
                    burn(Duration::from_millis(20));
                    thread::sleep(Duration::from_millis(100));
                    charge.settle()
                })
            })
            .collect();
        let told: Duration = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert_eq!(charge.spent(), told);
        assert!((Duration::from_millis(60)..Duration::from_millis(200)).contains(&told), "{told:?}");
        charge.add(Duration::from_secs(1));
        assert_eq!(charge.spent(), told + Duration::from_secs(1));
        assert!(!charge.owes(), "without a share");
        assert_eq!(charge.earning(Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn many_threads_have_one_share() {
        let charge = Arc::new(Charge::new(Some(100)));
        let end = Instant::now() + Duration::from_millis(1500);
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let charge = Arc::clone(&charge);
                thread::spawn(move || {
                    while Instant::now() < end {
                        charge.pass(|| Instant::now() >= end);
                        burn(Duration::from_millis(2));
                    }
                    charge.settle();
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        // At the end everyone goes once more. Without a bound it would be as much as there are cores.
        let most = charge.begun.elapsed() / 10 + BURST + 8 * Duration::from_millis(5);
        assert!(charge.spent() <= most, "{:?} of {most:?}", charge.spent());
        assert!(charge.spent() >= BURST, "{:?}: nobody starves", charge.spent());
    }

    #[test]
    fn a_closed_account_is_waited_for_by_nobody() {
        let charge = Arc::new(Charge::new(Some(1)));
        charge.add(Duration::from_secs(3600));
        assert!(charge.owes());
        let waiting = Arc::clone(&charge);
        let waits = thread::spawn(move || waiting.pass(|| false));
        charge.pass(|| true);
        charge.close();
        waits.join().unwrap();
        charge.pass(|| false);
        assert!(charge.spent() >= Duration::from_secs(3600));
    }
}
