//! One entry of `egress.allow`, read: a host name, a wildcard, an address or a set. Every odd spelling of
//! an address is refused rather than guessed, since another reader may guess differently. Pure; it resolves
//! no name. Next: `egress` gathers the entries, `decide` answers for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use stockade_proto::TargetHost;

/// What a host without a port means: https and http.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The set that the survey fills.
pub(crate) const REGISTRIES: &str = "registries";

/// Inside, the resolver of the sandbox listens there: names are its to answer.
pub(crate) const DNS_PORT: u16 = 53;

const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Set(String),
    Host { host: TargetHost, ports: Vec<u16> },
}

/// What is wrong, and what to write instead.
pub(crate) type Mistake = (String, String);

fn mistake<T>(entry: &str, fault: &str, remedy: impl Into<String>) -> Result<T, Mistake> {
    Err((format!("`{}` {fault}", entry.escape_debug()), remedy.into()))
}

pub(crate) fn parse(entry: &str) -> Result<Entry, Mistake> {
    const FORMS: &str =
        "write host, host:port, *.host, an address, a network such as 10.1.0.0/16, or set:NAME";
    if entry.is_empty() {
        return mistake(entry, "is empty", FORMS);
    }
    if let Some(name) = entry.strip_prefix("set:") {
        if !crate::resolve::is_profile_name(name) {
            return mistake(entry, "names no set", "write set:NAME with letters, digits, `-` and `_`");
        }
        return Ok(Entry::Set(name.to_owned()));
    }
    if let Some((_, rest)) = entry.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let host = host.rsplit('@').next().unwrap_or(host);
        return mistake(entry, "is a URL, not a host", format!("write \"{}\"", host.escape_debug()));
    }
    if entry.contains('@') {
        return mistake(entry, "holds a user name", "write the host alone");
    }
    if !entry.is_ascii() {
        return mistake(entry, "is not ASCII", "write the name in its xn-- form");
    }
    if entry.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control()) {
        return mistake(entry, "holds a blank or a control character", FORMS);
    }
    let (host, port) = split(entry)?;
    let ports = match port {
        None => DEFAULT_PORTS.to_vec(),
        Some(port) => vec![self::port(entry, port)?],
    };
    Ok(Entry::Host { host: self::host(entry, host)?, ports })
}

/// Host and port. An IPv6 address takes brackets before a port, as in a URL.
fn split(entry: &str) -> Result<(&str, Option<&str>), Mistake> {
    if let Some(rest) = entry.strip_prefix('[') {
        let Some((inner, after)) = rest.split_once(']') else {
            return mistake(entry, "has a bracket that is not closed", "write [ADDRESS]:PORT");
        };
        return match after.strip_prefix(':') {
            Some(port) => Ok((inner, Some(port))),
            None if after.is_empty() => Ok((inner, None)),
            None => mistake(
                entry,
                "has text behind its bracket",
                "write [ADDRESS]:PORT, or [NETWORK/PREFIX]:PORT",
            ),
        };
    }
    match entry.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((entry, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((entry, None)),
    }
}

fn port(entry: &str, port: &str) -> Result<u16, Mistake> {
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    match port.parse::<u16>() {
        Ok(DNS_PORT) if digits => mistake(
            entry,
            "is on port 53, which belongs to the sandbox's own resolver",
            "list the hosts to be reached: their names are answered inside",
        ),
        Ok(number) if digits => Ok(number),
        Ok(_) | Err(_) if port == "*" => {
            mistake(entry, "names every port", "write one entry per port that is needed")
        }
        Ok(_) | Err(_) => {
            mistake(entry, "has no port between 1 and 65535", "write host:port, such as example.org:8443")
        }
    }
}

fn host(entry: &str, host: &str) -> Result<TargetHost, Mistake> {
    if let Some((address, prefix)) = host.split_once('/') {
        return match address.parse::<IpAddr>() {
            Ok(address) => network(entry, address, prefix),
            Err(_) if address.contains(|c: char| c.is_ascii_alphabetic()) && !address.contains(':') => {
                mistake(entry, "holds a path", format!("write \"{}\"", address.escape_debug()))
            }
            Err(_) => mistake(entry, "is no network", "write ADDRESS/PREFIX, such as 10.1.0.0/16"),
        };
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        let address = address.to_canonical();
        return Ok(TargetHost::Net { address, prefix: width(address) });
    }
    if host.contains(':') {
        return mistake(entry, "is no IPv6 address", "write it as in [2001:db8::1]:443");
    }
    if host == "*" {
        return mistake(entry, "names every host", "write network = \"inherit\" if that is meant");
    }
    match host.strip_prefix("*.") {
        Some(below) => Ok(TargetHost::Below { name: name(entry, below)? }),
        None => Ok(TargetHost::Name { name: name(entry, host)? }),
    }
}

pub(crate) const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn network(entry: &str, address: IpAddr, prefix: &str) -> Result<TargetHost, Mistake> {
    let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (prefix == "0" || !prefix.starts_with('0'));
    let prefix = match prefix.parse::<u8>() {
        Ok(prefix) if canonical && prefix <= width(address) => prefix,
        Ok(_) | Err(_) => {
            let fault = format!("has a prefix that is not between 0 and {}", width(address));
            return mistake(entry, &fault, "write ADDRESS/PREFIX, such as 10.1.0.0/16");
        }
    };
    let first = first_of(address, prefix);
    if first != address {
        return mistake(
            entry,
            "has bits set behind its prefix",
            format!("write the network's first address, {first}/{prefix}"),
        );
    }
    // `::ffff:10.0.0.0/104` is 10.0.0.0/8: an address must not be reachable by one spelling only.
    match (address, address.to_canonical()) {
        (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if prefix >= 96 => {
            Ok(TargetHost::Net { address: v4, prefix: prefix - 96 })
        }
        (address, _) => Ok(TargetHost::Net { address, prefix }),
    }
}

/// The address with every bit behind the prefix cleared.
fn first_of(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(prefix))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(prefix))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

/// Whether the network holds the address. Both are in canonical form.
pub(crate) fn holds(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    width(network) == width(address) && first_of(address, prefix) == network
}

fn name(entry: &str, host: &str) -> Result<String, Mistake> {
    if host.contains('*') {
        return mistake(
            entry,
            "has a `*` that is not the whole first label",
            "write *.example.org, or each name",
        );
    }
    let bare = host.strip_suffix('.').unwrap_or(host);
    if bare.len() > MAX_NAME {
        return mistake(entry, "is longer than the 253 characters of a name", "write the host's own name");
    }
    for label in bare.split('.') {
        if label.is_empty() {
            return mistake(
                entry,
                "has an empty part between its dots",
                "write a name such as api.example.org",
            );
        }
        if label.len() > MAX_LABEL {
            return mistake(entry, "has a part longer than 63 characters", "write the host's own name");
        }
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !plain || label.starts_with('-') || label.ends_with('-') {
            return mistake(
                entry,
                "is no host name",
                "use letters, digits, `-` and `_`, with `-` at no end of a part",
            );
        }
    }
    // Resolvers take `127.1`, `0x7f000001` and `010.0.0.1` for addresses, each in its own way.
    let last = bare.rsplit('.').next().unwrap_or(bare);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if numeric {
        return mistake(
            entry,
            "is an address in a form that programs read differently",
            "write four decimal numbers without leading zeros, such as 10.0.0.1",
        );
    }
    Ok(bare.to_ascii_lowercase())
}

/// A name as it was asked for, in the form that targets have.
pub(crate) fn plain_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

pub(crate) fn is_below(name: &str, above: &str) -> bool {
    name.strip_suffix(above).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Whether everything that `inner` names is named by `outer` too.
pub(crate) fn covers(outer: &TargetHost, inner: &TargetHost) -> bool {
    match (outer, inner) {
        (TargetHost::Name { name: outer }, TargetHost::Name { name: inner }) => outer == inner,
        (TargetHost::Below { name: outer }, TargetHost::Name { name: inner }) => is_below(inner, outer),
        (TargetHost::Below { name: outer }, TargetHost::Below { name: inner }) => {
            outer == inner || is_below(inner, outer)
        }
        (
            TargetHost::Net { address: outer, prefix: wide },
            TargetHost::Net { address: inner, prefix: narrow },
        ) => wide <= narrow && holds(*outer, *wide, *inner),
        (TargetHost::Name { .. }, TargetHost::Below { .. } | TargetHost::Net { .. })
        | (TargetHost::Below { .. }, TargetHost::Net { .. })
        | (TargetHost::Net { .. }, TargetHost::Name { .. } | TargetHost::Below { .. }) => false,
    }
}

/// As a person would write it, without ports.
pub(crate) fn show(host: &TargetHost) -> String {
    match host {
        TargetHost::Name { name } => name.clone(),
        TargetHost::Below { name } => format!("*.{name}"),
        TargetHost::Net { address, prefix } if *prefix == width(*address) => address.to_string(),
        TargetHost::Net { address, prefix } => format!("{address}/{prefix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(entry: &str) -> (String, Vec<u16>) {
        match parse(entry) {
            Ok(Entry::Host { host, ports }) => (show(&host), ports),
            Ok(Entry::Set(name)) => panic!("{entry} is the set {name}"),
            Err((message, _)) => panic!("{message}"),
        }
    }

    #[test]
    fn every_form() {
        for (entry, shown, ports) in [
            ("example.org", "example.org", &[80, 443][..]),
            ("API.Example.org.:8443", "api.example.org", &[8443]),
            ("*.example.net", "*.example.net", &[80, 443]),
            ("*.example.net:1", "*.example.net", &[1]),
            ("203.0.113.7:5432", "203.0.113.7", &[5432]),
            ("10.1.0.0/16:443", "10.1.0.0/16", &[443]),
            ("[2001:db8::1]:443", "2001:db8::1", &[443]),
            ("[2001:db8::/32]:443", "2001:db8::/32", &[443]),
            ("2001:db8::/32", "2001:db8::/32", &[80, 443]),
            ("2001:DB8::1", "2001:db8::1", &[80, 443]),
            ("::ffff:10.0.0.1", "10.0.0.1", &[80, 443]),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8", &[80, 443]),
            ("0.0.0.0/0:443", "0.0.0.0/0", &[443]),
            ("::/0", "::/0", &[80, 443]),
            ("localhost:65535", "localhost", &[65535]),
            ("xn--bcher-kva.example", "xn--bcher-kva.example", &[80, 443]),
            ("_srv.a-b.example", "_srv.a-b.example", &[80, 443]),
            ("0xy.example", "0xy.example", &[80, 443]),
        ] {
            assert_eq!(host(entry), (shown.to_owned(), ports.to_vec()), "{entry}");
        }
        assert_eq!(parse("set:mine"), Ok(Entry::Set("mine".to_owned())));
    }

    #[test]
    fn every_mistake_has_a_remedy() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}example", "abcdefg.".repeat(32));
        for (entry, part) in [
            ("", "empty"),
            ("https://example.org/x", "write \"example.org\""),
            ("https://u:p@example.org:81", "write \"example.org:81\""),
            ("example.org/x", "write \"example.org\""),
            ("u@example.org", "user name"),
            ("example.org:0", "between 1 and 65535"),
            ("example.org:65536", "between 1 and 65535"),
            ("example.org:080", "between 1 and 65535"),
            ("example.org:+80", "between 1 and 65535"),
            ("example.org:", "between 1 and 65535"),
            ("example.org:*", "every port"),
            ("example.org:53", "own resolver"),
            ("10.0.0.0/8:53", "own resolver"),
            ("[2001:db8::1]:53", "own resolver"),
            ("a..example", "empty part"),
            (".example", "empty part"),
            (&long_label, "63"),
            (&long_name, "253"),
            ("bücher.example", "xn--"),
            ("*", "every host"),
            ("a.*.example", "first label"),
            ("*a.example", "first label"),
            ("**.example", "first label"),
            ("*.*.example", "first label"),
            ("a b.example", "blank"),
            ("a\tb.example", "blank"),
            ("-a.example", "no host name"),
            ("a-.example", "no host name"),
            ("a!.example", "no host name"),
            ("010.0.0.1", "leading zeros"),
            ("127.1", "leading zeros"),
            ("2130706433", "leading zeros"),
            ("0x7f000001", "leading zeros"),
            ("1.2.3.0x4", "leading zeros"),
            ("1.2.3.4.5", "leading zeros"),
            ("256.1.1.1", "leading zeros"),
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("10.0.0.0/33", "between 0 and 32"),
            ("10.0.0.0/08", "between 0 and 32"),
            ("2001:db8::/129", "between 0 and 128"),
            ("10.0/16", "is no network"),
            ("[::1", "not closed"),
            ("[::1]x", "behind its bracket"),
            ("[::1]:x", "between 1 and 65535"),
            ("::1::2", "no IPv6 address"),
            ("set:", "names no set"),
            ("set:a b", "names no set"),
        ] {
            let (message, remedy) = parse(entry).expect_err(entry);
            assert!(format!("{message} {remedy}").contains(part), "{entry}: {message}: {remedy}");
            assert!(!remedy.is_empty() && message.contains('`'), "{entry}");
        }
    }

    #[test]
    fn covering() {
        let entry = |text: &str| match parse(text) {
            Ok(Entry::Host { host, .. }) => host,
            other => panic!("{text}: {other:?}"),
        };
        for (outer, inner, expected) in [
            ("a.example", "A.example.", true),
            ("a.example", "b.a.example", false),
            ("*.example", "a.example", true),
            ("*.example", "b.a.example", true),
            ("*.example", "example", false),
            ("*.example", "badexample", false),
            ("*.a.example", "*.example", false),
            ("*.example", "*.a.example", true),
            ("*.example", "*.example", true),
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/8", "10.2.3.4", true),
            ("10.0.0.0/8", "11.2.3.4", false),
            ("::/0", "10.0.0.1", false),
            ("0.0.0.0/0", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "a.example", false),
        ] {
            assert_eq!(covers(&entry(outer), &entry(inner)), expected, "{outer} {inner}");
        }
    }
}
