//! What the live walls saw: events as lines for whoever listens, and the list of what was blocked. Written by
//! supervisor threads, read by the loop; both parts are bounded, because the command chooses how much
//! there is to tell.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use stockade_egress::HandedOut;
use stockade_policy::{SocketAddress, SocketVerdict, guidance_for_host, guidance_for_socket, socket_reason};
use stockade_proto::{
    Blocked, Bytes, Decision, Event, Layer, Network, NetworkKind, NetworkOp, Plan, SocketOperation,
    SocketRule, UnixSocketOp, Unreached,
};
use stockade_sockets::{Outward, Transport};

use super::network;

/// Different targets in a result; more are counted together, in one entry behind them.
const MOST_BLOCKED: usize = 256;
/// Lines that wait for a slow reader.
const MOST_WAITING: usize = 1024 * 1024;

const DNS: u16 = 53;

/// What becomes of calls that lead out of the network namespace. What an allowlist's relay accepts, it tells of
/// itself; of the rest the kernel says no, and only the supervisor of sockets sees it.
#[derive(Debug)]
enum Border {
    Open,
    Shut,
    /// Open on these TCP ports, and for names.
    Ports(Vec<u16>),
}

impl Border {
    /// Why nothing comes of it, if so.
    fn stops(&self, outward: &Outward) -> Option<String> {
        let Outward { operation, transport, address } = outward;
        let sends = *operation == SocketOperation::Send;
        match (self, transport) {
            (Self::Open, _) => None,
            // Programs connect a datagram socket to learn which address of theirs it would be sent from.
            (_, Transport::Udp) if !sends && address.port() != DNS => None,
            (_, Transport::Tcp) if sends => None,
            (Self::Shut, _) => Some("`network` is `deny`".to_owned()),
            (Self::Ports(ports), Transport::Tcp) if ports.contains(&address.port()) => None,
            (Self::Ports(_), Transport::Tcp) => {
                Some(format!("no entry of `egress.allow` has port {}", address.port()))
            }
            (Self::Ports(_), Transport::Udp) if address.port() == DNS => None,
            (Self::Ports(_), Transport::Udp) => Some("an allowlist opens TCP only".to_owned()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    execution: String,
    rules: Vec<SocketRule>,
    /// None where there is no allowlist.
    hosts: Option<network::Rules>,
    border: Border,
    /// What the relay calls its addresses, once it runs.
    handed: OnceLock<HandedOut>,
    written: Mutex<Written>,
    /// Readable when lines wait.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Written {
    blocked: Vec<Blocked>,
    /// Denials of further targets.
    others: u64,
    unreached: Vec<Unreached>,
    lines: Vec<u8>,
    /// Events that found no room.
    lost: u64,
}

impl Ledger {
    pub(super) fn new(plan: &Plan, execution: &str) -> Result<Self, Errno> {
        Ok(Self {
            execution: execution.to_owned(),
            border: match &plan.network {
                Network::Allowlist(rules) => Border::Ports(network::Rules::new(rules).ports()),
                Network::Deny => Border::Shut,
                Network::Inherit => Border::Open,
            },
            handed: OnceLock::new(),
            rules: plan.sockets.as_ref().map(|sockets| sockets.rules.clone()).unwrap_or_default(),
            hosts: match &plan.network {
                Network::Allowlist(rules) => Some(network::Rules::new(rules)),
                Network::Deny | Network::Inherit => None,
            },
            written: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn knows(&self, handed: HandedOut) {
        match self.handed.set(handed) {
            // There is one relay.
            Ok(()) | Err(_) => {}
        }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        // Nothing is left half-done in it by a thread that ended.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn blocked(&self) -> Vec<Blocked> {
        let mut written = self.written();
        let mut blocked = std::mem::take(&mut written.blocked);
        let others = std::mem::take(&mut written.others);
        if others > 0 {
            blocked.push(Blocked {
                layer: None,
                operation: "others".to_owned(),
                target: Bytes::from("others"),
                rule: None,
                reason: format!("more than {MOST_BLOCKED} targets were blocked; the events name the rest"),
                guidance: String::new(),
                count: others,
            });
        }
        blocked
    }

    pub(super) fn unreached(&self) -> Vec<Unreached> {
        std::mem::take(&mut self.written().unreached)
    }

    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The lines since the last time.
    pub(crate) fn lines(&self) -> Vec<u8> {
        let mut count = [0; 8];
        match rustix::io::read(&self.wake, &mut count) {
            // Only resets it.
            Ok(_) | Err(_) => {}
        }
        let mut written = self.written();
        let mut lines = std::mem::take(&mut written.lines);
        if written.lost > 0 {
            lines.extend_from_slice(
                format!("{{\"type\":\"events_lost\",\"count\":{}}}\n", written.lost).as_bytes(),
            );
            written.lost = 0;
        }
        lines
    }

    fn record(&self, event: &Event, blocked: Option<Blocked>) {
        let mut written = self.written();
        if let Event::NetworkOp(op) = event
            && let (Decision::Allow, Some(port), Some(reason)) = (op.decision, op.port, &op.detail)
        {
            written.miss(&op.host, port, reason);
        }
        match serde_json::to_vec(event) {
            Ok(line) if written.lines.len() + line.len() < MOST_WAITING => {
                written.lines.extend_from_slice(&line);
                written.lines.push(b'\n');
            }
            Ok(_) | Err(_) => written.lost += 1,
        }
        if let Some(blocked) = blocked {
            written.block(blocked);
        }
        drop(written);
        match rustix::io::write(&self.wake, &1_u64.to_ne_bytes()) {
            // Full means that it is readable, which is all it has to be.
            Ok(_) | Err(_) => {}
        }
    }

    fn blocked_socket(&self, op: &UnixSocketOp) -> Blocked {
        let address = if op.is_abstract {
            SocketAddress::Abstract(op.path.as_slice())
        } else {
            SocketAddress::Path(op.path.as_slice())
        };
        let rule = op.rule.as_ref().and_then(|name| self.rules.iter().find(|rule| rule.name == *name));
        let reason = match &op.detail {
            Some(detail) => detail.clone(),
            None => socket_reason(op.operation, address, &SocketVerdict { decision: op.decision, rule }),
        };
        let mark: &[u8] = if op.is_abstract { b"@" } else { b"" };
        Blocked {
            layer: Some(Layer::Sockets),
            operation: op.operation.name().to_owned(),
            target: Bytes::from([mark, op.path.as_slice()].concat()),
            rule: op.rule.clone(),
            reason,
            // What no rule has decided, no rule would allow.
            guidance: if op.detail.is_some() {
                String::new()
            } else {
                guidance_for_socket(op.operation, address)
            },
            count: 1,
        }
    }
}

impl Written {
    fn miss(&mut self, host: &str, port: u16, reason: &str) {
        let same = |known: &&mut Unreached| known.host == host && known.port == port;
        if let Some(known) = self.unreached.iter_mut().find(same) {
            known.count += 1;
            reason.clone_into(&mut known.reason);
        } else if self.unreached.len() < MOST_BLOCKED {
            let (host, reason) = (host.to_owned(), reason.to_owned());
            self.unreached.push(Unreached { host, port, reason, count: 1 });
        }
    }

    fn block(&mut self, blocked: Blocked) {
        let same = |known: &&mut Blocked| {
            known.operation == blocked.operation
                && known.target == blocked.target
                && known.rule == blocked.rule
                && known.reason == blocked.reason
        };
        if let Some(known) = self.blocked.iter_mut().find(same) {
            known.count += blocked.count;
        } else if self.blocked.len() < MOST_BLOCKED {
            self.blocked.push(blocked);
        } else {
            self.others += blocked.count;
        }
    }
}

fn blocked_host(op: &NetworkOp, guidance: String) -> Blocked {
    let target = match op.port {
        Some(port) => format!("{}:{port}", op.host),
        None => op.host.clone(),
    };
    Blocked {
        layer: Some(Layer::Network),
        operation: match op.operation {
            NetworkKind::Resolve => "resolve",
            NetworkKind::Connect => "connect",
            NetworkKind::Send => "send",
        }
        .to_owned(),
        target: Bytes::from(target),
        rule: op.rule.clone(),
        reason: op.detail.clone().unwrap_or_else(|| format!("`{}` is not in `egress.allow`", op.host)),
        guidance,
        count: 1,
    }
}

impl stockade_sockets::Witness for Ledger {
    fn saw(&self, op: UnixSocketOp) {
        let blocked = (op.decision == Decision::Deny).then(|| self.blocked_socket(&op));
        self.record(&Event::UnixSocketOp(op), blocked);
    }

    fn saw_outward(&self, outward: Outward) {
        let Some(why) = self.border.stops(&outward) else { return };
        let (address, port) = (outward.address.ip(), outward.address.port());
        let name = self.handed.get().and_then(|handed| handed.name(address));
        let op = NetworkOp {
            execution: self.execution.clone(),
            operation: match outward.transport {
                Transport::Tcp => NetworkKind::Connect,
                Transport::Udp => NetworkKind::Send,
            },
            host: name.unwrap_or_else(|| address.to_string()),
            port: Some(port),
            address: None,
            decision: Decision::Deny,
            rule: None,
            detail: Some(why),
        };
        // No entry opens UDP.
        let guidance = match outward.transport {
            Transport::Tcp => guidance_for_host(&op.host, op.port),
            Transport::Udp => String::new(),
        };
        let blocked = blocked_host(&op, guidance);
        self.record(&Event::NetworkOp(op), Some(blocked));
    }
}

impl stockade_egress::Witness for Ledger {
    fn saw(&self, mut op: NetworkOp) {
        if let (Some(hosts), Some(port), Some(rule)) = (&self.hosts, op.port, &mut op.rule) {
            // What names the host first need not be what opens the port.
            *rule = hosts.opening(&op.host, port).unwrap_or_else(|| std::mem::take(rule));
        }
        let guidance = || self.hosts.as_ref().map(|hosts| hosts.guidance(&op)).unwrap_or_default();
        let blocked = (op.decision == Decision::Deny).then(|| blocked_host(&op, guidance()));
        self.record(&Event::NetworkOp(op), blocked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_egress::Witness as _;
    use stockade_proto::{EgressPlan, Target, TargetHost};

    fn ledger() -> Ledger {
        let target = |name: &str, port: u16| Target {
            host: TargetHost::Name { name: name.to_owned() },
            ports: vec![port],
            rule: format!("{name}:{port}"),
            origin: None,
        };
        let plan = EgressPlan { targets: vec![target("a.example", 443), target("a.example", 8443)] };
        Ledger {
            execution: "x".to_owned(),
            rules: Vec::new(),
            hosts: Some(network::Rules::new(&plan)),
            border: Border::Ports(network::Rules::new(&plan).ports()),
            handed: OnceLock::new(),
            written: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd"),
        }
    }

    fn denial(host: &str, port: Option<u16>) -> NetworkOp {
        NetworkOp {
            execution: "x".to_owned(),
            operation: if port.is_some() { NetworkKind::Connect } else { NetworkKind::Resolve },
            host: host.to_owned(),
            port,
            address: None,
            decision: Decision::Deny,
            rule: None,
            detail: Some("why".to_owned()),
        }
    }

    fn guidance(op: NetworkOp) -> String {
        let ledger = ledger();
        ledger.saw(op);
        ledger.blocked().remove(0).guidance
    }

    #[test]
    fn guidance_is_given_where_it_helps() {
        for (host, port, entry) in [
            ("b.example", None, "\"b.example\""),
            ("b.example", Some(443), "\"b.example:443\""),
            ("a.example", Some(80), "\"a.example:80\""),
            ("1.1.1.1", Some(443), "\"1.1.1.1:443\""),
        ] {
            let text = guidance(denial(host, port));
            assert!(text.contains(entry) && !text.contains("private"), "{host}: {text}");
        }
        // Listed already: a limit of names, of connections, or what the connection carried.
        assert_eq!(guidance(denial("a.example", None)), "");
        assert_eq!(guidance(denial("a.example", Some(443))), "");
        let carried = NetworkOp { address: Some("1.1.1.1".to_owned()), ..denial("a.example", Some(443)) };
        assert_eq!(guidance(carried), "");
        let closed = NetworkOp { address: Some("10.0.0.7".to_owned()), ..denial("a.example", Some(443)) };
        let text = guidance(closed);
        assert!(text.contains("\"10.0.0.7:443\"") && text.contains("opens a private range"), "{text}");
        for none in ["*", "(too many)"] {
            assert_eq!(guidance(denial(none, None)) + &guidance(denial(none, Some(443))), "", "{none}");
        }
    }

    #[test]
    fn the_rule_is_the_one_that_opens_the_port() {
        let ledger = ledger();
        let first = || Some("a.example:443".to_owned());
        ledger.saw(NetworkOp { decision: Decision::Allow, rule: first(), ..denial("a.example", Some(8443)) });
        ledger.saw(NetworkOp { rule: first(), ..denial("a.example", Some(8443)) });
        ledger.saw(NetworkOp { rule: first(), ..denial("a.example", None) });
        let lines = String::from_utf8(ledger.lines()).expect("JSON");
        assert_eq!(lines.matches("\"a.example:8443\"").count(), 2, "{lines}");
        assert_eq!(lines.matches("\"a.example:443\"").count(), 1, "{lines}");
        assert_eq!(ledger.blocked()[0].rule.as_deref(), Some("a.example:8443"));
    }

    #[test]
    fn what_the_border_stops_is_told() {
        let out = |operation, transport, address: &str| Outward {
            operation,
            transport,
            address: address.parse().expect("an address"),
        };
        let (connect, send) = (SocketOperation::Connect, SocketOperation::Send);
        let (tcp, udp) = (Transport::Tcp, Transport::Udp);
        let listed = Border::Ports(vec![443]);
        for (border, operation, transport, address, stops) in [
            (&Border::Open, connect, tcp, "192.0.2.1:9", false),
            (&Border::Shut, connect, tcp, "192.0.2.1:443", true),
            (&Border::Shut, connect, udp, "192.0.2.1:53", true),
            (&Border::Shut, connect, udp, "192.0.2.1:443", false),
            (&Border::Shut, send, udp, "192.0.2.1:443", true),
            (&listed, connect, tcp, "192.0.2.1:443", false),
            (&listed, connect, tcp, "[2001:db8::1]:80", true),
            (&listed, send, udp, "192.0.2.1:53", false),
            (&listed, connect, udp, "192.0.2.1:53", false),
            (&listed, send, udp, "192.0.2.1:443", true),
            (&listed, send, tcp, "192.0.2.1:80", false),
        ] {
            let outward = out(operation, transport, address);
            assert_eq!(border.stops(&outward).is_some(), stops, "{border:?} {outward:?}");
        }
        let ledger = ledger();
        for _ in 0..2 {
            stockade_sockets::Witness::saw_outward(&ledger, out(connect, tcp, "192.0.2.1:80"));
        }
        stockade_sockets::Witness::saw_outward(&ledger, out(connect, tcp, "192.0.2.1:443"));
        let blocked = ledger.blocked();
        let [one] = blocked.as_slice() else { panic!("{blocked:?}") };
        assert_eq!((one.target.to_string().as_str(), one.count), ("192.0.2.1:80", 2));
        assert!(one.guidance.contains("192.0.2.1:80") && one.reason.contains("port 80"), "{one:?}");
    }

    #[test]
    fn further_targets_are_counted_apart() {
        let ledger = ledger();
        for number in 0..MOST_BLOCKED + 3 {
            ledger.saw(denial(&format!("h{number}.example"), Some(443)));
        }
        ledger.saw(denial("h0.example", Some(443)));
        let blocked = ledger.blocked();
        assert_eq!(blocked.len(), MOST_BLOCKED + 1);
        let counts = blocked.iter().map(|entry| entry.count).collect::<Vec<_>>();
        assert_eq!((counts[0], counts[MOST_BLOCKED - 1], counts[MOST_BLOCKED]), (2, 1, 3));
        let (last, others) = (&blocked[MOST_BLOCKED - 1], &blocked[MOST_BLOCKED]);
        assert!(last.target.to_string() == "h255.example:443" && last.reason == "why");
        assert!(others.target.to_string() == "others" && others.guidance.is_empty());
        assert!(ledger.blocked().is_empty());
    }
}
