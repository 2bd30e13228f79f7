//! Placeholders that a service leaves standing for a moment after an execution: the next one in the same workspace stands on
//! them again, and to make and to remove a directory takes longer than most commands. Each is held by its lock until its time is over.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::placeholders::Held;

/// After the last execution: as long as the next one may be thought about.
const LINGER: Duration = Duration::from_secs(10);
/// Beyond these they are taken away at once.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Lingering {
    state: Mutex<State>,
    /// It is time to end.
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of their times.
    standing: Vec<Standing>,
    /// A thread takes them away.
    attended: bool,
    closed: bool,
}

#[derive(Debug)]
struct Standing {
    until: Instant,
    held: Held,
}

impl Lingering {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it back where it can't stay.
    pub(crate) fn leave(self: &Arc<Self>, held: Held) -> Result<(), Held> {
        let mut state = self.state();
        if state.closed || state.standing.len() >= MOST {
            return Err(held);
        }
        if !state.attended {
            let own = Arc::clone(self);
            let thread = std::thread::Builder::new().name("placeholders".to_owned());
            if thread.spawn(move || own.attend()).is_err() {
                return Err(held);
            }
            state.attended = true;
        }
        // Whoever left it before holds it no longer than this.
        state.standing.retain(|standing| !standing.held.is_same(&held));
        state.standing.push(Standing { until: Instant::now() + LINGER, held });
        Ok(())
    }

    /// Until nothing stands any more.
    fn attend(&self) {
        let mut state = self.state();
        while let Some(first) = state.standing.first() {
            let left = first.until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed {
                let due = state.standing.remove(0);
                drop(state);
                match due.held.end() {
                    // One that stays is known by its mark, and taken away after the next execution there.
                    Ok(()) | Err(_) => {}
                }
                state = self.state();
            } else {
                state = match self.over.wait_timeout(state, left) {
                    Ok((state, _)) => state,
                    Err(poisoned) => poisoned.into_inner().0,
                };
            }
        }
        state.attended = false;
        drop(state);
        self.over.notify_all();
    }

    /// Takes all of them away, and waits for that.
    pub(crate) fn close(&self, within: Duration) {
        let mut state = self.state();
        state.closed = true;
        self.over.notify_all();
        match self.over.wait_timeout_while(state, within, |state| state.attended) {
            // What is left is known by its mark.
            Ok(_) | Err(_) => {}
        }
    }
}
