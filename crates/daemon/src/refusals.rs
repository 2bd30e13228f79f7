//! Which refusals go into the audit log. To be refused costs a caller nothing and the log a line that is never removed;
//! so each caller has a few at once and then one in a while, which says how many were left out.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of one caller at once.
const BURST: u32 = 16;
/// Until there is one more. A caller that never stops is about 3 MiB a day.
const EVERY: Duration = Duration::from_secs(10);
/// Callers that are told apart; those who come when there are so many share one measure.
const CALLERS: usize = 256;
const OTHERS: &str = "";

#[derive(Debug, Default)]
pub struct Refusals {
    of: Mutex<HashMap<String, Measure>>,
}

#[derive(Debug)]
struct Measure {
    left: u32,
    /// Up to when `left` is counted.
    at: Instant,
    left_out: u64,
}

impl Measure {
    fn new(now: Instant) -> Self {
        Self { left: BURST, at: now, left_out: 0 }
    }

    fn refill(&mut self, now: Instant) {
        while self.left < BURST && now.saturating_duration_since(self.at) >= EVERY {
            self.left += 1;
            self.at += EVERY;
        }
        if self.left == BURST {
            self.at = now;
        }
    }
}

impl Refusals {
    /// Whether this one is written down, and how many before it were not.
    #[must_use]
    pub fn count(&self, principal: &str, now: Instant) -> Option<u64> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if !of.contains_key(principal) && of.len() >= CALLERS {
            // Who was refused long ago begins anew.
            of.values_mut().for_each(|measure| measure.refill(now));
            of.retain(|_, measure| measure.left < BURST || measure.left_out > 0);
        }
        let known = of.contains_key(principal) || of.len() < CALLERS;
        let key = if known { principal } else { OTHERS };
        let measure = of.entry(key.to_owned()).or_insert_with(|| Measure::new(now));
        measure.refill(now);
        if measure.left == 0 {
            measure.left_out = measure.left_out.saturating_add(1);
            return None;
        }
        measure.left -= 1;
        Some(std::mem::take(&mut measure.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_hides_nobody() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let written = (0..10_000).filter(|_| refusals.count("flood", now).is_some()).count();
        assert_eq!(written, 16);
        assert_eq!(refusals.count("quiet", now), Some(0));
        let later = now + EVERY;
        assert_eq!(refusals.count("flood", later), Some(9984), "the next one tells of those");
        assert_eq!(refusals.count("flood", later), None);
        let long = later + EVERY * 1000;
        assert_eq!((0..100).filter(|_| refusals.count("flood", long).is_some()).count(), 16);
    }

    #[test]
    fn more_callers_than_are_told_apart_share_and_the_past_is_forgotten() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let all =
            |now| (0..2 * CALLERS).filter(|at| refusals.count(&format!("c{at}"), now).is_some()).count();
        assert_eq!(all(now), CALLERS + 16);
        assert!(refusals.of.lock().unwrap().len() <= CALLERS + 1);
        assert_eq!(refusals.count("late", now), None);
        assert_eq!(refusals.count("late", now + EVERY * 20), Some(0));
        assert!(refusals.of.lock().unwrap().len() <= 3);
    }
}
