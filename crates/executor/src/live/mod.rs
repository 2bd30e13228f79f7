//! The walls that need someone awake: the supervisor of sockets and the way out of the network namespace.
//! Each is started over descriptors that init offers before the command runs, and ends with the tree.
//! The rules are `stockade-policy`'s; what was seen goes into the ledger.

mod ledger;
mod network;
mod sockets;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use stockade_egress::{Config as EgressConfig, Egress, HostResolver};
use stockade_launch::Offer;
use stockade_proto::{Blocked, Code, Fault, HostTraffic, Network, Plan};
use stockade_sockets::{Config as SocketConfig, Supervisor};

use crate::Abort;

pub(crate) use ledger::Ledger;

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) ledger: Arc<Ledger>,
    execution: String,
    sockets: Option<Supervisor>,
    egress: Option<Egress>,
}

/// What is left when the tree is gone.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) blocked: Vec<Blocked>,
    pub(crate) traffic: Vec<HostTraffic>,
    pub(crate) faults: Vec<String>,
}

fn fault(what: &str, error: &dyn std::fmt::Display) -> Abort {
    Fault::new(
        Code::SuperviseFailed,
        format!("{what}: {error}"),
        "Try again; if it persists, run `stockade doctor`.",
    )
    .into()
}

/// Init sent other descriptors than its stages do.
fn malformed() -> Abort {
    fault("the sandbox's init offered something else", &"is it of another version?")
}

impl Live {
    pub(crate) fn new(plan: &Plan, execution: &str) -> Result<Self, Abort> {
        let ledger = Ledger::new(plan).map_err(|error| fault("the list of events can't be made", &error))?;
        Ok(Self { ledger: Arc::new(ledger), execution: execution.to_owned(), sockets: None, egress: None })
    }

    /// Starts what the offered descriptors are for. Init waits until this has returned.
    pub(crate) fn take(&mut self, plan: &Plan, what: Offer, fds: Vec<OwnedFd>) -> Result<(), Abort> {
        match what {
            Offer::Sockets => self.start_sockets(plan, fds),
            Offer::Egress => self.start_egress(plan, fds),
        }
    }

    fn start_sockets(&mut self, plan: &Plan, fds: Vec<OwnedFd>) -> Result<(), Abort> {
        let mut fds = fds.into_iter();
        let (Some(rules), Some(listener), landlock, None) =
            (&plan.sockets, fds.next(), fds.next(), fds.next())
        else {
            return Err(malformed());
        };
        // Not only where ids are mapped: without a user namespace the command is someone else than root, too.
        let ids = (plan.identity.host_uid, plan.identity.host_gid);
        let identity = rustix::process::geteuid().is_root().then_some(ids);
        let scope = if plan.landlock.is_some() { sockets::Scope::Domain } else { sockets::Scope::None };
        let rules = sockets::Rules::new(rules, scope)
            .map_err(|error| fault("a socket rule can't be used", &error))?;
        let started = Supervisor::start(SocketConfig {
            listener,
            execution: self.execution.clone(),
            decide: Arc::new(rules),
            witness: Arc::<Ledger>::clone(&self.ledger),
            identity,
            landlock,
        });
        self.sockets = Some(started.map_err(|error| fault("the supervisor of sockets can't start", &error))?);
        Ok(())
    }

    fn start_egress(&mut self, plan: &Plan, fds: Vec<OwnedFd>) -> Result<(), Abort> {
        let mut fds = fds.into_iter();
        let (Network::Allowlist(rules), Some(dns_udp), Some(dns_tcp)) =
            (&plan.network, fds.next(), fds.next())
        else {
            return Err(malformed());
        };
        stockade_sys::look_up_hosts_in_files_and_dns()
            .map_err(|error| fault("the host's names can't be looked up", &error))?;
        let started = Egress::start(EgressConfig {
            execution: self.execution.clone(),
            listeners: fds.collect(),
            dns_udp,
            dns_tcp,
            rules: Arc::new(network::Rules::new(rules)),
            witness: Arc::<Ledger>::clone(&self.ledger),
            resolve: Arc::new(HostResolver),
            publish: Vec::new(),
            inside: None,
        });
        self.egress =
            Some(started.map_err(|error| fault("the way out of the network can't be opened", &error))?);
        Ok(())
    }

    /// Readable once a supervisor can't do its duty: the tree must not go on without it.
    pub(crate) fn failed(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(Supervisor::failed)
    }

    /// After the tree is gone.
    pub(crate) fn end(&mut self) -> Seen {
        let mut seen = Seen::default();
        if let Some(Err(error)) = self.sockets.take().map(Supervisor::stop) {
            seen.faults.push(error.to_string());
        }
        seen.traffic = self.egress.take().map(Egress::stop).unwrap_or_default();
        seen.blocked = self.ledger.blocked();
        seen
    }
}
