//! The walls that need someone awake: the supervisor of sockets, and the ways out of the network namespace
//! and into it.
//! Each is started over descriptors that init offers before the command runs, and ends with the tree.
//! The rules are `stockade-policy`'s; what was seen goes into the ledger.

mod ledger;
mod network;
mod sockets;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use stockade_charge::Charge;
use stockade_egress::{Allow, Config as EgressConfig, Egress, HostResolver, Inside, Published};
use stockade_launch::Offer;
use stockade_proto::{Blocked, EgressPlan, HostTraffic, Network, Plan, Unreached};
use stockade_sockets::{Config as SocketConfig, Prepared, Sandbox, Supervisor};

use crate::Abort;
use crate::descriptors::raise_descriptors;
use crate::publish::Door;
use crate::supervise::fault;

pub(crate) use ledger::Ledger;

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) ledger: Arc<Ledger>,
    /// The CPU time of the walls' threads.
    charge: Arc<Charge>,
    execution: String,
    prepared: Option<Prepared>,
    sockets: Option<Supervisor>,
    egress: Option<Egress>,
    /// Until the egress starts.
    doors: Vec<Door>,
    /// The allowlist's, while those for published ports are to come.
    listeners: Vec<OwnedFd>,
}

/// What is left when the tree is gone.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) blocked: Vec<Blocked>,
    pub(crate) traffic: Vec<HostTraffic>,
    pub(crate) unreached: Vec<Unreached>,
    pub(crate) faults: Vec<String>,
    /// A socket was where others may have found it.
    pub(crate) found: bool,
}

/// Init sent other descriptors than its stages do.
fn malformed() -> Abort {
    fault("the sandbox's init offered something else", &"is it of another version?")
}

impl Live {
    pub(crate) fn new(plan: &Plan, execution: &str, doors: Vec<Door>) -> Result<Self, Abort> {
        let ledger = Ledger::new(plan, execution)
            .map_err(|error| fault("the list of events can't be made", &error))?;
        Ok(Self {
            ledger: Arc::new(ledger),
            charge: Arc::new(Charge::new(plan.limits.cpu_millicores)),
            execution: execution.to_owned(),
            prepared: None,
            sockets: None,
            egress: None,
            doors,
            listeners: Vec::new(),
        })
    }

    /// What needs no descriptor of init's, while init is at work.
    pub(crate) fn prepare(&mut self, plan: &Plan) -> Result<(), Abort> {
        let Some(rules) = &plan.sockets else { return Ok(()) };
        // Not only where ids are mapped: without a user namespace the command is someone else than root, too.
        let ids = (plan.identity.host_uid, plan.identity.host_gid);
        let identity = rustix::process::geteuid().is_root().then_some(ids);
        let scope = if plan.landlock.is_some() { sockets::Scope::Domain } else { sockets::Scope::None };
        let rules = sockets::Rules::new(rules, scope)
            .map_err(|error| fault("a socket rule can't be used", &error))?;
        let prepared = Supervisor::prepare(SocketConfig {
            execution: self.execution.clone(),
            decide: Arc::new(rules),
            witness: Arc::<Ledger>::clone(&self.ledger),
            charge: Arc::clone(&self.charge),
            identity,
        });
        self.prepared =
            Some(prepared.map_err(|error| fault("the supervisor of sockets can't start", &error))?);
        Ok(())
    }

    /// Starts what the offered descriptors are for. Init waits until this has returned.
    pub(crate) fn take(&mut self, plan: &Plan, what: Offer, fds: Vec<OwnedFd>) -> Result<(), Abort> {
        match what {
            Offer::Sockets => self.start_sockets(fds),
            // One thread serves both ways, and those in come last.
            Offer::Egress if !self.doors.is_empty() => {
                self.listeners = fds;
                Ok(())
            }
            Offer::Egress => self.start_egress(plan, fds, Vec::new()),
            Offer::Publish => {
                let listeners = std::mem::take(&mut self.listeners);
                self.start_egress(plan, listeners, fds)
            }
        }
    }

    fn start_sockets(&mut self, fds: Vec<OwnedFd>) -> Result<(), Abort> {
        let mut fds = fds.into_iter();
        let (Some(prepared), Some(listener), Some(diagnosis), landlock, None) =
            (self.prepared.take(), fds.next(), fds.next(), fds.next(), fds.next())
        else {
            return Err(malformed());
        };
        self.sockets = Some(prepared.start(Sandbox { listener, landlock, diagnosis }));
        Ok(())
    }

    fn start_egress(
        &mut self,
        plan: &Plan,
        listeners: Vec<OwnedFd>,
        inside: Vec<OwnedFd>,
    ) -> Result<(), Abort> {
        let allow = match &plan.network {
            Network::Allowlist(rules) => Some(self.allow(rules, listeners)?),
            Network::Deny | Network::Inherit if listeners.is_empty() => None,
            Network::Deny | Network::Inherit => return Err(malformed()),
        };
        let doors = std::mem::take(&mut self.doors);
        if doors.is_empty() != inside.is_empty() {
            return Err(malformed());
        }
        let publish = doors
            .into_iter()
            .map(|door| Published { listener: door.listener.into(), port: door.at.port })
            .collect();
        let started = Egress::start(EgressConfig {
            execution: self.execution.clone(),
            allow,
            publish,
            inside: pairs(inside),
            charge: Arc::clone(&self.charge),
        });
        let egress =
            started.map_err(|error| fault("the ways through the network wall can't be opened", &error))?;
        self.ledger.knows(egress.handed_out());
        self.egress = Some(egress);
        Ok(())
    }

    fn allow(&self, rules: &EgressPlan, listeners: Vec<OwnedFd>) -> Result<Allow, Abort> {
        stockade_sys::look_up_hosts_in_dns()
            .map_err(|error| fault("the host's names can't be looked up", &error))?;
        // Each connection takes two.
        raise_descriptors();
        let mut listeners = listeners.into_iter();
        let (Some(dns_udp), Some(dns_tcp)) = (listeners.next(), listeners.next()) else {
            return Err(malformed());
        };
        Ok(Allow {
            listeners: listeners.collect(),
            dns_udp,
            dns_tcp,
            rules: Arc::new(network::Rules::new(rules)),
            witness: Arc::<Ledger>::clone(&self.ledger),
            resolve: Arc::new(HostResolver { charge: Arc::clone(&self.charge) }),
        })
    }

    /// Readable once the command makes a call that the supervisor of sockets is to be woken for.
    pub(crate) fn asleep(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().and_then(Supervisor::asleep)
    }

    /// Most commands never call: threads are started for those that do.
    pub(crate) fn rise(&mut self) -> Result<(), Abort> {
        match self.sockets.as_mut().map(Supervisor::rise) {
            Some(Err(error)) => Err(fault("the supervisor of sockets can't start", &error)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Readable once a supervisor can't do its duty: the tree must not go on without it.
    pub(crate) fn failed(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().and_then(Supervisor::failed)
    }

    /// What the walls' threads have used so far, on the command's behalf and outside of its cgroup.
    pub(crate) fn used(&self) -> Duration {
        self.charge.spent()
    }

    /// After the tree is gone. What descriptors are left nobody can use any more.
    pub(crate) fn end(&mut self) -> Seen {
        self.charge.close();
        let found = self.sockets.as_ref().is_some_and(Supervisor::bound_a_file);
        let mut seen = Seen { found, ..Seen::default() };
        if let Some(Err(error)) = self.sockets.as_ref().map(Supervisor::stop) {
            seen.faults.push(error.to_string());
        }
        seen.traffic = self.egress.take().map(Egress::stop).unwrap_or_default();
        seen.blocked = self.ledger.blocked();
        seen.unreached = self.ledger.unreached();
        seen
    }
}

/// Init offers those of one family, then those of the other.
fn pairs(mut four: Vec<OwnedFd>) -> Vec<Inside> {
    let six = four.split_off(four.len() / 2);
    four.into_iter().zip(six).map(|(four, six)| Inside { four, six }).collect()
}
