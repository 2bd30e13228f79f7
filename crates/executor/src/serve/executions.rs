//! The executions under way: who may be told to stop, who is written to, and when all are gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stockade_executor::{Order, OrderSender};
use stockade_proto::Cancel;
use tokio::sync::watch;
use tokio::time::timeout;

use super::stdin::Stdin;

/// At once. Each has a thread, a sandbox, some forty descriptors and one of the 200 keys that the kernel gives a user.
pub(super) const MOST: usize = 160;

/// One execution, as the link may reach it.
#[derive(Debug)]
pub(super) struct Entry {
    orders: OrderSender,
    stopped: AtomicBool,
    /// None where the request asked for none.
    pub(super) stdin: Option<Stdin>,
}

impl Entry {
    pub(super) fn new(orders: OrderSender, stdin: Option<Stdin>) -> Self {
        Self { orders, stopped: AtomicBool::new(false), stdin }
    }

    pub(super) fn stop(&self, by: Cancel) {
        if !self.stopped.swap(true, Ordering::Relaxed) {
            self.orders.give(Order::Stop(by));
        }
    }
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    Full,
    Taken,
    Closing,
}

#[derive(Debug)]
pub(super) struct Executions {
    table: Mutex<Table>,
    /// How many have a place.
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<String, Arc<Entry>>,
    closing: bool,
}

impl Executions {
    pub(super) fn new() -> Self {
        Self { table: Mutex::default(), count: watch::Sender::new(0) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, execution: &str) -> Option<Arc<Entry>> {
        self.table().entries.get(execution).cloned()
    }

    pub(super) fn enter(self: &Arc<Self>, execution: &str, entry: Entry) -> Result<Place, NoPlace> {
        let mut table = self.table();
        if table.closing {
            return Err(NoPlace::Closing);
        }
        if *self.count.borrow() >= MOST {
            return Err(NoPlace::Full);
        }
        if table.entries.contains_key(execution) {
            return Err(NoPlace::Taken);
        }
        table.entries.insert(execution.to_owned(), Arc::new(entry));
        self.count.send_modify(|count| *count += 1);
        Ok(Place { executions: Arc::clone(self), execution: execution.to_owned() })
    }

    /// Takes no more, stops all, kills what is left after `grace`, and waits until they are gone.
    pub(super) async fn end(&self, by: Cancel, grace: Duration, killed: Duration) {
        self.each(|entry| entry.stop(by));
        if !self.gone_within(grace).await {
            self.each(|entry| entry.orders.give(Order::Kill));
            // What is not gone by then dies with this process.
            self.gone_within(killed).await;
        }
    }

    fn each(&self, act: impl Fn(&Entry)) {
        let mut table = self.table();
        table.closing = true;
        table.entries.values().for_each(|entry| act(entry));
    }

    async fn gone_within(&self, time: Duration) -> bool {
        let mut count = self.count.subscribe();
        timeout(time, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}

/// One execution's place in the table, given back however it ends.
#[derive(Debug)]
pub(super) struct Place {
    executions: Arc<Executions>,
    execution: String,
}

impl Place {
    /// From here on the id is unknown; the place is still taken.
    pub(super) fn leave(&self) {
        self.executions.table().entries.remove(&self.execution);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
        self.executions.count.send_modify(|count| *count -= 1);
    }
}
