//! What to tell whoever was denied: why, in a sentence, and the lines that a person would add to a profile.
//! The lines are TOML that parses; whether to add them is the person's to say.

use std::net::IpAddr;

use stockade_proto::{Bytes, Decision, SocketOperation, TargetHost};

use crate::decide::{EgressVerdict, SocketAddress, SocketVerdict, closed_range};
use crate::explain::toml_string;
use crate::socket_paths::escape;
use crate::target::{self, Entry};

/// Rule names are short.
const NAME_LENGTH: usize = 40;
/// Why there is no guidance.
const NOT_TEXT: &str = "; the name is not text, so that no rule can be written for just this socket";

/// A `[[unix_sockets]]` rule that allows just this; empty where none can: TOML holds only UTF-8, and a wildcard in
/// place of a byte would open other names too.
pub fn guidance_for_socket(operation: SocketOperation, address: SocketAddress<'_>) -> String {
    let (mark, bytes) = match address {
        SocketAddress::Path(path) => ("", path),
        SocketAddress::Abstract(name) => ("@", name),
    };
    let Ok(text) = std::str::from_utf8(bytes) else { return String::new() };
    // A server that may not listen, or a client that may not send, is no use; datagram clients bind too.
    let operations = match operation {
        SocketOperation::Connect => "\"connect\"",
        SocketOperation::Send => "\"send\"",
        SocketOperation::Bind | SocketOperation::Listen => "\"bind\", \"listen\"",
    };
    let path = format!("{mark}{}", text_pattern(text));
    format!(
        "[[unix_sockets]]\nname = {}\npaths = [{}]\noperations = [{operations}]\ndecision = \"allow\"\n",
        plain_string(&rule_name(bytes)),
        plain_string(&path),
    )
}

/// The pattern of just this name.
fn text_pattern(name: &str) -> String {
    // An empty name is what the kernel fills in itself.
    if name.is_empty() {
        "*".to_owned()
    } else {
        String::from_utf8_lossy(&escape(name.as_bytes())).into_owned()
    }
}

/// A string of TOML that a person sees all of, before pasting it.
fn plain_string(text: &str) -> String {
    let mut out = String::new();
    for c in toml_string(text).chars() {
        match u32::from(c) {
            _ if !Bytes::is_unseen(c) => out.push(c),
            number @ ..=0xffff => out.push_str(&format!("\\u{number:04X}")),
            number => out.push_str(&format!("\\U{number:08X}")),
        }
    }
    out
}

fn rule_name(bytes: &[u8]) -> String {
    let plain = bytes.iter().map(|byte| if byte.is_ascii_alphanumeric() { char::from(*byte) } else { '-' });
    let name = plain.collect::<String>();
    let parts = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let from = parts.len().saturating_sub(NAME_LENGTH);
    let tail = parts.get(from..).unwrap_or(&parts).trim_matches('-');
    if tail.is_empty() { "socket".to_owned() } else { tail.to_owned() }
}

/// An `[egress]` entry for just this host and port; empty where no entry could be written for it.
pub fn guidance_for_host(host: &str, port: Option<u16>) -> String {
    let address = host.parse::<IpAddr>().ok();
    let is_v6 = address.is_some_and(|address| address.to_canonical().is_ipv6());
    let entry = match port {
        Some(port) if is_v6 => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    match target::parse(&entry) {
        Ok(Entry::Host { host: TargetHost::Name { .. } | TargetHost::Net { .. }, .. }) => {}
        Ok(Entry::Host { host: TargetHost::Below { .. }, .. } | Entry::Set(_)) | Err(_) => {
            return String::new();
        }
    }
    let closed = address.and_then(closed_range);
    let mind = closed.map(|range| format!("; opens a private range: {host} is {}", range.0));
    format!(
        "network = \"allowlist\"\n\n[egress]\nallow = [{}]  # beside what is listed already{}\n",
        plain_string(&entry),
        mind.unwrap_or_default()
    )
}

/// `/path` or `@name`.
pub fn show_address(address: SocketAddress<'_>) -> String {
    match address {
        SocketAddress::Path(path) => Bytes::from(path).to_string(),
        SocketAddress::Abstract(name) => format!("@{}", Bytes::from(name)),
    }
}

/// Why a call on a socket was decided so.
pub fn socket_reason(
    operation: SocketOperation,
    address: SocketAddress<'_>,
    verdict: &SocketVerdict<'_>,
) -> String {
    let bytes = match address {
        SocketAddress::Path(bytes) | SocketAddress::Abstract(bytes) => bytes,
    };
    let denied = verdict.decision == Decision::Deny;
    let mind = if denied && std::str::from_utf8(bytes).is_err() { NOT_TEXT } else { "" };
    let address = show_address(address);
    let what = match operation {
        SocketOperation::Connect => "connecting to",
        SocketOperation::Bind => "binding",
        SocketOperation::Listen => "listening on",
        SocketOperation::Send => "sending to",
    };
    let Some(rule) = verdict.rule else { return format!("no socket rule allows {what} `{address}`{mind}") };
    let verb = match rule.decision {
        Decision::Allow => "allows",
        Decision::Deny => "denies",
        Decision::Audit => "allows and records",
    };
    let place = rule.origin.as_ref().map_or_else(|| "built-in".to_owned(), ToString::to_string);
    let message =
        rule.message.as_ref().map(|text| format!(": {}", Bytes::from(text.as_str()))).unwrap_or_default();
    format!(
        "the socket rule `{}` ({place}) {verb} {what} `{address}`{message}{mind}",
        Bytes::from(rule.name.as_str())
    )
}

/// Why a host was decided so.
pub fn host_reason(host: &str, port: Option<u16>, verdict: &EgressVerdict<'_>) -> String {
    let host = Bytes::from(host);
    let at = port.map(|port| format!(":{port}")).unwrap_or_default();
    match verdict {
        EgressVerdict::Allowed(target) => {
            let place = target.origin.as_ref().map_or_else(String::new, |origin| format!(" ({origin})"));
            format!("`{host}{at}` is allowed by `{}`{place}", Bytes::from(target.rule.as_str()))
        }
        EgressVerdict::Unlisted => format!("`{host}` is not in `egress.allow`"),
        EgressVerdict::OtherPort(target) => {
            let ports = target.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ");
            format!(
                "`{}` allows `{host}` on port {ports}, not on {}",
                Bytes::from(target.rule.as_str()),
                port.map_or_else(|| "another".to_owned(), |port| port.to_string())
            )
        }
        EgressVerdict::Closed(range) => {
            format!(
                "`{host}{at}` leads to an address that is {}: only its number in `egress.allow` opens it",
                range.0
            )
        }
    }
}
