//! One connection out of the sandbox, from its destination address to its end: judge, resolve, check
//! each address, dial, relay. The program's own socket never leaves its namespace.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::accept::reset;
use crate::asked::{Asked, Host};
use crate::dial::dial;
use crate::gate::Gate;
use crate::relay::{self, Ending, Side};
use crate::resolve;
use crate::shared::{Fate, Shared};

pub(crate) async fn serve(shared: &Shared, client: TcpStream, destination: (IpAddr, u16)) {
    let Some(asked) = judge(shared, destination) else { return reset(client) };
    let Some(addresses) = checked(shared, &asked).await else { return reset(client) };
    let (outside, address) = match dial(&addresses, asked.port).await {
        Ok(connected) => connected,
        Err(error) => {
            let first = addresses.first().copied();
            shared.connected(&asked, Fate::Allowed(first, Some(format!("can't connect: {error}"))));
            return reset(client);
        }
    };
    shared.connected(&asked, Fate::Allowed(Some(address), None));
    carry(shared, asked, client, (outside, address)).await;
}

/// Which rule allows it; none where the denial was told.
fn judge(shared: &Shared, (address, port): (IpAddr, u16)) -> Option<Asked> {
    let Some(name) = shared.name_at(address) else {
        let host = Host::Address(address);
        return match shared.rules.address(address, port) {
            Some(rule) => Some(Asked { host, port, rule }),
            None => {
                shared.denied(&host, port, "not in the allowlist");
                None
            }
        };
    };
    let named = shared.rules.name(&name);
    let host = Host::Name(name);
    match named {
        Some(named) if named.ports.contains(&port) => Some(Asked { host, port, rule: named.rule }),
        Some(_) | None => {
            shared.denied(&host, port, "not in the allowlist for this port");
            None
        }
    }
}

/// The addresses it may go to. A name is resolved anew for each connection, and what is dialled is what was
/// checked: an answer that changes in between changes nothing.
async fn checked(shared: &Shared, asked: &Asked) -> Option<Vec<IpAddr>> {
    let name = match &asked.host {
        Host::Address(address) => return Some(vec![*address]),
        Host::Name(name) => name,
    };
    let found = match resolve::addresses(shared.resolve.as_ref(), name).await {
        Ok(found) => found,
        Err(error) => {
            shared.connected(asked, Fate::Allowed(None, Some(format!("can't be resolved: {error}"))));
            return None;
        }
    };
    let mut closed = None;
    let mut open = Vec::new();
    for address in found {
        match shared.rules.reachable(address, asked.port) {
            Ok(()) => open.push(address),
            Err(reason) => closed = closed.or(Some((address, reason))),
        }
    }
    match closed {
        Some((address, reason)) if open.is_empty() => {
            let detail = format!("the name resolves to {address}: {}", reason.0);
            shared.connected(asked, Fate::Denied(Some(address), detail));
            None
        }
        Some(_) | None => Some(open),
    }
}

async fn carry(shared: &Shared, asked: Asked, client: TcpStream, (outside, address): (TcpStream, IpAddr)) {
    let count = shared.ledger.row(asked.host.text(), asked.port);
    let gate = Gate::new(asked.clone(), Arc::clone(&shared.rules));
    relay::prepare(&client);
    relay::prepare(&outside);
    let up = Side { from: &client, to: &outside, moved: &count.sent, memory: &shared.memory };
    let down = Side { from: &outside, to: &client, moved: &count.received, memory: &shared.memory };
    match relay::guarded(up, down, gate).await {
        Ending::Clean => {}
        Ending::Broken => {
            reset(client);
            reset(outside);
        }
        Ending::Refused(reason) => {
            shared.connected(&asked, Fate::Denied(Some(address), format!("the connection carried {reason}")));
            reset(client);
            reset(outside);
        }
    }
}
