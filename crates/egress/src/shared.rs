//! What all connections of one execution share, and the words they tell the witness.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use stockade_charge::Charge;
use stockade_proto::{Decision, NetworkKind, NetworkOp};
use tokio::sync::Semaphore;

use crate::asked::{Asked, Host};
use crate::ledger::Ledger;
use crate::names::{Handed, Names};
use crate::relay::Memory;
use crate::{Named, Resolve, Rules, Witness};

/// Connections at once, where there are descriptors enough. Each takes two, and a little more while it is dialled.
const CONNECTIONS: u64 = 4096;
/// Descriptors for all the rest: listeners, lookups, the executor's own.
const RESERVED: u64 = 128;
/// However few there are.
const CONNECTIONS_LEAST: u64 = 16;
/// Names of which a decision was told; past it, one last event says so.
const NAMES_TOLD: usize = 1024;
/// Between two events about the same shortage.
const SELDOM: Duration = Duration::from_secs(1);
/// Stands for the host of connections that could not even be accepted; no rule can be written so.
const NOT_ACCEPTED: &str = "(not accepted)";

pub(crate) struct Shared {
    pub(crate) execution: String,
    pub(crate) rules: Arc<dyn Rules>,
    pub(crate) witness: Arc<dyn Witness>,
    pub(crate) resolve: Arc<dyn Resolve>,
    pub(crate) slots: Arc<Semaphore>,
    /// As many as there were slots.
    connections: usize,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) charge: Arc<Charge>,
    pub(crate) memory: Memory,
    names: Mutex<Names>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    names: HashSet<String>,
    silent: bool,
    full: bool,
    shortage: Option<Instant>,
}

/// How one connection went.
pub(crate) enum Fate {
    /// To this address; the text says how it failed, if it did.
    Allowed(Option<IpAddr>, Option<String>),
    Denied(Option<IpAddr>, String),
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the process's own limit of descriptors leaves room for; none is no limit.
fn connections(descriptors: Option<u64>) -> usize {
    let room = descriptors.map_or(CONNECTIONS, |limit| limit.saturating_sub(RESERVED) / 2);
    usize::try_from(room.clamp(CONNECTIONS_LEAST, CONNECTIONS)).unwrap_or_default()
}

impl Shared {
    pub(crate) fn new(
        execution: String,
        rules: Arc<dyn Rules>,
        witness: Arc<dyn Witness>,
        resolve: Arc<dyn Resolve>,
        (ledger, charge): (Arc<Ledger>, Arc<Charge>),
    ) -> Self {
        let connections = connections(getrlimit(Resource::Nofile).current);
        Self {
            execution,
            rules,
            witness,
            resolve,
            slots: Arc::new(Semaphore::new(connections)),
            connections,
            ledger,
            charge,
            memory: Memory::default(),
            names: Mutex::default(),
            told: Mutex::default(),
        }
    }

    pub(crate) fn name_at(&self, address: IpAddr) -> Option<String> {
        lock(&self.names).at(address).map(str::to_owned)
    }

    /// The name's private addresses. Told once per name.
    pub(crate) fn hand_out(&self, name: &str, named: &Named) -> Option<Handed> {
        let handed = lock(&self.names).hand_out(name);
        if handed.is_none() {
            if !std::mem::replace(&mut lock(&self.told).full, true) {
                let detail = "too many names were asked for";
                self.resolved(name, Decision::Deny, Some(named.rule.clone()), Some(detail));
            }
        } else if lock(&self.told).is_allowed_news(name) {
            self.resolved(name, Decision::Allow, Some(named.rule.clone()), None);
        }
        handed
    }

    pub(crate) fn refused_name(&self, name: &str) {
        let news = lock(&self.told).is_news(name);
        match news {
            News::Old => {}
            News::New => self.resolved(name, Decision::Deny, None, Some("not in the allowlist")),
            News::Last => {
                self.resolved(
                    name,
                    Decision::Deny,
                    None,
                    Some("not in the allowlist; no further name is told"),
                );
            }
        }
    }

    fn resolved(&self, name: &str, decision: Decision, rule: Option<String>, detail: Option<&str>) {
        self.witness.saw(NetworkOp {
            execution: self.execution.clone(),
            operation: NetworkKind::Resolve,
            host: name.to_owned(),
            port: None,
            address: None,
            decision,
            rule,
            detail: detail.map(str::to_owned),
        });
    }

    pub(crate) fn connected(&self, asked: &Asked, fate: Fate) {
        self.tell(&asked.host, Some(asked.port), Some(asked.rule.clone()), fate);
    }

    /// No rule allows it.
    pub(crate) fn denied(&self, host: &Host, port: u16, detail: &str) {
        self.tell(host, Some(port), None, Fate::Denied(None, detail.to_owned()));
    }

    fn tell(&self, host: &Host, port: Option<u16>, rule: Option<String>, fate: Fate) {
        let (decision, address, detail) = match fate {
            Fate::Allowed(address, detail) => (Decision::Allow, address, detail),
            Fate::Denied(address, detail) => (Decision::Deny, address, Some(detail)),
        };
        self.witness.saw(NetworkOp {
            execution: self.execution.clone(),
            operation: NetworkKind::Connect,
            host: host.text(),
            port,
            address: address.map(|address| address.to_string()),
            decision,
            rule,
            detail,
        });
    }

    pub(crate) fn too_many(&self, (address, port): (IpAddr, u16)) {
        if lock(&self.told).shortage_is_news() {
            let host = self.name_at(address).map_or(Host::Address(address), Host::Name);
            self.denied(&host, port, &format!("more than {} connections at once", self.connections));
        }
    }

    pub(crate) fn cannot_accept(&self, error: &io::Error) {
        if lock(&self.told).shortage_is_news() {
            let fate = Fate::Denied(None, format!("can't accept connections: {error}"));
            self.tell(&Host::Name(NOT_ACCEPTED.to_owned()), None, None, fate);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Old,
    New,
    /// New, and the last one that is told.
    Last,
}

impl Told {
    /// Past the bound an allowed name is not told, and leaves the last word to a refused one.
    fn is_allowed_news(&mut self, name: &str) -> bool {
        self.names.len() < NAMES_TOLD && self.names.insert(name.to_owned())
    }

    fn is_news(&mut self, name: &str) -> News {
        if self.names.contains(name) {
            return News::Old;
        }
        if self.names.len() < NAMES_TOLD {
            self.names.insert(name.to_owned());
            return News::New;
        }
        if std::mem::replace(&mut self.silent, true) { News::Old } else { News::Last }
    }

    fn shortage_is_news(&mut self) -> bool {
        let now = Instant::now();
        let news = self.shortage.is_none_or(|before| now.duration_since(before) >= SELDOM);
        if news {
            self.shortage = Some(now);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_bound_the_connections() {
        assert_eq!([None, Some(65_536), Some(8320)].map(connections), [4096; 3]);
        assert_eq!([Some(8318), Some(1024), Some(100)].map(connections), [4095, 448, 16]);
    }

    #[test]
    fn allowed_names_leave_the_last_word_to_a_refused_one() {
        let mut told = Told::default();
        for number in 0..NAMES_TOLD {
            assert!(told.is_allowed_news(&number.to_string()));
            assert!(!told.is_allowed_news(&number.to_string()));
        }
        assert!(!told.is_allowed_news("one.more"));
        assert_eq!(told.is_news("0"), News::Old);
        assert_eq!(told.is_news("refused"), News::Last);
        assert_eq!(told.is_news("another"), News::Old);
        assert_eq!(told.names.len(), NAMES_TOLD);
    }
}
