//! `--publish`: ports inside that the host's loopback is to reach. A person's flag only: no profile has a key
//! for it. Pure; whether the host's port is free is the executor's to find out. Next: `plan`.

use std::net::{IpAddr, Ipv4Addr};

use stockade_proto::{Code, Network, Publish, Refusal};

use crate::target::DNS_PORT;

/// Ports of one execution. Each is a listener on the host.
const MOST: usize = 16;
const FORMS: &str = "Write PORT, HOSTPORT:PORT or ADDRESS:HOSTPORT:PORT with a loopback address, such as 8080:80, 0:80 or [::1]:8080:80; a host port of 0 lets the kernel choose.";

fn refuse(message: String, remedy: &str) -> Refusal {
    Refusal::new(Code::OptionInvalid, message, remedy)
}

/// One `--publish` as written.
pub fn publish(text: &str) -> Result<Publish, Refusal> {
    let shown = text.escape_debug();
    let (rest, inside) = match text.rsplit_once(':') {
        Some((rest, inside)) => (Some(rest), inside),
        None => (None, text),
    };
    let (address, host) = match rest.map(|rest| (rest, rest.rsplit_once(':'))) {
        None => (None, inside),
        Some((host, None)) => (None, host),
        Some((_, Some((address, host)))) => (Some(address), host),
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse::<u16>().ok().filter(|_| digits);
        value.ok_or_else(|| {
            let part = text.escape_debug();
            refuse(format!("--publish {shown}: `{part}` is not a port, a number up to 65535"), FORMS)
        })
    };
    let (host_port, port) = (number(host)?, number(inside)?);
    if port == 0 {
        return Err(refuse(
            format!("--publish {shown}: port 0 can't be published"),
            "Name the port that the command listens on.",
        ));
    }
    let address = match address {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(written) => loopback(written).ok_or_else(|| {
            let written = written.escape_debug();
            refuse(format!("--publish {shown}: `{written}` is not a loopback address of this host"), FORMS)
        })?,
    };
    Ok(Publish { address, host_port, port })
}

/// IPv6 in brackets: its own colons would be read as those between the parts.
fn loopback(written: &str) -> Option<IpAddr> {
    let address = match written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(six) => IpAddr::V6(six.parse().ok()?),
        None => IpAddr::V4(written.parse().ok()?),
    };
    address.is_loopback().then_some(address)
}

/// What was asked for, if this network can have it.
pub(crate) fn checked(asked: &[Publish], network: &Network) -> Result<Vec<Publish>, Refusal> {
    let Some(first) = asked.first() else { return Ok(Vec::new()) };
    if asked.len() > MOST {
        return Err(refuse(
            format!("{} ports are to be published; {MOST} is the most", asked.len()),
            "Publish fewer ports.",
        ));
    }
    for (at, publish) in asked.iter().enumerate() {
        let host = (publish.address, publish.host_port);
        let earlier = asked.get(..at).unwrap_or_default();
        if publish.host_port != 0 && earlier.iter().any(|known| (known.address, known.host_port) == host) {
            return Err(refuse(
                format!("port {} of {} is published twice", publish.host_port, publish.address),
                "Give each --publish a host port of its own.",
            ));
        }
    }
    let egress = match network {
        Network::Deny => return Ok(asked.to_vec()),
        Network::Inherit => {
            return Err(refuse(
                format!(
                    "port {} can't be published: the command has the host's own network, so its listener is on the host already",
                    first.port
                ),
                "Leave --publish out, or use a profile with network = \"deny\" or \"allowlist\".",
            ));
        }
        Network::Allowlist(egress) => egress,
    };
    let is_ours =
        |port: u16| port == DNS_PORT || egress.targets.iter().any(|target| target.ports.contains(&port));
    match asked.iter().find(|publish| is_ours(publish.port)) {
        None => Ok(asked.to_vec()),
        Some(publish) => Err(refuse(
            format!(
                "port {} can't be published: under this allowlist it is the way out of the sandbox, and the command can't listen on it",
                publish.port
            ),
            "Let the command listen on a port that is not 53 and that `egress.allow` does not name.",
        )),
    }
}
