//! The allowlist against itself and against `network`.

use stockade_proto::TargetHost;

use super::contradiction;
use crate::egress::{self, Item, Wanted};
use crate::problem::{ProfileError, nearest};
use crate::profile::{Reach, Resolved};
use crate::target;

pub(super) fn egress(profile: &mut Resolved) -> Result<(), ProfileError> {
    let allow = &profile.egress_allow;
    if profile.network.value != Reach::Allowlist {
        return match allow.value.is_empty() {
            true => Ok(()),
            false => Err(contradiction(
                profile,
                allow.spot,
                "`egress.allow` lists hosts, but `network` is not \"allowlist\"".to_owned(),
                "write network = \"allowlist\", or remove the list",
            )),
        };
    }
    if allow.value.is_empty() {
        return Err(contradiction(
            profile,
            profile.network.spot,
            "network = \"allowlist\" needs hosts in `egress.allow`, and there are none".to_owned(),
            "list them under [egress] as allow = [\"example.org\"], or write network = \"deny\"",
        ));
    }
    let items = egress::items(allow, &profile.egress_sets).map_err(|unknown| {
        let names = profile.egress_sets.iter().map(|(name, _)| name.value.as_str());
        let names = names.chain([target::REGISTRIES]).collect::<Vec<_>>();
        let remedy = match nearest(&unknown.name, names.iter().copied()) {
            Some(near) => format!("did you mean set:{near}?"),
            None => format!("list its hosts under [egress.sets]; there are: {}", names.join(", ")),
        };
        let message = format!("there is no set `{}`", unknown.name.escape_debug());
        contradiction(profile, unknown.spot, message, &remedy)
    })?;
    for warning in warnings(profile, &items) {
        profile.warn(warning);
    }
    Ok(())
}

fn warnings(profile: &Resolved, items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let mut say = |what: String| {
            found.push(format!("{}: `{}` {what}", profile.whereabouts(item.spot), item.rule.escape_debug()));
        };
        match &item.wanted {
            Wanted::Host { host: TargetHost::Below { name }, .. } if !name.contains('.') => {
                say(format!("allows every name of the top-level domain `{name}`"));
            }
            Wanted::Host { host: TargetHost::Net { prefix: 0, .. }, .. } => {
                say("allows every address, private ones and this host's own among them".to_owned());
            }
            Wanted::Host { .. } | Wanted::Registries => {}
        }
        let earlier = items.get(..at).unwrap_or_default();
        let same = earlier.iter().find(|known| known.wanted == item.wanted);
        let wider =
            earlier.iter().find(|known| egress::is_within(&item.wanted, std::slice::from_ref(*known)));
        match (same, wider) {
            (Some(known), _) => say(format!("is listed already, as `{}`", known.rule.escape_debug())),
            (None, Some(known)) => say(format!("adds nothing to `{}`", known.rule.escape_debug())),
            (None, None) => {}
        }
    }
    found
}
