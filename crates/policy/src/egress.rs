//! The allowlist of one resolved profile: sets opened, targets made. Names are not resolved here, and the
//! set `registries` is what the survey found. Next: `plan`.

use stockade_proto::{EgressPlan, Target, TargetHost};

use crate::profile::Resolved;
use crate::report::Registry;
use crate::target::{self, Entry, REGISTRIES};
use crate::text::{At, Spot};
use crate::written::List;

/// One entry once its set is opened.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) wanted: Wanted,
    /// As written, or the set and its member.
    pub(crate) rule: String,
    /// In `egress.allow`, also for a member of a set.
    pub(crate) listed: Spot,
    pub(crate) spot: Spot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Known only on a host.
    Registries,
    Host {
        host: TargetHost,
        ports: Vec<u16>,
    },
}

/// A set that nobody made.
pub(crate) struct UnknownSet {
    pub(crate) name: String,
    pub(crate) spot: Spot,
}

pub(crate) fn items(allow: &List, sets: &[(At<String>, List)]) -> Result<Vec<Item>, UnknownSet> {
    let mut items = Vec::new();
    for entry in &allow.value {
        match target::parse(&entry.value) {
            Ok(Entry::Host { host, ports }) => items.push(Item {
                wanted: Wanted::Host { host, ports },
                rule: entry.value.clone(),
                listed: entry.spot,
                spot: entry.spot,
            }),
            Ok(Entry::Set(name)) if name == REGISTRIES => items.push(Item {
                wanted: Wanted::Registries,
                rule: entry.value.clone(),
                listed: entry.spot,
                spot: entry.spot,
            }),
            Ok(Entry::Set(name)) => {
                let Some((_, members)) = sets.iter().find(|(known, _)| known.value == name) else {
                    return Err(UnknownSet { name, spot: entry.spot });
                };
                for member in &members.value {
                    // Sets hold no sets: refused when read.
                    if let Ok(Entry::Host { host, ports }) = target::parse(&member.value) {
                        items.push(Item {
                            wanted: Wanted::Host { host, ports },
                            rule: format!("{} ({})", entry.value, member.value),
                            listed: entry.spot,
                            spot: member.spot,
                        });
                    }
                }
            }
            // Refused when read.
            Err(_) => {}
        }
    }
    Ok(items)
}

/// Whether `item` asks for nothing that `allowed` does not hold, port by port.
pub(crate) fn is_within(item: &Wanted, allowed: &[Item]) -> bool {
    match item {
        Wanted::Registries => allowed.iter().any(|known| known.wanted == Wanted::Registries),
        Wanted::Host { host, ports } => ports.iter().all(|port| {
            allowed.iter().any(|known| match &known.wanted {
                Wanted::Registries => false,
                Wanted::Host { host: outer, ports } => ports.contains(port) && target::covers(outer, host),
            })
        }),
    }
}

pub fn wants_registries(profile: &Resolved) -> bool {
    items(&profile.egress_allow, &profile.egress_sets)
        .is_ok_and(|items| items.iter().any(|item| item.wanted == Wanted::Registries))
}

/// The targets in the order written. A profile that passed its checks has no unknown set.
pub fn egress_plan(profile: &Resolved, registries: &[Registry], warnings: &mut Vec<String>) -> EgressPlan {
    let items = items(&profile.egress_allow, &profile.egress_sets).unwrap_or_default();
    let mut targets: Vec<Target> = Vec::new();
    for item in items {
        let origin = profile.origin(item.spot).map(Box::new);
        match item.wanted {
            Wanted::Host { host, ports } => targets.push(Target { host, ports, rule: item.rule, origin }),
            Wanted::Registries => {
                for registry in registries {
                    match registry_target(registry) {
                        Some((host, ports))
                            if targets.iter().any(|known| known.host == host && known.ports == ports) => {}
                        Some((host, ports)) => targets.push(Target {
                            host,
                            ports,
                            rule: format!("{} ({}: {})", item.rule, registry.tool, registry.host),
                            origin: origin.clone(),
                        }),
                        None => warnings.push(format!(
                            "`{}`, which {} is configured to use, is no host that can be allowed",
                            registry.host.escape_debug(),
                            registry.tool
                        )),
                    }
                }
            }
        }
    }
    EgressPlan { targets }
}

fn registry_target(registry: &Registry) -> Option<(TargetHost, Vec<u16>)> {
    match target::parse(&registry.host) {
        Ok(Entry::Host { host: TargetHost::Below { .. }, .. } | Entry::Set(_)) | Err(_) => None,
        // A port that can't be written in a profile can't be had by a tool's settings.
        Ok(Entry::Host { host, .. }) if registry.port != target::DNS_PORT => {
            Some((host, vec![registry.port]))
        }
        Ok(Entry::Host { .. }) => None,
    }
}
