//! Which hosts the command may reach. Names are judged as asked for, addresses as connected to; an address
//! that a name led to is judged again, since DNS is its owner's word.

use std::net::IpAddr;

use stockade_proto::{EgressPlan, Target, TargetHost};

use super::ranges::{ClosedRange, closed_range};
use crate::target::{holds, is_below, plain_name};

/// What a name may be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameGrant<'r> {
    /// Sorted, each once, never empty.
    pub ports: Vec<u16>,
    /// The first that names it.
    pub target: &'r Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum EgressVerdict<'r> {
    Allowed(&'r Target),
    /// The host is not listed at all.
    Unlisted,
    /// The host is listed, by this target among others, but not with this port.
    OtherPort(&'r Target),
    /// The name led to an address that must be listed by itself.
    Closed(ClosedRange),
}

impl EgressVerdict<'_> {
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

#[derive(Debug, Clone)]
pub struct EgressRules {
    targets: Vec<Target>,
}

impl EgressRules {
    pub fn compile(plan: &EgressPlan) -> Self {
        Self { targets: plan.targets.clone() }
    }

    fn naming<'r>(&'r self, name: &str) -> impl Iterator<Item = &'r Target> {
        let name = plain_name(name);
        self.targets.iter().filter(move |target| match &target.host {
            TargetHost::Name { name: listed } => *listed == name,
            TargetHost::Below { name: above } => is_below(&name, above),
            TargetHost::Net { .. } => false,
        })
    }

    fn holding(&self, address: IpAddr) -> impl Iterator<Item = &Target> {
        let address = address.to_canonical();
        self.targets.iter().filter(move |target| match target.host {
            TargetHost::Net { address: network, prefix } => holds(network, prefix, address),
            TargetHost::Name { .. } | TargetHost::Below { .. } => false,
        })
    }

    /// Whether a name is answered for at all, and for which ports.
    pub fn by_name(&self, name: &str) -> Option<NameGrant<'_>> {
        let mut found = self.naming(name).peekable();
        let target = *found.peek()?;
        let mut ports = found.flat_map(|target| target.ports.iter().copied()).collect::<Vec<_>>();
        ports.sort_unstable();
        ports.dedup();
        Some(NameGrant { ports, target })
    }

    pub fn name_port(&self, name: &str, port: u16) -> EgressVerdict<'_> {
        judge(self.naming(name), port)
    }

    /// An address that no name led to.
    pub fn address_port(&self, address: IpAddr, port: u16) -> EgressVerdict<'_> {
        judge(self.holding(address), port)
    }

    /// Whether an address that an allowed name resolved to may be connected to.
    pub fn may_reach(&self, address: IpAddr, port: u16) -> Result<(), ClosedRange> {
        match closed_range(address) {
            Some(closed) if !self.address_port(address, port).is_allowed() => Err(closed),
            Some(_) | None => Ok(()),
        }
    }

    /// Every port that some target names: what needs a listener.
    pub fn ports(&self) -> Vec<u16> {
        let mut ports =
            self.targets.iter().flat_map(|target| target.ports.iter().copied()).collect::<Vec<_>>();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

fn judge<'r>(found: impl Iterator<Item = &'r Target>, port: u16) -> EgressVerdict<'r> {
    let mut verdict = EgressVerdict::Unlisted;
    for target in found {
        if target.ports.contains(&port) {
            return EgressVerdict::Allowed(target);
        }
        if verdict == EgressVerdict::Unlisted {
            verdict = EgressVerdict::OtherPort(target);
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Entry, parse};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn rules(entries: &[&str]) -> EgressRules {
        let target = |entry: &&str| match parse(entry) {
            Ok(Entry::Host { host, ports }) => {
                Target { host, ports, rule: (*entry).to_owned(), origin: None }
            }
            other => panic!("{entry}: {other:?}"),
        };
        EgressRules::compile(&EgressPlan { targets: entries.iter().map(target).collect() })
    }

    #[test]
    fn names_and_ports() {
        let rules = rules(&["a.example", "*.b.example:8443", "a.example:22", "10.0.0.0/8:5432"]);
        let ask = |name: &str, port: u16| match rules.name_port(name, port) {
            EgressVerdict::Allowed(target) => target.rule.clone(),
            EgressVerdict::OtherPort(_) => "port".to_owned(),
            EgressVerdict::Unlisted => "unlisted".to_owned(),
            EgressVerdict::Closed(closed) => closed.0.to_owned(),
        };
        assert_eq!(ask("A.Example.", 443), "a.example");
        assert_eq!(ask("a.example", 22), "a.example:22");
        assert_eq!(ask("a.example", 23), "port");
        assert_eq!(ask("x.y.b.example", 8443), "*.b.example:8443");
        for unlisted in
            ["b.example", "xb.example", "x.a.example", "example", "", ".", "10.1.1.1", "evil.a.example.x"]
        {
            assert_eq!(ask(unlisted, 8443), "unlisted", "{unlisted}");
        }
        assert_eq!(rules.by_name("a.example").expect("listed").ports, [22, 80, 443]);
        assert_eq!(rules.by_name("c.example"), None);
        assert_eq!(rules.ports(), [22, 80, 443, 5432, 8443]);
        assert!(rules.address_port("10.9.9.9".parse().expect("ip"), 5432).is_allowed());
        assert!(rules.address_port("::ffff:10.9.9.9".parse().expect("ip"), 5432).is_allowed());
        assert!(!rules.address_port("11.0.0.1".parse().expect("ip"), 5432).is_allowed());
    }

    #[test]
    fn a_name_does_not_open_a_closed_range() {
        let rules = rules(&["a.example", "10.1.2.3:443", "169.254.169.254:80"]);
        let reach = |text: &str, port: u16| rules.may_reach(text.parse().expect(text), port).is_ok();
        assert!(reach("1.1.1.1", 443) && reach("10.1.2.3", 443) && reach("::ffff:10.1.2.3", 443));
        assert!(reach("169.254.169.254", 80));
        for (closed, port) in [
            ("10.1.2.3", 80),
            ("10.1.2.4", 443),
            ("127.0.0.1", 443),
            ("169.254.169.254", 443),
            ("::1", 443),
            ("64:ff9b::a01:203", 443),
            ("2002:a01:203::", 443),
            ("fd00:ec2::254", 443),
        ] {
            assert!(!reach(closed, port), "{closed}:{port}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// However an IPv4 address is wrapped, it is as closed as it is bare.
        #[test]
        fn wrapping_opens_nothing(bits in any::<u32>(), low in any::<u64>(), port in 1_u16..) {
            let bare = Ipv4Addr::from_bits(bits);
            let rules = rules(&["a.example"]);
            let closed = rules.may_reach(IpAddr::V4(bare), port).is_err();
            let mapped = bare.to_ipv6_mapped();
            prop_assert_eq!(rules.may_reach(IpAddr::V6(mapped), port).is_err(), closed);
            let wide = u128::from(bits);
            let nat64 = Ipv6Addr::from_bits((0x0064_ff9b_u128 << 96) | wide);
            prop_assert_eq!(rules.may_reach(IpAddr::V6(nat64), port).is_err(), closed);
            let six_to_four = Ipv6Addr::from_bits((0x2002_u128 << 112) | (wide << 80) | u128::from(low));
            prop_assert_eq!(rules.may_reach(IpAddr::V6(six_to_four), port).is_err(), closed);
            let server = Ipv6Addr::from_bits((0x2001_u128 << 112) | (wide << 64) | u128::from(!0x0808_0808_u32));
            prop_assert_eq!(rules.may_reach(IpAddr::V6(server), port).is_err(), closed);
            let open = 0x0808_0808_u128;
            let client = Ipv6Addr::from_bits((0x2001_u128 << 112) | (open << 64) | u128::from(!bits));
            prop_assert_eq!(rules.may_reach(IpAddr::V6(client), port).is_err(), closed);
        }

        /// Only an address target opens, and only what it holds, on its ports.
        #[test]
        fn an_address_target_opens_what_it_holds(bits in any::<u32>(), prefix in 0_u8..=32, other in any::<u32>(), port in 1_u16..) {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            let network = Ipv4Addr::from_bits(bits & mask);
            let entry = format!("{network}/{prefix}:443");
            let rules = rules(&[&entry]);
            let asked = IpAddr::V4(Ipv4Addr::from_bits(other));
            let held = other & mask == bits & mask;
            prop_assert_eq!(rules.address_port(asked, 443).is_allowed(), held);
            prop_assert_eq!(rules.address_port(asked, port).is_allowed(), held && port == 443);
            prop_assert_eq!(rules.may_reach(asked, 443).is_ok(), held || closed_range(asked).is_none());
        }

        /// The closed ranges, stated once more by the standard library's words.
        #[test]
        fn what_the_standard_library_calls_private_is_closed(bits in any::<u32>(), wide in any::<u128>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            let special = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_unspecified() || v4.is_documentation();
            prop_assert!(!special || closed_range(IpAddr::V4(v4)).is_some());
            let v6 = Ipv6Addr::from_bits(wide);
            let special = v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast()
                || v6.is_loopback() || v6.is_unspecified();
            prop_assert!(!special || closed_range(IpAddr::V6(v6)).is_some());
        }
    }
}
