//! The outside half of the network allowlist. Inside the sandbox's network namespace every address is local
//! (AnyIP), and the init donates listeners on the allowed ports and on 53 from there. This crate answers
//! DNS with one private address per listed name, so the address a program connects to says which name it
//! asked for; then it resolves, checks and connects on the host, and copies bytes. The executor starts it
//! when the plan says so and stops it with the execution. The same thread carries connections the other
//! way, from the host's loopback to published ports, with or without an allowlist.
//!
//! What leaves the host: connections that a rule allows, and one name lookup per such connection. No
//! question that a program asks the stub is passed on. Under a wildcard rule (`*.example`) the looked-up
//! name itself is the program's choice, so each connection can carry a label's worth of text to whoever
//! serves that domain; it could send the same to the host that the rule allows.
//!
//! What is not seen: bytes inside TLS, and what follows an opening of another protocol (STARTTLS). A server
//! that serves several names over one TLS connection decides itself whether it takes a request for
//! another one (domain fronting); where that matters, list hosts that don't.

mod accept;
mod answer;
mod asked;
mod charged;
mod connection;
mod dial;
mod dns;
mod gate;
mod head;
mod hello;
mod hosts;
mod http;
mod ledger;
mod names;
mod nameserver;
mod opening;
mod pool;
mod publish;
mod relay;
mod reply;
mod resolve;
mod shared;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::Duration;

use stockade_charge::Charge;
use stockade_proto::{HostTraffic, NetworkOp};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub use connection::OWN_ADDRESS;
use ledger::Ledger;
pub use pool::Inside;
use publish::Entrance;
pub use resolve::{HostResolver, Resolve, Resolving};
use shared::Shared;

/// For the thread to end, beyond what clients of published ports are given: it waits for nothing else, so
/// this is for a machine that stands still.
const STOP: Duration = Duration::from_secs(1);
/// Lookups at once: the host's resolver blocks a thread for each.
const LOOKUPS: usize = 32;
const LOOKUP: &str = "lookup";
/// Threads for lookups stay: a later one might not be had. Longer than any execution.
const KEPT: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// What the rules say about a listed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub ports: Vec<u16>,
    pub rule: String,
}

/// Why an address is not to be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed(pub &'static str);

/// The allowlist. Called on the egress thread: it must answer at once.
pub trait Rules: Send + Sync {
    /// For a name in lower case without trailing dot; none where it isn't listed.
    fn name(&self, name: &str) -> Option<Named>;
    /// Whether an address that a listed name resolved to may be connected to on that port.
    fn reachable(&self, address: IpAddr, port: u16) -> Result<(), Closed>;
    /// The rule that allows an address which the program dialled itself.
    fn address(&self, address: IpAddr, port: u16) -> Option<String>;
}

/// Hears of every decision, on the egress thread. A hostile program makes one per connection attempt.
pub trait Witness: Send + Sync {
    fn saw(&self, op: NetworkOp);
}

/// A listener on the host's loopback whose connections go to a port inside.
#[derive(Debug)]
pub struct Published {
    pub listener: OwnedFd,
    pub port: u16,
}

/// The way out, where there is an allowlist.
pub struct Allow {
    /// TCP listeners from inside, of both families, one per allowed port.
    pub listeners: Vec<OwnedFd>,
    /// A UDP socket on `[::]:53` inside, of both families.
    pub dns_udp: OwnedFd,
    /// The TCP listener on the same.
    pub dns_tcp: OwnedFd,
    pub rules: Arc<dyn Rules>,
    pub witness: Arc<dyn Witness>,
    pub resolve: Arc<dyn Resolve>,
}

impl fmt::Debug for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allow").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Config {
    pub execution: String,
    pub allow: Option<Allow>,
    pub publish: Vec<Published>,
    /// As many as there can be connections at once to what is published.
    pub inside: Vec<Inside>,
    /// Who pays for the thread's time.
    pub charge: Arc<Charge>,
}

/// A running egress. Dropping it stops it too, without waiting.
#[derive(Debug)]
pub struct Egress {
    stop: oneshot::Sender<()>,
    stopped: mpsc::Receiver<()>,
    ledger: Arc<Ledger>,
    handed: HandedOut,
    charge: Arc<Charge>,
}

/// Which name an address stands for inside. Of no use once the egress has stopped.
#[derive(Clone, Default)]
pub struct HandedOut(Weak<Shared>);

impl HandedOut {
    pub fn name(&self, address: IpAddr) -> Option<String> {
        self.0.upgrade()?.name_at(address)
    }
}

impl fmt::Debug for HandedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedOut").finish_non_exhaustive()
    }
}

impl Egress {
    /// Starts the thread. When this returns, every donated socket is being served.
    pub fn start(config: Config) -> io::Result<Self> {
        let runtime = runtime(&config)?;
        let ledger = Arc::new(Ledger::default());
        let Config { execution, allow, publish, inside, charge } = config;
        let entrance = Arc::new(Entrance::new(inside, Arc::clone(&charge)));
        let entered = runtime.enter();
        let handed = match allow {
            Some(allow) => HandedOut(Arc::downgrade(&open_out(execution, allow, (&ledger, &charge))?)),
            None => HandedOut::default(),
        };
        open_in(publish, &entrance)?;
        drop(entered);
        let (stop, asked) = oneshot::channel::<()>();
        let (done, stopped) = mpsc::channel();
        Builder::new().name("egress".to_owned()).spawn(move || {
            runtime.block_on(async {
                // An error: nobody is left who could ask, nor wait.
                if let Ok(()) = asked.await {
                    entrance.drain().await;
                }
            });
            // Lookups in flight keep their threads until they answer; nothing waits for them.
            runtime.shutdown_background();
            match done.send(()) {
                // Nobody waits any more.
                Ok(()) | Err(_) => {}
            }
        })?;
        Ok(Self { stop, stopped, ledger, handed, charge })
    }

    pub fn handed_out(&self) -> HandedOut {
        self.handed.clone()
    }

    /// When nobody is left inside: gives clients of published ports a moment for the last bytes, closes every
    /// connection and tells what was carried.
    pub fn stop(self) -> Vec<HostTraffic> {
        // Or it would not hear of it before all is paid.
        self.charge.close();
        match self.stop.send(()) {
            // The thread is gone already.
            Ok(()) | Err(()) => {}
        }
        match self.stopped.recv_timeout(publish::DRAIN + STOP) {
            // The counts stand either way.
            Ok(()) | Err(_) => {}
        }
        self.ledger.total()
    }
}

/// With a thread for lookups from the start. Later ones wait for it where the machine has no thread to give; had
/// there never been one, the runtime would panic, and take the executor with it.
fn runtime(config: &Config) -> io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(LOOKUPS)
        .thread_name(LOOKUP)
        .thread_keep_alive(KEPT)
        .build()?;
    if config.allow.is_some() {
        // The runtime says by a panic that it can't have the first, so one is asked for here before.
        let probe = Builder::new().spawn(|| {})?;
        match probe.join() {
            Ok(()) | Err(_) => {}
        }
        // It does nothing, and is not waited for.
        drop(runtime.spawn_blocking(|| {}));
    }
    Ok(runtime)
}

/// Serves the sockets of the allowlist. Inside the runtime.
fn open_out(
    execution: String,
    allow: Allow,
    (ledger, charge): (&Arc<Ledger>, &Arc<Charge>),
) -> io::Result<Arc<Shared>> {
    let Allow { listeners, dns_udp, dns_tcp, rules, witness, resolve } = allow;
    let listeners: io::Result<Vec<_>> = listeners.into_iter().map(accept::listen).collect();
    let (listeners, dns_udp, dns_tcp) = (listeners?, nameserver::prepare(dns_udp)?, accept::listen(dns_tcp)?);
    let shared =
        Arc::new(Shared::new(execution, rules, witness, resolve, (Arc::clone(ledger), Arc::clone(charge))));
    charged::spawn(charge, nameserver::udp(Arc::clone(&shared), dns_udp));
    charged::spawn(charge, nameserver::tcp(Arc::clone(&shared), dns_tcp));
    for listener in listeners {
        charged::spawn(charge, accept::serve(Arc::clone(&shared), listener));
    }
    Ok(shared)
}

/// Serves what is published. Inside the runtime.
fn open_in(published: Vec<Published>, entrance: &Arc<Entrance>) -> io::Result<()> {
    for Published { listener, port } in published {
        let task = publish::serve(Arc::clone(entrance), accept::listen(listener)?, port);
        charged::spawn(&entrance.charge, task);
    }
    Ok(())
}
