//! Who waits for which stage. A stage is held by the calls that wait for its end; when the last of them is dropped,
//! by its connection, the stage is ended. One that still waits for a place can be cancelled, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stockade_proto::Cancel;
use tokio::sync::watch;
use tracing::warn;

use crate::attached::Attached;
use crate::core::Core;
use crate::execution::Execution;
use crate::principal::Principal;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// One caller's.
    Own {
        principal: String,
        id: String,
    },
    Unnamed(u64),
}

impl Name {
    pub(super) fn own(principal: &Principal, id: &str) -> Self {
        Self::Own { principal: principal.name().to_owned(), id: id.to_owned() }
    }
}

#[derive(Debug)]
struct Held {
    holders: usize,
    /// None until it is on record. Dropped, it ends what it names.
    attached: Option<Attached>,
    cancelled: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Table {
    unnamed: u64,
    held: HashMap<Name, Held>,
}

#[derive(Debug, Default)]
pub(in crate::doors::socket) struct Stages {
    table: Mutex<Table>,
}

/// What there was to cancel.
#[derive(Debug)]
pub(super) enum Cancelled {
    /// It never begins.
    Waiting,
    Running(Arc<Execution>),
}

/// Of a stage that has just begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Still,
    NoMore,
}

/// One call's hold.
#[derive(Debug)]
pub(super) struct Lease {
    stages: Arc<Stages>,
    name: Name,
    cancelled: watch::Receiver<bool>,
}

impl Stages {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold(self: &Arc<Self>, principal: &Principal, id: Option<&str>) -> Lease {
        let mut table = self.table();
        let name = match id {
            Some(id) => Name::own(principal, id),
            None => {
                table.unnamed += 1;
                Name::Unnamed(table.unnamed)
            }
        };
        let held = table.held.entry(name.clone()).or_insert_with(|| Held {
            holders: 0,
            attached: None,
            cancelled: watch::Sender::new(false),
        });
        held.holders += 1;
        let cancelled = held.cancelled.subscribe();
        Lease { stages: Arc::clone(self), name, cancelled }
    }

    /// Tells whoever waits for a place; one that runs is the caller's to end.
    pub(super) fn cancel(&self, name: &Name) -> Option<Cancelled> {
        let table = self.table();
        let held = table.held.get(name)?;
        held.cancelled.send_replace(true);
        let execution = held.attached.as_ref().map(|attached| Arc::clone(&attached.execution));
        Some(execution.map_or(Cancelled::Waiting, Cancelled::Running))
    }

    /// For the end of the service: whoever waits for a stage is answered.
    pub(in crate::doors::socket) async fn cancel_all(&self, core: &Core) {
        let mut running = Vec::new();
        for held in self.table().held.values() {
            held.cancelled.send_replace(true);
            running.extend(held.attached.as_ref().map(|attached| Arc::clone(&attached.execution)));
        }
        for execution in running {
            if let Err(denied) = core.cancel(&execution, Cancel::Terminate).await {
                warn!(execution = %execution.id, "a stage is not ended: {}", denied.message());
            }
        }
    }

    fn let_go(&self, name: &Name) {
        let mut table = self.table();
        let Some(held) = table.held.get_mut(name) else { return };
        held.holders = held.holders.saturating_sub(1);
        if held.holders > 0 {
            return;
        }
        let last = table.held.remove(name);
        drop(table);
        drop(last);
    }
}

impl Lease {
    /// Until somebody asks for its end.
    pub(super) async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        match cancelled.wait_for(|cancelled| *cancelled).await {
            // An error can't be: the sender lives as long as this hold does.
            Ok(_) | Err(_) => {}
        }
    }

    /// It has begun, and lives as long as any hold on its name. Somebody may have asked for its end just before,
    /// and been told that it never begins.
    pub(super) fn keep(&self, attached: Attached) -> (Arc<Execution>, Wanted) {
        let execution = Arc::clone(&attached.execution);
        let mut table = self.stages.table();
        let before = table.held.get_mut(&self.name).and_then(|held| held.attached.replace(attached));
        let cancelled = *self.cancelled.borrow();
        drop(table);
        // An earlier one of the name has ended, or there would be no new one.
        drop(before);
        (execution, if cancelled { Wanted::NoMore } else { Wanted::Still })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stages.let_go(&self.name);
    }
}
