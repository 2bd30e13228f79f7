//! A sandbox with its egress, rules and resolver of the test's making, and what the witness saw.

use std::collections::HashMap;
use std::io::{self, Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use stockade_charge::Charge;
use stockade_egress::{
    Allow as Out, Closed, Config, Egress, Named, Published, Resolve, Resolving, Rules, Witness,
};
use stockade_proto::{Decision, HostTraffic, NetworkOp};

use crate::sandbox::Sandbox;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Connections at once to published ports.
pub(crate) const SLOTS: usize = 2;

/// Names and addresses with their ports. `127.77.0.0/16` plays the world outside.
#[derive(Default)]
pub(crate) struct Allow {
    pub(crate) names: Vec<(&'static str, Vec<u16>)>,
    pub(crate) addresses: Vec<(IpAddr, u16)>,
    /// Not closed to names, though it is loopback.
    pub(crate) public: Vec<IpAddr>,
}

impl Rules for Allow {
    fn name(&self, name: &str) -> Option<Named> {
        let found = self.names.iter().find(|(rule, _)| match rule.strip_prefix('*') {
            Some(tail) => name.ends_with(tail) && name.len() > tail.len(),
            None => *rule == name,
        })?;
        Some(Named { ports: found.1.clone(), rule: found.0.to_owned() })
    }

    fn reachable(&self, address: IpAddr, port: u16) -> Result<(), Closed> {
        if self.public.contains(&address) || self.addresses.contains(&(address, port)) {
            return Ok(());
        }
        match address {
            IpAddr::V4(four) if four.octets()[..2] == [127, 77] => Ok(()),
            IpAddr::V4(four) if four.is_loopback() => Err(Closed("a loopback address")),
            IpAddr::V4(four) if four.is_link_local() => Err(Closed("a link-local address")),
            IpAddr::V4(four) if four.is_private() => Err(Closed("a private address")),
            IpAddr::V6(six) if six.is_loopback() => Err(Closed("a loopback address")),
            IpAddr::V6(six) if six.is_unicast_link_local() => Err(Closed("a link-local address")),
            IpAddr::V6(six) if six.is_unique_local() => Err(Closed("a private address")),
            IpAddr::V4(_) | IpAddr::V6(_) => Ok(()),
        }
    }

    fn address(&self, address: IpAddr, port: u16) -> Option<String> {
        self.addresses.contains(&(address, port)).then(|| address.to_string())
    }
}

#[derive(Clone)]
pub(crate) enum Answer {
    Addresses(Vec<IpAddr>),
    Down,
    Never,
    Late(Duration, IpAddr),
}

/// Each name's answers in turn; the last one stays.
#[derive(Default)]
pub(crate) struct Book {
    answers: Mutex<HashMap<String, Vec<Answer>>>,
    asked: Mutex<Vec<String>>,
}

impl Book {
    pub(crate) fn set(&self, name: &str, answers: Vec<Answer>) {
        self.answers.lock().unwrap().insert(name.to_owned(), answers);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Book {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.get_mut(name) {
            Some(list) if list.len() > 1 => list.remove(0),
            Some(list) => list[0].clone(),
            None => Answer::Down,
        };
        Box::pin(async move {
            match answer {
                Answer::Addresses(addresses) => Ok(addresses),
                Answer::Down => Err(io::Error::other("the resolver is down")),
                Answer::Never => std::future::pending().await,
                Answer::Late(delay, address) => {
                    tokio::time::sleep(delay).await;
                    Ok(vec![address])
                }
            }
        })
    }
}

#[derive(Default)]
pub(crate) struct Seen {
    ops: Mutex<Vec<NetworkOp>>,
    changed: Condvar,
}

impl Witness for Seen {
    fn saw(&self, op: NetworkOp) {
        self.ops.lock().unwrap().push(op);
        self.changed.notify_all();
    }
}

impl Seen {
    pub(crate) fn all(&self) -> Vec<NetworkOp> {
        self.ops.lock().unwrap().clone()
    }

    /// Waits for the event.
    pub(crate) fn wait(&self, wanted: impl Fn(&NetworkOp) -> bool) -> NetworkOp {
        let deadline = Instant::now() + PATIENCE;
        let mut ops = self.ops.lock().unwrap();
        loop {
            if let Some(op) = ops.iter().find(|op| wanted(op)) {
                return op.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no such event among {ops:#?}");
            ops = self.changed.wait_timeout(ops, left).unwrap().0;
        }
    }

    pub(crate) fn denial(&self, host: &str, detail: &str) -> NetworkOp {
        self.wait(|op| {
            op.host == host
                && op.decision == Decision::Deny
                && op.detail.as_deref().is_some_and(|text| text.contains(detail))
        })
    }
}

pub(crate) struct World {
    // Dropped first: nothing may touch the sockets after the namespace.
    egress: Option<Egress>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) book: Arc<Book>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) charge: Arc<Charge>,
}

impl World {
    /// With listeners on the ports of the rules.
    pub(crate) fn new(allow: Allow) -> Option<Self> {
        Self::publishing(allow, Vec::new())
    }

    pub(crate) fn publishing(allow: Allow, publish: Vec<Published>) -> Option<Self> {
        Self::sharing(allow, publish, None)
    }

    /// With a share of the CPU, in thousandths of a core.
    pub(crate) fn sharing(allow: Allow, publish: Vec<Published>, share: Option<u64>) -> Option<Self> {
        let sandbox = Arc::new(Sandbox::new()?);
        let (book, seen) = (Arc::new(Book::default()), Arc::new(Seen::default()));
        let named = allow.names.iter().flat_map(|(_, ports)| ports.clone());
        let mut ports: Vec<u16> = named.chain(allow.addresses.iter().map(|(_, port)| *port)).collect();
        ports.sort_unstable();
        ports.dedup();
        let out = Out {
            listeners: ports.iter().map(|port| sandbox.listener(*port)).collect(),
            dns_udp: sandbox.datagrams("[::]:53"),
            dns_tcp: sandbox.listener(53),
            rules: Arc::new(allow),
            witness: Arc::<Seen>::clone(&seen),
            resolve: Arc::<Book>::clone(&book),
        };
        // Publishing alone has no way out.
        let (allow, inside) = if publish.is_empty() {
            (Some(out), Vec::new())
        } else {
            (None, (0..SLOTS).map(|_| sandbox.inside()).collect())
        };
        let charge = Arc::new(Charge::new(share));
        let execution = "x1".to_owned();
        let config = Config { execution, allow, publish, inside, charge: Arc::clone(&charge) };
        let egress = Egress::start(config).unwrap();
        Some(Self { egress: Some(egress), sandbox, book, seen, charge })
    }

    /// One listed name that resolves to the server.
    pub(crate) fn with_server(name: &'static str, server: &TcpListener) -> Option<Self> {
        let address = server.local_addr().unwrap();
        let world = Self::new(Allow { names: vec![(name, vec![address.port()])], ..Allow::default() })?;
        world.book.set(name, vec![Answer::Addresses(vec![address.ip()])]);
        Some(world)
    }

    pub(crate) fn stop(mut self) -> Vec<HostTraffic> {
        self.egress.take().unwrap().stop()
    }

    pub(crate) fn ask(&self, name: &str, kind: RecordType) -> Message {
        let socket = self.sandbox.udp("0.0.0.0:0");
        socket.connect("192.0.2.53:53").unwrap();
        socket.send(&query(name, kind)).unwrap();
        let mut buffer = [0; 2000];
        let count = socket.recv(&mut buffer).unwrap();
        Message::from_vec(&buffer[..count]).unwrap()
    }

    pub(crate) fn four(&self, name: &str) -> IpAddr {
        addresses(&self.ask(name, RecordType::A))[0]
    }

    pub(crate) fn six(&self, name: &str) -> IpAddr {
        addresses(&self.ask(name, RecordType::AAAA))[0]
    }

    /// By name, as a program does: lookup, then connect.
    pub(crate) fn dial(&self, name: &str, port: u16) -> TcpStream {
        self.sandbox.connect(self.four(name), port).unwrap()
    }
}

pub(crate) fn query(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.to_vec().unwrap()
}

pub(crate) fn addresses(message: &Message) -> Vec<IpAddr> {
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
    message.answers.iter().filter_map(|record| record.data.ip_addr()).collect()
}

/// A server of the world outside, on an address of its own.
pub(crate) fn server(last: u8) -> TcpListener {
    TcpListener::bind((Ipv4Addr::new(127, 77, 0, last), 0)).unwrap()
}

pub(crate) fn port(server: &TcpListener) -> u16 {
    server.local_addr().unwrap().port()
}

pub(crate) fn accept(server: &TcpListener) -> TcpStream {
    let (stream, _) = server.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The peer's end was a reset, not an ordinary close.
pub(crate) fn assert_reset(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let error = stream.read_to_end(&mut rest).expect_err("a reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

/// As `assert_reset`, of a client that still writes: the reset may come before that, and is told then.
pub(crate) fn assert_refused(stream: &mut TcpStream, bytes: &[u8]) {
    match stream.write_all(bytes) {
        Ok(()) => assert_reset(stream),
        Err(error) => {
            let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
    }
}
