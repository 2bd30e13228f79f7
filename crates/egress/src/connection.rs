//! One connection out of the sandbox, from its destination address to its end: judge, resolve, check
//! each address, dial, relay. The program's own socket never leaves its namespace.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::accept::reset;
use crate::asked::{Asked, Host};
use crate::dial::{dial, is_own};
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
            shared.connected(&asked, cannot_connect(addresses.first().copied(), &error));
            return reset(client);
        }
    };
    if let Some(fate) = turned_back(shared, &asked, &outside, address) {
        shared.connected(&asked, fate);
        reset(client);
        return reset(outside);
    }
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

/// The reason of a denial, for whoever tells what would have to be listed.
pub const OWN_ADDRESS: &str = "this host's own address";

/// A name may lead to this host by an address that isn't private; what listens here is closed to names like
/// what listens on its loopback. Nothing was sent yet.
fn turned_back(shared: &Shared, asked: &Asked, outside: &TcpStream, address: IpAddr) -> Option<Fate> {
    if shared.rules.address(address, asked.port).is_some() {
        return None;
    }
    match is_own(outside, address) {
        Ok(false) => None,
        Ok(true) => {
            let detail = format!("the name resolves to {address}: {OWN_ADDRESS}");
            Some(Fate::Denied(Some(address), detail))
        }
        Err(error) => Some(cannot_connect(Some(address), &error)),
    }
}

fn cannot_connect(address: Option<IpAddr>, error: &io::Error) -> Fate {
    Fate::Allowed(address, Some(format!("can't connect: {error}")))
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
