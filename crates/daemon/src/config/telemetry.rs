//! Where spans go: one collector, known by its address. No name service is asked (see `names`), and there is no TLS in
//! this program: what is further away is a collector's business on this host. Next: `crate::telemetry`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::Uri;
use stockade_policy::ProfileError;

use super::resolve::Resolve;
use super::values::At;
use super::written::Telemetry;

const SERVICE_NAME: &str = "stockade";
/// What a collector's user can still read.
const LONGEST_NAME: usize = 256;
/// Below whatever path a collector is given with; of the protocol.
const TRACES: &str = "/v1/traces";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// To be tried in this order.
    pub addresses: Vec<SocketAddr>,
    /// The whole of it, in one spelling.
    pub endpoint: String,
    pub service_name: String,
}

pub(super) fn collector(
    resolve: &Resolve<'_>,
    written: &Telemetry,
) -> Result<Option<Collector>, ProfileError> {
    let service_name = match &written.service_name {
        Some(name) if !is_name(&name.value) => {
            let message = "`service_name` is empty, too long, or has control characters".to_owned();
            return Err(resolve.problem(&name.span, message, "give a short name, or leave it out"));
        }
        Some(name) => name.value.clone(),
        None => SERVICE_NAME.to_owned(),
    };
    let Some(At { value, span }) = &written.otlp else { return Ok(None) };
    let Place { addresses, endpoint } = place(value).map_err(|wrong| {
        let (message, remedy) = wrong.words();
        resolve.problem(span, message.to_owned(), remedy)
    })?;
    Ok(Some(Collector { addresses, endpoint, service_name }))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST_NAME && !text.chars().any(char::is_control)
}

struct Place {
    addresses: Vec<SocketAddr>,
    endpoint: String,
}

#[derive(Debug, Clone, Copy)]
enum Wrong {
    NoUrl,
    Encrypted,
    Host,
    Port,
    More,
}

impl Wrong {
    const fn words(self) -> (&'static str, &'static str) {
        let usual = "write it as \"http://127.0.0.1:4318\"";
        match self {
            Self::NoUrl => ("`otlp` is no http:// address", usual),
            Self::Encrypted => (
                "there is no TLS here, so that spans are not sent to https://",
                "send to a collector on this host, or to a proxy on it, over http://; that one may use TLS",
            ),
            Self::Host => (
                "`otlp` names its host, and no name service is asked",
                "give an IP address or localhost; a collector on this host is the usual one",
            ),
            Self::Port => ("`otlp` has no port", usual),
            Self::More => ("`otlp` has more than a host, a port and a path", usual),
        }
    }
}

fn place(text: &str) -> Result<Place, Wrong> {
    // A fragment is thrown away by who parses.
    let uri: Uri = text.parse().ok().filter(|_| !text.contains('#')).ok_or(Wrong::NoUrl)?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(Wrong::Encrypted),
        Some(_) | None => return Err(Wrong::NoUrl),
    }
    let authority = uri.authority().ok_or(Wrong::NoUrl)?;
    if authority.as_str().contains('@') || uri.query().is_some() {
        return Err(Wrong::More);
    }
    let port = authority.port_u16().filter(|port| *port != 0).ok_or(Wrong::Port)?;
    let host = authority.host().to_ascii_lowercase();
    let addresses = hosts(&host).ok_or(Wrong::Host)?;
    let path = uri.path().trim_end_matches('/');
    Ok(Place {
        addresses: addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        endpoint: format!("http://{host}:{port}{path}{TRACES}"),
    })
}

fn hosts(host: &str) -> Option<Vec<IpAddr>> {
    if host == "localhost" {
        return Some(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let parsed: Option<IpAddr> = match bracketed {
        Some(host) => host.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::from),
    };
    parsed.map(|ip| vec![ip])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_an_address_and_a_path() {
        for (written, addresses, endpoint) in [
            ("http://127.0.0.1:4318", "127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://[::1]:1/otlp", "[::1]:1", "http://[::1]:1/otlp/v1/traces"),
            ("http://[::1]:1/a/b/", "[::1]:1", "http://[::1]:1/a/b/v1/traces"),
            ("HTTP://LocalHost:9", "127.0.0.1:9 [::1]:9", "http://localhost:9/v1/traces"),
        ] {
            let place = place(written).unwrap_or_else(|wrong| panic!("{written}: {wrong:?}"));
            let found = place.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            assert_eq!((found.as_str(), place.endpoint.as_str()), (addresses, endpoint), "{written}");
        }
    }
}
