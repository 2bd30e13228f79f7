//! The threads that executions run on. Init dies with the thread that started it, so a sandbox that waits for its
//! plan waits on a thread of its own: while a command runs, another thread parks an init on the same ground, and the next
//! request of that profile finds it there, or being made. A spare holds nothing of an execution, is used once, and is let go when it
//! waited too long.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stockade_executor::{Kept, Recipe};
use stockade_proto::{Bytes, Request};

use super::carry::{Carriage, Tell, carry};
use super::executions::Place;

/// Spares at once: what a burst of requests finds ready. Each is a process, its namespaces and its groups.
const MOST: usize = 8;
/// Threads that wait with empty hands.
const MOST_RESTING: usize = 32;
/// What is on the host may change: a spare sees mounts as they were when it was parked.
const AGE: Duration = Duration::from_secs(30);

/// One execution, for whichever thread has room.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) carriage: Carriage,
    pub(super) tell: Tell,
    pub(super) place: Place,
}

/// What a thread can be asked to do.
#[derive(Debug)]
enum Task {
    Run(Box<Job>),
    /// Make a spare for requests like that, and wait with it.
    Park(Like, Box<Recipe>),
}

/// Whom a spare is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Like {
    profile: String,
    workspace: Bytes,
}

impl Like {
    fn of(request: &Request) -> Self {
        Self { profile: request.profile.clone(), workspace: request.workspace.clone() }
    }
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
    waiting: Vec<Waiting>,
    /// Those that carry an execution.
    running: usize,
    /// Spares that are asked for, and not yet on the list.
    parking: usize,
    threads: usize,
    /// Numbers the threads.
    started: u64,
    closed: bool,
}

/// A thread that has nothing else to do.
#[derive(Debug)]
struct Waiting {
    thread: u64,
    /// Its spare, if it has one.
    spare: Option<Like>,
    /// Its spare is still being made: whoever is content with it waits for less than for one of its own.
    is_promised: bool,
    give: SyncSender<Task>,
}

impl State {
    fn spares(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.spare.is_some()).count()
    }

    /// For a request like that: the newest, since its mounts are, and its memory is in the caches; of those that are only
    /// promised the oldest; or one that is for another workspace, and may do.
    fn take_spare(&mut self, like: &Like) -> Option<Waiting> {
        let waiting = &self.waiting;
        let is_for = |waiting: &Waiting| waiting.spare.as_ref() == Some(like);
        let ready = || waiting.iter().rposition(|waiting| !waiting.is_promised && is_for(waiting));
        let promised = || waiting.iter().position(is_for);
        let other = || {
            let same = |spare: &Like| spare.profile == like.profile;
            waiting
                .iter()
                .rposition(|waiting| !waiting.is_promised && waiting.spare.as_ref().is_some_and(same))
        };
        let at = ready().or_else(promised).or_else(other)?;
        Some(self.waiting.remove(at))
    }

    fn enter(&mut self, thread: u64, spare: Option<Like>) -> Receiver<Task> {
        let (give, tasks) = sync_channel(1);
        self.waiting.push(Waiting { thread, is_promised: spare.is_some(), spare, give });
        tasks
    }

    fn take_resting(&mut self) -> Option<Waiting> {
        let at = self.waiting.iter().rposition(|waiting| waiting.spare.is_none())?;
        Some(self.waiting.remove(at))
    }
}

impl Workers {
    pub(super) fn new() -> Self {
        Self { kept: Kept::default(), state: Mutex::default(), left: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On a thread that waits with a spare of that profile, or on any other.
    pub(super) fn run(self: &Arc<Self>, job: Job) -> io::Result<()> {
        let waiting = {
            let mut state = self.state();
            state.running += 1;
            let spare = state.take_spare(&Like::of(&job.carriage.request));
            spare.or_else(|| state.take_resting())
        };
        let given = self.give(waiting, Task::Run(Box::new(job)));
        given.inspect_err(|_| self.state().running -= 1)
    }

    /// A spare like the sandbox that a command runs in by now: one for each that runs, up to a bound. Whoever ran beside it is
    /// likely to come again beside it.
    fn park_another(self: &Arc<Self>, like: &Like, recipe: Recipe) {
        let resting = {
            let mut state = self.state();
            if state.closed || state.spares() + state.parking >= state.running.min(MOST) {
                return;
            }
            state.parking += 1;
            state.take_resting()
        };
        if self.give(resting, Task::Park(like.clone(), Box::new(recipe))).is_err() {
            // The next request makes its own.
            self.state().parking -= 1;
        }
    }

    /// To a thread that is off the list, and so waits for this; without one, to a new one.
    fn give(self: &Arc<Self>, waiting: Option<Waiting>, task: Task) -> io::Result<()> {
        let refused = match waiting {
            Some(waiting) => waiting.give.try_send(task).err(),
            None => Some(TrySendError::Disconnected(task)),
        };
        let Some(TrySendError::Full(task) | TrySendError::Disconnected(task)) = refused else {
            return Ok(());
        };
        let number = {
            let mut state = self.state();
            state.threads += 1;
            state.started += 1;
            state.started
        };
        let workers = Arc::clone(self);
        let thread = std::thread::Builder::new().name("execution".to_owned());
        let begun = thread.spawn(move || {
            stockade_sys::be_patient();
            workers.work(number, task);
            workers.leave();
        });
        begun.map(drop).inspect_err(|_| self.leave())
    }

    fn work(self: &Arc<Self>, number: u64, first: Task) {
        let (mut task, mut spare) = (Some(first), None);
        while let Some(next) = task.take() {
            let tasks = match next {
                Task::Run(job) => {
                    let like = Like::of(&job.carriage.request);
                    carry(*job, spare.take(), &self.kept, &|recipe| self.park_another(&like, recipe));
                    self.rest(number)
                }
                Task::Park(like, recipe) => {
                    let tasks = self.promise(number, like);
                    // A host that has no room for a spare says so to the next request.
                    spare = tasks.as_ref().and_then(|_| recipe.park(&self.kept).ok());
                    self.settle(number, spare.is_some());
                    tasks
                }
            };
            task = tasks.and_then(|tasks| self.next(number, &tasks));
        }
    }

    /// Puts the thread among those that wait, with empty hands.
    fn rest(&self, thread: u64) -> Option<Receiver<Task>> {
        let mut state = self.state();
        state.running -= 1;
        let resting = state.waiting.len() - state.spares();
        let stays = !state.closed && resting < MOST_RESTING;
        stays.then(|| state.enter(thread, None))
    }

    /// The same, with a spare that it is going to make.
    fn promise(&self, thread: u64, like: Like) -> Option<Receiver<Task>> {
        let mut state = self.state();
        // Under the same lock: it is counted as the one or the other.
        state.parking -= 1;
        (!state.closed).then(|| state.enter(thread, Some(like)))
    }

    /// Its spare is there, or will never be. Whoever has chosen it meanwhile finds that out by itself.
    fn settle(&self, thread: u64, made: bool) {
        let mut state = self.state();
        if let Some(waiting) = state.waiting.iter_mut().find(|waiting| waiting.thread == thread) {
            waiting.is_promised = false;
            waiting.spare = waiting.spare.take().filter(|_| made);
        }
    }

    fn next(&self, number: u64, tasks: &Receiver<Task>) -> Option<Task> {
        match tasks.recv_timeout(AGE) {
            Ok(task) => return Some(task),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut state = self.state();
        match state.waiting.iter().position(|waiting| waiting.thread == number) {
            Some(at) => {
                state.waiting.remove(at);
                None
            }
            // Chosen just now: the task is on its way.
            None => {
                drop(state);
                tasks.recv().ok()
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
        state.waiting.clear();
        match self.left.wait_timeout_while(state, within, |state| state.threads > 0) {
            // What is left dies with this process.
            Ok(_) | Err(_) => {}
        }
        self.kept.close(within);
    }
}
