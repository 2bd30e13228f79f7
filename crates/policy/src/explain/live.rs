//! Socket rules and the allowlist for people.

use std::net::SocketAddr;

use stockade_proto::{Bytes, Network, Plan, SocketMode, SocketOperation, SocketPattern, SocketRule};

use super::{toml_list, toml_string};
use crate::profile::{Reach, Resolved};
use crate::target;
use crate::text::Spot;
use crate::written::{DECISIONS, RuleText, SocketWatch, WATCHES, word_of};

/// Lines of `--explain` about sockets.
pub(super) fn sockets(plan: &Plan) -> Vec<String> {
    let Some(sockets) = &plan.sockets else { return Vec::new() };
    let mode = match sockets.mode {
        SocketMode::Enforce => "enforce: the first rule that matches decides, and what none allows is denied",
        SocketMode::Audit => "audit: everything is allowed, and what would have been denied is recorded",
    };
    std::iter::once(mode.to_owned()).chain(sockets.rules.iter().map(rule)).collect()
}

fn rule(rule: &SocketRule) -> String {
    let patterns = rule.patterns.iter().map(|pattern| match pattern {
        SocketPattern::Path(glob) => glob.to_string(),
        SocketPattern::Abstract(glob) => format!("@{glob}"),
        SocketPattern::Own => "own".to_owned(),
    });
    let place = rule.origin.as_ref().map_or_else(|| "built-in".to_owned(), ToString::to_string);
    format!(
        "{:<10} {} {}  ({}, {place})",
        rule.decision.name(),
        operations(&rule.operations),
        patterns.collect::<Vec<_>>().join(", "),
        Bytes::from(rule.name.as_str())
    )
}

fn operations(operations: &[SocketOperation]) -> String {
    operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join("/")
}

/// Lines of `--explain` about the network.
pub(super) fn network(plan: &Plan) -> Vec<String> {
    let targets = match &plan.network {
        Network::Deny | Network::Inherit => &[][..],
        Network::Allowlist(egress) => &egress.targets,
    };
    let reached = targets.iter().map(|target| {
        let ports = target.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let place = target.origin.as_ref().map_or_else(|| "built-in".to_owned(), ToString::to_string);
        let rule = Bytes::from(target.rule.as_str());
        format!("{:<10} {} on {ports}  ({rule}, {place})", "allow", target::show(&target.host))
    });
    let published = plan.publish.iter().map(|publish| {
        let host = match publish.host_port {
            0 => format!("a port that the kernel chooses on {}", publish.address),
            port => format!("{}", SocketAddr::new(publish.address, port)),
        };
        format!("{:<10} {host} of the host reaches port {} inside", "publish", publish.port)
    });
    reached.chain(published).collect()
}

/// `[egress]` and `[[unix_sockets]]` as TOML.
pub(super) fn show(profile: &Resolved, out: &mut String) {
    let mut line = |text: String, spot: Spot| {
        out.push_str(&format!("{text}  # {}\n", profile.whereabouts(spot)));
    };
    if profile.network.value == Reach::Allowlist {
        let allow = &profile.egress_allow;
        line(format!("\n[egress]\nallow = {}", toml_list(allow)), allow.spot);
        for (name, members) in &profile.egress_sets {
            line(format!("sets.{} = {}", toml_string(&name.value), toml_list(members)), members.spot);
        }
    }
    for RuleText { name, paths, operations, decision, message } in &profile.socket_rules {
        line(format!("\n[[unix_sockets]]\nname = {}", toml_string(&name.value)), name.spot);
        line(format!("paths = {}", toml_list(paths)), paths.spot);
        if operations.len() < SocketOperation::ALL.len() {
            let words = operations.iter().map(|operation| toml_string(operation.name())).collect::<Vec<_>>();
            line(format!("operations = [{}]", words.join(", ")), name.spot);
        }
        line(format!("decision = \"{}\"", word_of(&DECISIONS, &decision.value)), decision.spot);
        if let Some(message) = message {
            line(format!("message = {}", toml_string(&message.value)), message.spot);
        }
    }
}

pub(super) fn show_mode(profile: &Resolved) -> String {
    format!("unix-sockets-mode = \"{}\"", word_of(&WATCHES, &profile.watch.value))
}

/// The allowlist and the rules in sentences.
pub(super) fn say(profile: &Resolved, say: &mut dyn FnMut(String, Spot)) {
    if profile.network.value == Reach::Allowlist {
        for entry in &profile.egress_allow.value {
            let what = match entry.value.strip_prefix("set:") {
                Some(target::REGISTRIES) => {
                    "the hosts that this host's npm, pip, cargo and go are configured to use".to_owned()
                }
                Some(name) => {
                    let members = profile.egress_sets.iter().find(|(known, _)| known.value == name);
                    let members = members.map_or_else(String::new, |(_, list)| super::names(&list.value));
                    format!("the set {name}: {members}")
                }
                None => entry.value.escape_debug().to_string(),
            };
            say(format!("It may reach {what}."), entry.spot);
        }
    }
    let mode = match profile.watch.value {
        SocketWatch::Off => "Its use of Unix sockets is not watched.",
        SocketWatch::Audit => "Every Unix socket is allowed; what no rule allows is recorded.",
        SocketWatch::Enforce => {
            "A Unix socket that no rule allows is denied; the first rule that matches decides:"
        }
    };
    say(mode.to_owned(), profile.watch.spot);
    if profile.watch.value == SocketWatch::Off {
        return;
    }
    for rule in &profile.socket_rules {
        let verb = word_of(&DECISIONS, &rule.decision.value);
        let what = super::names(&rule.paths.value);
        let name = rule.name.value.escape_debug();
        say(format!("Rule {name}: {verb} {} on {what}.", operations(&rule.operations)), rule.name.spot);
    }
}
