//! The stems of a service: found, made for the second sandbox of a kind, and let go. Next: `stem`.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use stockade_policy::{Ground, Object};

use super::encode::Given;
use super::fault;
use super::stem::{Stem, Template};
use crate::Abort;
use crate::cgroup::Groups;
use crate::mounts::Watch;

/// At once.
const MOST: usize = 8;
/// Kinds of sandboxes that one execution was seen of.
const MOST_SEEN: usize = 32;
/// What is on the host may change.
const AGE: Duration = Duration::from_secs(30);
/// A host that can't have one is not asked again for a while.
const PAUSE: Duration = Duration::from_secs(10);
/// How often those that nobody asks for are looked at.
const ROUND: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Stems {
    state: Arc<Mutex<State>>,
    groups: Arc<Groups>,
    /// One at a time: whoever wants the same waits for it.
    making: Mutex<()>,
    /// Inits die with the thread that is their parent: this one lives as long as the process.
    nurse: OnceLock<SyncSender<Order>>,
}

#[derive(Debug, Default)]
struct State {
    stems: Vec<Arc<Stem>>,
    /// Not worth a stem yet: most recent last.
    seen: Vec<Template>,
    failed: Option<Instant>,
}

struct Order {
    template: Template,
    given: Given,
    mounts: u64,
    reply: SyncSender<Result<Stem, Abort>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stems {
    /// Beside them, `groups` are looked at that nobody asks for any more.
    pub(crate) fn new(groups: &Arc<Groups>) -> Self {
        Self {
            state: Arc::default(),
            groups: Arc::clone(groups),
            making: Mutex::new(()),
            nurse: OnceLock::new(),
        }
    }

    /// For the second sandbox of a kind, and those after it. `watch` says whether the host's mounts are what they were.
    pub(super) fn find(&self, template: &Template, given: Given, watch: &Watch) -> Option<Arc<Stem>> {
        let mounts = watch.now();
        let known = {
            let mut state = locked(&self.state);
            // Dropped, and so ended, without the lock.
            let over = state.take_old(mounts);
            let standing = state.standing(template);
            // One that was worth making is worth making again.
            let again = over.iter().any(|stem| stem.template.serves(template));
            let known = standing.is_some() || again || state.second_time(template);
            drop(state);
            if standing.is_some() {
                return standing;
            }
            known
        };
        if !known {
            return None;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let state = locked(&self.state);
            if let Some(stem) = state.standing(template) {
                return Some(stem);
            }
            if state.failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
                return None;
            }
        }
        let made = self.make(template.clone(), given, mounts);
        let mut state = locked(&self.state);
        let (stem, evicted) = match made {
            Ok(stem) => {
                let stem = Arc::new(stem);
                let evicted = (state.stems.len() >= MOST).then(|| state.stems.remove(0));
                state.stems.push(Arc::clone(&stem));
                (Some(stem), evicted)
            }
            Err(_) => {
                state.failed = Some(Instant::now());
                (None, None)
            }
        };
        drop(state);
        drop(evicted);
        stem
    }

    /// One that is there already.
    pub(super) fn standing(&self, template: &Template, watch: &Watch) -> Option<Arc<Stem>> {
        let mounts = watch.now();
        let stem = locked(&self.state).standing(template);
        stem.filter(|stem| !stem.is_old(mounts))
    }

    /// Whether one is there for some plan of this ground and workspace.
    pub(super) fn stand_on(&self, ground: &Ground, workspace: &Object, watch: &Watch) -> bool {
        let mounts = watch.now();
        let serves = |stem: &Arc<Stem>| {
            stem.template.ground().serves(ground) && stem.template.shows(workspace) && !stem.is_old(mounts)
        };
        locked(&self.state).stems.iter().any(serves)
    }

    /// One that does not do its duty is not asked again.
    pub(super) fn forget(&self, stem: &Arc<Stem>) {
        let mut state = locked(&self.state);
        let forgotten: Vec<_> = state.stems.extract_if(.., |known| Arc::ptr_eq(known, stem)).collect();
        state.failed = Some(Instant::now());
        drop(state);
        drop(forgotten);
    }

    /// What they stand on may be gone: others are made when they are needed.
    pub(crate) fn forget_all(&self) {
        let forgotten = std::mem::take(&mut locked(&self.state).stems);
        // Ended without the lock.
        drop(forgotten);
    }

    fn make(&self, template: Template, given: Given, mounts: u64) -> Result<Stem, Abort> {
        let nurse = match self.nurse.get() {
            Some(nurse) => nurse,
            None => {
                let nurse = self.start_nurse().map_err(|error| fault("a thread can't be started", &error))?;
                self.nurse.get_or_init(|| nurse)
            }
        };
        let (reply, made) = sync_channel(1);
        let gone = || fault("a stem can't be made", &"its thread is gone");
        nurse.send(Order { template, given, mounts, reply }).map_err(|_| gone())?;
        made.recv().map_err(|_| gone())?
    }

    fn start_nurse(&self) -> std::io::Result<SyncSender<Order>> {
        let (orders, taken) = sync_channel(MOST);
        let (state, groups) = (Arc::downgrade(&self.state), Arc::downgrade(&self.groups));
        let thread = std::thread::Builder::new().name("stems".to_owned());
        thread.spawn(move || nurse(&taken, &state, &groups))?;
        Ok(orders)
    }
}

/// Makes those that are ordered, and lets go of those that nobody asked for in their time.
fn nurse(orders: &Receiver<Order>, state: &Weak<Mutex<State>>, groups: &Weak<Groups>) {
    loop {
        match orders.recv_timeout(ROUND) {
            Ok(Order { template, given, mounts, reply }) => {
                match reply.send(Stem::make(template, given, mounts)) {
                    // Nobody waits any more: it ends with the answer.
                    Ok(()) | Err(_) => {}
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(state) = state.upgrade() {
                    let over = locked(&state).take_aged();
                    drop(over);
                }
                if let Some(groups) = groups.upgrade() {
                    groups.let_old_ones_go();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Stem {
    fn is_old(&self, mounts: u64) -> bool {
        self.since.elapsed() > AGE || self.mounts != mounts
    }
}

impl State {
    fn standing(&self, template: &Template) -> Option<Arc<Stem>> {
        self.stems.iter().find(|stem| stem.template.serves(template)).map(Arc::clone)
    }

    fn take_aged(&mut self) -> Vec<Arc<Stem>> {
        self.stems.extract_if(.., |stem| stem.since.elapsed() > AGE).collect()
    }

    fn take_old(&mut self, mounts: u64) -> Vec<Arc<Stem>> {
        self.stems.extract_if(.., |stem| stem.is_old(mounts)).collect()
    }

    fn second_time(&mut self, template: &Template) -> bool {
        if let Some(at) = self.seen.iter().position(|seen| seen.serves(template)) {
            self.seen.remove(at);
            return true;
        }
        if self.seen.len() >= MOST_SEEN {
            self.seen.remove(0);
        }
        self.seen.push(template.clone());
        false
    }
}
