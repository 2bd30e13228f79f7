//! The deadlines of one execution.

use std::time::{Duration, Instant};

use stockade_proto::Plan;

use super::SETUP;

#[derive(Debug)]
pub(super) struct Clock {
    setup: Instant,
    wall: Option<Instant>,
    /// When the tree could have used up its CPU seconds at the earliest.
    cpu_check: Option<Instant>,
    kill: Option<Instant>,
    waited_for_reader: u32,
}

/// How many cores could be burning at once: the tree's share, and the same again for those who work for it. Without
/// a limit all of them.
fn cores(plan: &Plan) -> f64 {
    match plan.limits.cpu_millicores {
        Some(millicores) => f64::from(u32::try_from(millicores).unwrap_or(u32::MAX)) / 500.0,
        None => std::thread::available_parallelism()
            .map_or(1.0, |count| f64::from(u32::try_from(count.get()).unwrap_or(u32::MAX))),
    }
}

/// When this much CPU time could be used up at the earliest.
fn soonest(plan: &Plan, left: Duration) -> Duration {
    let seconds = left.saturating_sub(stockade_charge::BURST).as_secs_f64() / cores(plan).max(0.001);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).max(FINEST_CPU_CHECK)
}

/// A tree at its limit is noticed within this time.
const FINEST_CPU_CHECK: Duration = Duration::from_millis(50);

impl Clock {
    pub(super) fn new(plan: &Plan, begun: Instant) -> Self {
        let cpu = plan.limits.cpu_seconds.map(Duration::from_secs);
        Self {
            setup: begun + SETUP,
            wall: plan.limits.wall_ms.and_then(|wall| begun.checked_add(Duration::from_millis(wall))),
            cpu_check: cpu.and_then(|limit| begun.checked_add(soonest(plan, limit))),
            kill: None,
            waited_for_reader: 0,
        }
    }

    /// How long the loop may sleep.
    pub(super) fn next(&self, others: &[Option<Instant>]) -> Option<Duration> {
        let own = if self.kill.is_some() {
            [self.kill, None, None]
        } else {
            [self.wall, self.cpu_check, Some(self.setup)]
        };
        let first = own.iter().chain(others).flatten().min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    pub(super) fn begin_grace(&mut self, plan: &Plan) {
        if self.kill.is_none() {
            self.kill = Instant::now().checked_add(Duration::from_millis(plan.limits.grace_ms));
        }
    }

    pub(super) fn kill_is_due(&self, now: Instant) -> bool {
        self.kill.is_some_and(|at| at <= now)
    }

    /// The tree was killed: nothing is due any more but its end.
    pub(super) fn killed(&mut self, again: Duration) {
        self.kill = Some(Instant::now() + again);
    }

    /// A reader that took nothing for this many drain periods (and the wall clock, if there is one, is over).
    pub(super) fn reader_gave_up(&mut self, plan: &Plan) -> bool {
        const PATIENCE: u32 = 120;
        self.waited_for_reader += 1;
        self.waited_for_reader >= PATIENCE
            || (plan.limits.wall_ms.is_some() && self.wall_is_over(Instant::now()))
    }

    pub(super) fn wall_is_over(&self, now: Instant) -> bool {
        self.wall.is_some_and(|at| at <= now)
    }

    pub(super) fn setup_is_over(&self, now: Instant) -> bool {
        self.setup <= now
    }

    /// The setup deadline has served its purpose.
    pub(super) fn started(&mut self) {
        self.setup += Duration::from_secs(u64::from(u32::MAX));
    }

    pub(super) fn cpu_check_is_due(&self, now: Instant) -> bool {
        self.cpu_check.is_some_and(|at| at <= now)
    }

    /// Compares the kernel's count with the limit, and sets the next check to the earliest moment
    /// at which the rest could be used up.
    pub(super) fn cpu_is_over(&mut self, plan: &Plan, used: Duration) -> bool {
        let Some(limit) = plan.limits.cpu_seconds.map(Duration::from_secs) else {
            return false;
        };
        let left = limit.saturating_sub(used);
        self.cpu_check = Instant::now().checked_add(soonest(plan, left));
        left.is_zero()
    }
}
