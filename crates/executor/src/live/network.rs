//! The policy's allowlist, as the egress asks it.

use std::net::IpAddr;

use stockade_egress::{Closed, Named, OWN_ADDRESS};
use stockade_policy::{EgressRules, EgressVerdict, guidance_for_host};
use stockade_proto::{EgressPlan, NetworkOp};

#[derive(Debug)]
pub(super) struct Rules(EgressRules);

impl Rules {
    pub(super) fn new(plan: &EgressPlan) -> Self {
        Self(EgressRules::compile(plan))
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        self.0.ports()
    }

    fn verdict(&self, host: &str, port: u16) -> EgressVerdict<'_> {
        match host.parse::<IpAddr>() {
            Ok(address) => self.0.address_port(address, port),
            Err(_) => self.0.name_port(host, port),
        }
    }

    /// The rule that opens this port: a name may be listed by several, each with ports of its own.
    pub(super) fn opening(&self, host: &str, port: u16) -> Option<String> {
        match self.verdict(host, port) {
            EgressVerdict::Allowed(target) => Some(target.rule.clone()),
            EgressVerdict::Unlisted | EgressVerdict::OtherPort(_) | EgressVerdict::Closed(_) => None,
        }
    }

    /// The lines that would have let a denied operation through. Empty where it was listed and denied all the
    /// same, for what it carried or for a limit: listing it again helps nobody.
    pub(super) fn guidance(&self, op: &NetworkOp) -> String {
        let Some(port) = op.port else {
            let listed = self.0.by_name(&op.host).is_some();
            return if listed { String::new() } else { guidance_for_host(&op.host, None) };
        };
        // Only of a connection that a rule allowed is it known where it would have gone.
        if !self.verdict(&op.host, port).is_allowed() {
            return guidance_for_host(&op.host, Some(port));
        }
        let address = op.address.as_ref().and_then(|address| address.parse::<IpAddr>().ok());
        match address.map(|address| (address, self.0.may_reach(address, port))) {
            Some((address, Err(_))) => guidance_for_host(&address.to_string(), Some(port)),
            Some((address, Ok(())))
                if op.detail.as_ref().is_some_and(|detail| detail.ends_with(OWN_ADDRESS)) =>
            {
                guidance_for_host(&address.to_string(), Some(port))
            }
            Some((_, Ok(()))) | None => String::new(),
        }
    }
}

impl stockade_egress::Rules for Rules {
    fn name(&self, name: &str) -> Option<Named> {
        self.0.by_name(name).map(|grant| Named { ports: grant.ports, rule: grant.target.rule.clone() })
    }

    fn reachable(&self, address: IpAddr, port: u16) -> Result<(), Closed> {
        self.0.may_reach(address, port).map_err(|range| Closed(range.0))
    }

    fn address(&self, address: IpAddr, port: u16) -> Option<String> {
        match self.0.address_port(address, port) {
            EgressVerdict::Allowed(target) => Some(target.rule.clone()),
            EgressVerdict::Unlisted | EgressVerdict::OtherPort(_) | EgressVerdict::Closed(_) => None,
        }
    }
}
