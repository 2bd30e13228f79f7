//! The outside half of the network allowlist. Inside the sandbox's network namespace every address is local
//! (AnyIP), and the init donates listeners on the allowed ports and on 53 from there. This crate answers
//! DNS with one private address per listed name, so the address a program connects to says which name it
//! asked for; then it resolves, checks and connects on the host, and copies bytes. The executor starts it
//! when the plan says so and stops it with the execution.
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
mod connection;
mod dial;
mod dns;
mod gate;
mod head;
mod hello;
mod http;
mod ledger;
mod names;
mod nameserver;
mod opening;
mod publish;
mod relay;
mod reply;
mod resolve;
mod shared;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

use stockade_proto::{HostTraffic, NetworkOp};
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use ledger::Ledger;
pub use resolve::{HostResolver, Resolve, Resolving};
use shared::Shared;

/// For the thread to end. It waits for nothing, so this is for a machine that stands still.
const STOP: Duration = Duration::from_secs(1);
/// Lookups at once: the host's resolver blocks a thread for each.
const LOOKUPS: usize = 32;

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

/// Makes a TCP socket inside the sandbox's network namespace: AF_INET6 with IPV6_V6ONLY off.
pub type Inside = Arc<dyn Fn() -> io::Result<OwnedFd> + Send + Sync>;

/// A listener on the host's loopback whose connections go to a port inside.
#[derive(Debug)]
pub struct Published {
    pub listener: OwnedFd,
    pub port: u16,
}

pub struct Config {
    pub execution: String,
    /// TCP listeners from inside, of both families, one per allowed port.
    pub listeners: Vec<OwnedFd>,
    /// A UDP socket on `[::]:53` inside, of both families.
    pub dns_udp: OwnedFd,
    /// The TCP listener on the same.
    pub dns_tcp: OwnedFd,
    pub rules: Arc<dyn Rules>,
    pub witness: Arc<dyn Witness>,
    pub resolve: Arc<dyn Resolve>,
    pub publish: Vec<Published>,
    /// Needed where something is published.
    pub inside: Option<Inside>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("execution", &self.execution)
            .field("listeners", &self.listeners)
            .field("publish", &self.publish)
            .finish_non_exhaustive()
    }
}

/// A running egress. Dropping it stops it too, without waiting.
#[derive(Debug)]
pub struct Egress {
    stop: oneshot::Sender<()>,
    stopped: mpsc::Receiver<()>,
    ledger: Arc<Ledger>,
}

impl Egress {
    /// Starts the thread. When this returns, every donated socket is being served.
    pub fn start(config: Config) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(LOOKUPS)
            .build()?;
        let ledger = Arc::new(Ledger::default());
        Sockets::open(config, &runtime, &ledger)?;
        let (stop, asked) = oneshot::channel::<()>();
        let (done, stopped) = mpsc::channel();
        Builder::new().name("egress".to_owned()).spawn(move || {
            match runtime.block_on(asked) {
                // Asked to stop, or nobody is left who could ask.
                Ok(()) | Err(_) => {}
            }
            // Lookups in flight keep their threads until they answer; nothing waits for them.
            runtime.shutdown_background();
            match done.send(()) {
                // Nobody waits any more.
                Ok(()) | Err(_) => {}
            }
        })?;
        Ok(Self { stop, stopped, ledger })
    }

    /// Closes every connection and tells what was carried.
    pub fn stop(self) -> Vec<HostTraffic> {
        match self.stop.send(()) {
            // The thread is gone already.
            Ok(()) | Err(()) => {}
        }
        match self.stopped.recv_timeout(STOP) {
            // The counts stand either way.
            Ok(()) | Err(_) => {}
        }
        self.ledger.total()
    }
}

/// The donated sockets, known to the runtime.
struct Sockets {
    listeners: Vec<TcpListener>,
    dns_udp: UdpSocket,
    dns_tcp: TcpListener,
    published: Vec<(TcpListener, u16, Inside)>,
}

impl Sockets {
    fn open(config: Config, runtime: &Runtime, ledger: &Arc<Ledger>) -> io::Result<()> {
        let entered = runtime.enter();
        let mut published = Vec::new();
        for Published { listener, port } in config.publish {
            let inside = config.inside.clone().ok_or(io::ErrorKind::InvalidInput)?;
            published.push((accept::listen(listener)?, port, inside));
        }
        let listeners: io::Result<_> = config.listeners.into_iter().map(accept::listen).collect();
        let sockets = Self {
            listeners: listeners?,
            dns_udp: nameserver::prepare(config.dns_udp)?,
            dns_tcp: accept::listen(config.dns_tcp)?,
            published,
        };
        drop(entered);
        let Config { execution, rules, witness, resolve, .. } = config;
        let shared = Arc::new(Shared::new(execution, rules, witness, resolve, Arc::clone(ledger)));
        sockets.serve(runtime, &shared);
        Ok(())
    }

    fn serve(self, runtime: &Runtime, shared: &Arc<Shared>) {
        runtime.spawn(nameserver::udp(Arc::clone(shared), self.dns_udp));
        runtime.spawn(nameserver::tcp(Arc::clone(shared), self.dns_tcp));
        for listener in self.listeners {
            runtime.spawn(accept::serve(Arc::clone(shared), listener));
        }
        for (listener, port, inside) in self.published {
            runtime.spawn(publish::serve(Arc::clone(shared), listener, port, inside));
        }
    }
}
