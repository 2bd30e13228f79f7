//! Groups for the sandboxes of a service. Making and removing the directories of one costs as much as the rest of its
//! sandbox, so one in which nothing of note happened is used again: nobody is in it, nobody was killed, no limit was met,
//! and what is left charged to it is next to nothing. Its clocks go on, and are read as differences.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stockade_proto::Limits;

use super::error::CgroupError;
use super::group::{Clocks, Group, Hits, Part};
use super::layout::{Controller, Layout, TreeKill, Version};
use super::{Entry, Host};

/// Waiting at once.
const MOST: usize = 32;
/// One that waited longer is removed: an idle service holds none for ever.
const AGE: Duration = Duration::from_secs(60);
/// Page cache and kernel objects that the last execution left. It is taken from the next one's memory, and given up when
/// that needs it.
const LEFT_BYTES: u64 = 2 << 20;

#[derive(Debug, Default)]
pub struct Groups {
    /// In the order in which they came back.
    idle: Mutex<VecDeque<Idle>>,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    terms: Terms,
    group: Group,
}

/// What a group is made for: the others are nothing to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    memory_bytes: Option<u64>,
    cpu_millicores: Option<u64>,
    processes: Option<u64>,
    timed: bool,
    tree: TreeKill,
    entry: Entry,
}

impl Terms {
    pub(super) fn of(limits: &Limits, tree: TreeKill, entry: Entry) -> Self {
        Self {
            memory_bytes: limits.memory_bytes,
            cpu_millicores: limits.cpu_millicores,
            processes: limits.processes,
            timed: limits.cpu_seconds.is_some(),
            tree,
            entry,
        }
    }
}

impl Groups {
    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that nobody wanted in their time are removed.
    pub(crate) fn let_old_ones_go(&self) {
        let mut idle = self.idle();
        let fresh = idle.iter().position(|idle| idle.since.elapsed() < AGE).unwrap_or(idle.len());
        // Dropped, and so removed, without the lock.
        let old: Vec<_> = idle.drain(..fresh).collect();
        drop(idle);
        drop(old);
    }

    fn take(&self, terms: Terms) -> Option<Group> {
        self.let_old_ones_go();
        let mut idle = self.idle();
        // The newest first: its memory is in the caches.
        let at = idle.iter().rposition(|idle| idle.terms == terms);
        let found = at.and_then(|at| idle.remove(at));
        drop(idle);
        found.map(|found| found.group)
    }

    /// Gives back what there is no room for.
    fn put(&self, terms: Terms, group: Group) -> Option<Group> {
        let mut idle = self.idle();
        if idle.len() >= MOST {
            return Some(group);
        }
        idle.push_back(Idle { since: Instant::now(), terms, group });
        None
    }
}

/// Where a group goes when its execution is over.
#[derive(Debug)]
pub(super) struct Home {
    groups: Arc<Groups>,
    terms: Terms,
}

impl Home {
    pub(super) fn new(groups: &Arc<Groups>, limits: &Limits, tree: TreeKill, entry: Entry) -> Self {
        Self { groups: Arc::clone(groups), terms: Terms::of(limits, tree, entry) }
    }

    /// A whole group, limits in force, with nobody in it.
    pub(super) fn take(&self, host: &Host, layout: &Layout) -> Option<Group> {
        // One that stands elsewhere than new ones would is of a time when this process did.
        self.groups.take(self.terms).filter(|group| stands(host, layout, group))
    }
}

fn stands(host: &Host, layout: &Layout, group: &Group) -> bool {
    let v1 = group.parts.iter().filter(|part| part.version == Version::V1);
    let wanted = layout.v1.iter().map(|used| host.v1_path(used.index).ok());
    let v2 = group.parts.iter().find(|part| part.version == Version::V2);
    let same = match (&layout.v2, v2) {
        (Some(controllers), Some(part)) => {
            host.v2_base(controllers).is_ok_and(|base| base.path() == part.base.path())
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    same && v1.map(|part| Some(part.base.path())).eq(wanted)
}

impl Group {
    /// Whether another execution may get it, as far as that is known without a look at its counters.
    pub fn may_be_kept(&self) -> bool {
        // The high-water mark of memory can't be set back there.
        let is_fit =
            |part: &Part| !(part.version == Version::V2 && part.controllers.contains(&Controller::Memory));
        self.home.is_some() && !self.killed.load(Ordering::Relaxed) && self.parts.iter().all(is_fit)
    }

    /// The tree must be gone. Removed, or kept for another execution.
    pub fn leave(mut self) -> Result<(), CgroupError> {
        let home = if self.may_be_kept() { self.home.take() } else { None };
        let Some(home) = home else { return self.remove() };
        match self.is_as_new() {
            Ok(Some(before)) => {
                self.before = before;
                home.groups.put(home.terms, self).map_or(Ok(()), Self::remove)
            }
            Ok(None) | Err(_) => self.remove(),
        }
    }

    /// What its clocks show, if nothing else tells that it was used.
    fn is_as_new(&self) -> Result<Option<Clocks>, CgroupError> {
        for part in self.parts.iter().filter(|part| part.controllers.contains(&Controller::Memory)) {
            let left = self.number(part, "memory.usage_in_bytes", None)?;
            let refused = self.number(part, "memory.failcnt", None)?;
            if left.is_none_or(|left| left > LEFT_BYTES) || refused != Some(0) {
                return Ok(None);
            }
        }
        if self.hits()? != Hits::default() {
            return Ok(None);
        }
        self.forget_memory()?;
        // Without a clock there is nothing that it could show of another.
        Ok(Some(self.clocks()?.unwrap_or_default()))
    }
}
