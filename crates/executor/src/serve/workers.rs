//! The threads that executions run on. Init dies with the thread that started it, so a sandbox that waits for its
//! plan waits on a thread of its own: when an execution has been answered, its thread parks another init on the same
//! ground, and the next request of that profile finds it there. A spare holds nothing of an execution, is used once,
//! and is let go when it waited too long.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stockade_executor::Kept;

use super::carry::{Carriage, Tell, carry};
use super::executions::Place;

/// Spares at once: what a burst of requests finds ready. Each is a process, its namespaces and its groups.
const MOST: usize = 8;
/// What is on the host may change: a spare sees mounts as they were when it was parked.
const AGE: Duration = Duration::from_secs(30);

/// One execution, for whichever thread has room.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) carriage: Carriage,
    pub(super) tell: Tell,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) struct Workers {
    kept: Kept,
    state: Mutex<State>,
    /// A thread has ended.
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Idle>,
    /// Those about to be.
    parking: usize,
    threads: usize,
    /// Numbers the threads.
    started: u64,
    closed: bool,
}

/// A thread with a spare, waiting for a request.
#[derive(Debug)]
struct Idle {
    thread: u64,
    profile: String,
    give: SyncSender<Job>,
}

impl Workers {
    pub(super) fn new() -> Self {
        Self { kept: Kept::default(), state: Mutex::default(), left: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On a thread that waits with a spare of that profile, or on a new one.
    pub(super) fn run(self: &Arc<Self>, job: Job) -> io::Result<()> {
        let Some(job) = self.hand_over(job) else { return Ok(()) };
        let number = {
            let mut state = self.state();
            state.threads += 1;
            state.started += 1;
            state.started
        };
        let workers = Arc::clone(self);
        let thread = std::thread::Builder::new().name("execution".to_owned());
        let begun = thread.spawn(move || {
            workers.work(number, job);
            workers.leave();
        });
        begun.map(drop).inspect_err(|_| self.leave())
    }

    /// The newest first: its mounts are. Gives the job back if nobody takes it.
    fn hand_over(&self, job: Job) -> Option<Job> {
        let mut state = self.state();
        let at = state.idle.iter().rposition(|idle| idle.profile == job.carriage.request.profile);
        let Some(at) = at else { return Some(job) };
        let idle = state.idle.remove(at);
        drop(state);
        // It is off the list, so it waits for this, and there is room.
        idle.give.try_send(job).err().map(|refused| match refused {
            std::sync::mpsc::TrySendError::Full(job) | std::sync::mpsc::TrySendError::Disconnected(job) => {
                job
            }
        })
    }

    fn work(&self, number: u64, first: Job) {
        let (mut job, mut spare) = (Some(first), None);
        while let Some(next) = job.take() {
            let profile = next.carriage.request.profile.clone();
            let recipe = carry(next, spare.take(), &self.kept);
            let Some(recipe) = recipe.filter(|_| self.begin_parking()) else { return };
            // A host that has no room for a spare says so to the next request.
            let parked = recipe.park(&self.kept);
            let Some(jobs) = self.end_parking(parked.is_ok().then_some((number, profile))) else { return };
            let Ok(parked) = parked else { return };
            job = self.next(number, &jobs);
            spare = Some(parked).filter(|_| job.is_some());
        }
    }

    /// Not where enough wait already, or nobody will come.
    fn begin_parking(&self) -> bool {
        let mut state = self.state();
        let room = !state.closed && state.idle.len() + state.parking < MOST;
        state.parking += usize::from(room);
        room
    }

    /// Puts the thread among those who wait, if it has a spare.
    fn end_parking(&self, waits: Option<(u64, String)>) -> Option<Receiver<Job>> {
        let mut state = self.state();
        state.parking -= 1;
        let (thread, profile) = waits.filter(|_| !state.closed)?;
        let (give, jobs) = sync_channel(1);
        state.idle.push(Idle { thread, profile, give });
        Some(jobs)
    }

    fn next(&self, number: u64, jobs: &Receiver<Job>) -> Option<Job> {
        match jobs.recv_timeout(AGE) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut state = self.state();
        match state.idle.iter().position(|idle| idle.thread == number) {
            Some(at) => {
                state.idle.remove(at);
                None
            }
            // Chosen just now: the job is on its way.
            None => {
                drop(state);
                jobs.recv().ok()
            }
        }
    }

    fn leave(&self) {
        self.state().threads -= 1;
        self.left.notify_all();
    }

    /// Lets all spares go, and waits until they are gone with their groups. Executions have ended before.
    pub(super) fn close(&self, within: Duration) {
        let mut state = self.state();
        state.closed = true;
        state.idle.clear();
        match self.left.wait_timeout_while(state, within, |state| state.threads > 0) {
            // What is left dies with this process.
            Ok(_) | Err(_) => {}
        }
        self.kept.close(within);
    }
}
