//! What the sandbox asked for, and whether a name inside its bytes is the same thing.

use std::net::IpAddr;

use crate::Rules;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// Lower case, no trailing dot.
    Name(String),
    Address(IpAddr),
}

impl Host {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Address(address) => address.to_string(),
        }
    }
}

/// A connection that a rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) rule: String,
}

impl Asked {
    /// Whether bytes for `said` may go over this connection. A program that dialled an address may name
    /// that address, or any host that the rules list for this port: it could have asked for it by name.
    pub(crate) fn covers(&self, said: &str, rules: &dyn Rules) -> bool {
        let said = plain(said);
        match &self.host {
            Host::Name(name) => said == *name,
            Host::Address(address) => match said.parse::<IpAddr>() {
                Ok(literal) => literal.to_canonical() == *address,
                Err(_) => rules.name(&said).is_some_and(|named| named.ports.contains(&self.port)),
            },
        }
    }

    /// The same for an HTTP authority: `host`, `host:port`, `[address]:port`.
    pub(crate) fn covers_authority(&self, authority: &str, rules: &dyn Rules) -> bool {
        let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(None) => return false,
            Some(Some((address, ""))) => (address, None),
            Some(Some((address, rest))) => match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None => return false,
            },
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let same_port = port.is_none_or(|port| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse() == Ok(self.port)
        });
        same_port && self.covers(host, rules)
    }
}

/// What a program wrote, in the length of a name.
pub(crate) fn shown(said: &str) -> String {
    said.chars().take(255).collect()
}

fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Closed, Named};

    /// Lists `listed.example:443` and nothing else.
    #[derive(Debug)]
    pub(crate) struct OneName;

    impl Rules for OneName {
        fn name(&self, name: &str) -> Option<Named> {
            (name == "listed.example").then(|| Named { ports: vec![443], rule: "listed".to_owned() })
        }

        fn reachable(&self, _: IpAddr, _: u16) -> Result<(), Closed> {
            Ok(())
        }

        fn address(&self, _: IpAddr, _: u16) -> Option<String> {
            None
        }
    }

    pub(crate) fn asked(name: &str, port: u16) -> Asked {
        let host = name.parse().map_or_else(|_| Host::Name(name.to_owned()), Host::Address);
        Asked { host, port, rule: "rule".to_owned() }
    }

    #[test]
    fn a_name_covers_itself_only() {
        let asked = asked("a.example", 80);
        for same in ["a.example", "A.Example", "a.example.", "a.example:80"] {
            assert!(asked.covers_authority(same, &OneName), "{same}");
        }
        for other in
            ["b.example", "a.example:81", "a.example:", "a.example:+80", "x.a.example", "", "1.2.3.4"]
        {
            assert!(!asked.covers_authority(other, &OneName), "{other}");
        }
    }

    #[test]
    fn an_address_covers_itself_and_what_is_listed_for_the_port() {
        let four = asked("192.0.2.1", 443);
        assert!(four.covers_authority("192.0.2.1:443", &OneName));
        assert!(four.covers_authority("listed.example", &OneName));
        assert!(!four.covers_authority("192.0.2.2", &OneName));
        assert!(!four.covers_authority("other.example", &OneName));
        assert!(!asked("192.0.2.1", 80).covers_authority("listed.example", &OneName));
        let six = asked("2001:db8::1", 443);
        assert!(six.covers_authority("[2001:DB8::1]:443", &OneName));
        assert!(six.covers_authority("[2001:db8::1]", &OneName));
        assert!(!six.covers_authority("[2001:db8::1", &OneName));
        assert!(!six.covers_authority("[2001:db8::1]x", &OneName));
    }
}
