//! One execution while this daemon has it in hand, and the table of them. What has ended is on record only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use stockade_proto::Cancel;
use stockade_proto::link::Started;
use stockade_store::ExecutionId;
use stockade_store::output::Piece;
use tokio::sync::{Semaphore, watch};

use crate::ending::Ending;

#[derive(Debug, Clone)]
pub enum Phase {
    /// On record, and handed to the executor.
    Dispatched,
    Running(Arc<Started>),
    /// On record as such.
    Ended(Arc<Ending>),
}

/// For how long one has run, as far as its row has to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    Young,
    Old {
        started_ms: i64,
    },
    /// It says so, or it will with the end, or there is nothing to say yet.
    Known,
}

#[derive(Debug)]
pub struct Execution {
    pub id: ExecutionId,
    pub principal: String,
    pub dispatched: Instant,
    started: OnceLock<(i64, Instant)>,
    /// Its row says that it runs, or is being told.
    noted: AtomicBool,
    /// Whoever writes to its stdin now.
    pub(crate) stdin: Arc<Semaphore>,
    late: Mutex<Option<Cancel>>,
    output: OnceLock<Piece>,
    phase: watch::Sender<Phase>,
}

impl Execution {
    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// A view that changes with the phase.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Until it has ended and that is on record.
    pub async fn ended(&self) -> Arc<Ending> {
        let mut view = self.watch();
        loop {
            if let Phase::Ended(ending) = &*view.borrow_and_update() {
                return Arc::clone(ending);
            }
            match view.changed().await {
                // An error can't be: the sender is ours.
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// To be stopped as soon as the executor knows it: an order that comes before finds nothing to stop, and whoever
    /// gave it may be gone by then.
    pub(crate) fn to_stop(&self, by: Cancel) {
        *self.late.lock().unwrap_or_else(PoisonError::into_inner) = Some(by);
    }

    /// Whoever takes it gives the order, once.
    pub(crate) fn take_stop(&self) -> Option<Cancel> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// When its sandbox began to be built.
    pub fn started_ms(&self) -> Option<i64> {
        self.started.get().map(|(started_ms, _)| *started_ms)
    }

    /// The same, on a clock that nobody sets.
    pub fn started(&self) -> Option<Instant> {
        self.started.get().map(|(_, started)| *started)
    }

    /// Says `Old` once.
    pub(crate) fn age(&self, old: Duration) -> Age {
        match (self.phase(), self.started.get()) {
            (Phase::Running(_), Some((_, since))) if since.elapsed() < old => Age::Young,
            (Phase::Running(_), Some((started_ms, _))) if !self.noted.swap(true, Ordering::Relaxed) => {
                Age::Old { started_ms: *started_ms }
            }
            (Phase::Dispatched | Phase::Running(_) | Phase::Ended(_), _) => Age::Known,
        }
    }

    /// All that it wrote, once it has ended and if that is short: whoever waits for its end need not read it again.
    pub fn short_output(&self) -> Option<&Piece> {
        self.output.get()
    }

    /// It is over, and on record as such.
    pub(crate) fn end(&self, ending: Arc<Ending>, output: Option<Piece>) {
        if let Some(output) = output {
            self.output.get_or_init(|| output);
        }
        self.turn(Phase::Ended(ending));
    }

    pub(crate) fn turn(&self, phase: Phase) {
        if let Phase::Running(started) = &phase {
            // No earlier than it was dispatched, whatever the executor says.
            let ago = Duration::from_micros(started.ago_us).min(self.dispatched.elapsed());
            let since = Instant::now().checked_sub(ago).unwrap_or(self.dispatched);
            let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
            self.started.get_or_init(|| (now_ms().saturating_sub(ago_ms), since));
        }
        self.phase.send_modify(|now| {
            if !matches!(now, Phase::Ended(_)) {
                *now = phase;
            }
        });
    }
}

#[derive(Debug, Default)]
pub struct InHand {
    table: Mutex<HashMap<ExecutionId, Arc<Execution>>>,
}

impl InHand {
    fn table(&self) -> MutexGuard<'_, HashMap<ExecutionId, Arc<Execution>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: ExecutionId, principal: &str) -> Arc<Execution> {
        let phase = watch::Sender::new(Phase::Dispatched);
        let (principal, dispatched) = (principal.to_owned(), Instant::now());
        let execution = Arc::new(Execution {
            id,
            principal,
            dispatched,
            started: OnceLock::new(),
            noted: AtomicBool::new(false),
            stdin: Arc::new(Semaphore::new(1)),
            late: Mutex::default(),
            output: OnceLock::new(),
            phase,
        });
        self.table().insert(id, Arc::clone(&execution));
        execution
    }

    pub fn get(&self, id: ExecutionId) -> Option<Arc<Execution>> {
        self.table().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: ExecutionId) {
        self.table().remove(&id);
    }

    pub fn all(&self) -> Vec<Arc<Execution>> {
        self.table().values().cloned().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.table().is_empty()
    }
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_runs_for_a_while_is_old_once() {
        let table = InHand::default();
        let execution = table.insert(ExecutionId::new(), "ana");
        assert_eq!(execution.age(Duration::ZERO), Age::Known, "nobody knows that it runs");
        let started =
            Started { execution: String::new(), ago_us: 0, published: Vec::new(), warnings: Vec::new() };
        execution.turn(Phase::Running(Arc::new(started)));
        assert_eq!(execution.age(Duration::from_secs(3600)), Age::Young);
        let started_ms = execution.started_ms().unwrap();
        assert_eq!(execution.age(Duration::ZERO), Age::Old { started_ms });
        assert_eq!(execution.age(Duration::ZERO), Age::Known);
    }
}
