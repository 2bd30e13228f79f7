//! Time that is earned at a steady rate and spent in pieces. It is one number, the moment at which all that was
//! spent will have been earned: past is credit, future is debt. Moments are nanoseconds of the caller's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What may be spent at once after a rest.
pub const BURST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Bucket {
    /// Earned in a second, in milliseconds; never zero.
    rate: u64,
    due: AtomicU64,
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Bucket {
    /// Begins with a whole burst: the caller's clock begins at [`Self::rest`].
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate: rate.max(1), due: AtomicU64::new(0) }
    }

    /// How long it takes to earn that much.
    pub(crate) fn earning(&self, amount: u64) -> u64 {
        amount.saturating_mul(1000) / self.rate
    }

    /// After a rest of that length all that can be saved is saved.
    pub(crate) fn rest(&self) -> u64 {
        self.earning(nanos(BURST))
    }

    /// Spends, whatever there is: what was spent can't be taken back. What was booked before comes in its place.
    pub(crate) fn spend(&self, amount: u64, booked: u64, now: u64) {
        let least = now.saturating_sub(self.rest());
        let next = |due: u64| {
            due.saturating_sub(self.earning(booked)).max(least).saturating_add(self.earning(amount))
        };
        match self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due| Some(next(due))) {
            // Always some.
            Ok(_) | Err(_) => {}
        }
    }

    /// Books a piece if nothing is owed; otherwise how long that will be so. Whoever comes next owes the piece too, so
    /// that of many who wait one goes at a time.
    pub(crate) fn book(&self, piece: u64, now: u64) -> Result<(), u64> {
        let least = now.saturating_sub(self.rest());
        let next = |due: u64| (due <= now).then(|| due.max(least).saturating_add(self.earning(piece)));
        match self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(due) => Err(due.saturating_sub(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A fifth of a core, after a rest, and its moment.
    fn fifth() -> (Bucket, u64) {
        let bucket = Bucket::new(200);
        let now = bucket.rest();
        (bucket, now)
    }

    #[test]
    fn a_burst_is_free_and_the_rest_is_waited_for() {
        let (bucket, now) = fifth();
        assert_eq!(now, 500 * MS);
        bucket.spend(100 * MS, 0, now);
        assert_eq!(bucket.book(0, now), Ok(()), "the burst is spent, and nothing owed");
        bucket.spend(10 * MS, 0, now);
        assert_eq!(bucket.book(0, now), Err(50 * MS), "five times as long");
        assert_eq!(bucket.book(0, now + 49 * MS), Err(MS));
        assert_eq!(bucket.book(0, now + 50 * MS), Ok(()));
    }

    #[test]
    fn what_is_saved_is_bounded() {
        let (bucket, begun) = fifth();
        let now = begun + 3_600_000 * MS;
        bucket.spend(110 * MS, 0, now);
        assert_eq!(bucket.book(0, now), Err(50 * MS), "an hour earns no more than the burst");
    }

    #[test]
    fn those_who_wait_go_one_at_a_time() {
        let (bucket, begun) = fifth();
        bucket.spend(110 * MS, 0, begun);
        let now = begun + 50 * MS;
        assert_eq!(bucket.book(2 * MS, now), Ok(()));
        assert_eq!(bucket.book(2 * MS, now), Err(10 * MS), "the next waits for the piece of the first");
        bucket.spend(0, 2 * MS, now);
        assert_eq!(bucket.book(2 * MS, now), Ok(()), "the first used nothing, and the piece is given back");
        bucket.spend(3 * MS, 2 * MS, now);
        assert_eq!(bucket.book(0, now), Err(15 * MS), "it used more");
    }

    #[test]
    fn a_piece_that_is_given_back_late_is_not_saved() {
        let (bucket, begun) = fifth();
        bucket.spend(100 * MS, 0, begun);
        assert_eq!(bucket.book(20 * MS, begun), Ok(()));
        let now = begun + 60_000 * MS;
        bucket.spend(110 * MS, 20 * MS, now);
        assert_eq!(bucket.book(0, now), Err(50 * MS));
    }

    /// However many spend how much at once, over time it is what was earned.
    #[test]
    fn the_average_holds() {
        let (bucket, begun) = fifth();
        let (mut now, mut spent) = (begun, 0);
        for turn in 0..10_000_u64 {
            let (piece, actual) = (turn % 7 * MS, turn % 23 * MS);
            match bucket.book(piece, now) {
                Ok(()) => {
                    bucket.spend(actual, piece, now);
                    spent += actual;
                }
                Err(left) => now += left,
            }
        }
        let earned = (now - begun) / 5 + 100 * MS;
        assert!(spent <= earned + 23 * MS, "{spent} of {earned}");
        assert!(spent + 100 * MS >= earned, "{spent} of {earned}: nothing is lost either");
    }

    #[test]
    fn numbers_without_measure_end_nothing() {
        for rate in [0, 1, 1000, u64::MAX] {
            let bucket = Bucket::new(rate);
            bucket.spend(u64::MAX, 0, bucket.rest());
            bucket.spend(0, u64::MAX, 0);
            assert!(bucket.book(u64::MAX, u64::MAX).is_ok(), "{rate}");
        }
    }
}
