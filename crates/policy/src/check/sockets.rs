//! Socket rules against each other and against the layers they need.

use stockade_proto::{Bytes, Layer, Requirement, SocketOperation, SocketPattern};

use super::contradiction;
use crate::problem::ProfileError;
use crate::profile::Resolved;
use crate::socket_paths::{Matcher, OWN};
use crate::text::At;
use crate::written::{RuleText, SocketWatch, word_of};

pub(super) fn sockets(profile: &mut Resolved) -> Result<(), ProfileError> {
    layer(profile)?;
    rules(profile)?;
    let written = profile.socket_rules.iter().find(|rule| !profile.is_built_in(rule.name.spot));
    if let Some(rule) = written.filter(|_| profile.watch.value == SocketWatch::Off) {
        let place = profile.whereabouts(rule.name.spot);
        profile.warn(format!("{place}: unix-sockets-mode is \"off\", so no socket rule is enforced"));
    }
    Ok(())
}

/// The mode says what is watched, the layer how much depends on it, and the filter's notifications carry both.
fn layer(profile: &mut Resolved) -> Result<(), ProfileError> {
    let (watch, layer) = (profile.watch.clone(), profile.layer(Layer::Sockets).clone());
    let is_on = layer.value != Requirement::Off;
    match (watch.value, is_on) {
        (SocketWatch::Off, false) => Ok(()),
        (SocketWatch::Off, true) if profile.is_built_in(layer.spot) => {
            set_layer(profile, At::new(Requirement::Off, watch.spot));
            Ok(())
        }
        (SocketWatch::Off, true) => Err(contradiction(
            profile,
            layer.spot,
            "layers.sockets asks for a wall that unix-sockets-mode = \"off\" takes away".to_owned(),
            "remove one of the two",
        )),
        (SocketWatch::Audit | SocketWatch::Enforce, false) if profile.is_built_in(watch.spot) => {
            profile.watch = At::new(SocketWatch::Off, layer.spot);
            Ok(())
        }
        (SocketWatch::Audit | SocketWatch::Enforce, false) => Err(contradiction(
            profile,
            layer.spot,
            "layers.sockets is off, but `unix-sockets-mode` is not, and nothing else would enforce it"
                .to_owned(),
            "write unix-sockets-mode = \"off\" too, or keep layers.sockets",
        )),
        (SocketWatch::Audit | SocketWatch::Enforce, true) => {
            let seccomp = profile.layer(Layer::Seccomp);
            if seccomp.value != Requirement::Off {
                return Ok(());
            }
            Err(contradiction(
                profile,
                seccomp.spot,
                "layers.seccomp is off, but layers.sockets stands on its filter".to_owned(),
                "turn layers.sockets off too, or keep layers.seccomp",
            ))
        }
    }
}

fn set_layer(profile: &mut Resolved, requirement: At<Requirement>) {
    let [.., slot, _] = &mut profile.layers;
    *slot = requirement;
}

/// A path as written, as a pattern: variables are compared by name.
fn matcher(path: &str) -> Option<Matcher> {
    let pattern = match path.strip_prefix('@') {
        Some(name) => SocketPattern::Abstract(Bytes::from(name)),
        None if path == OWN => SocketPattern::Own,
        None => SocketPattern::Path(Bytes::from(path)),
    };
    Matcher::new(&pattern).ok()
}

struct Seen<'r> {
    rule: &'r RuleText,
    paths: Vec<(&'r At<String>, Matcher)>,
}

/// Within one text, a rule that can't be reached is a mistake. Over an extended profile's rule, or a trusted
/// profile's, it is the purpose.
fn rules(profile: &Resolved) -> Result<(), ProfileError> {
    let mut seen: Vec<Seen<'_>> = Vec::new();
    for rule in profile.socket_rules.iter().filter(|rule| !profile.is_built_in(rule.name.spot)) {
        let paths = rule.paths.value.iter().filter_map(|path| Some((path, matcher(&path.value)?))).collect();
        let rule = Seen { rule, paths };
        let text = rule.rule.name.spot.text;
        let earlier = || seen.iter().filter(|known| known.rule.name.spot.text == text);
        for known in earlier() {
            contradict(profile, known, &rule)?;
        }
        unreached(profile, earlier, &rule)?;
        seen.push(rule);
    }
    Ok(())
}

fn contradict(profile: &Resolved, earlier: &Seen<'_>, later: &Seen<'_>) -> Result<(), ProfileError> {
    let shared = earlier.rule.operations.iter().find(|operation| later.rule.operations.contains(operation));
    let Some(operation) = shared else { return Ok(()) };
    if earlier.rule.decision.value == later.rule.decision.value {
        return Ok(());
    }
    let same =
        later.paths.iter().find(|(path, _)| earlier.paths.iter().any(|(known, _)| known.value == path.value));
    let Some((path, _)) = same else { return Ok(()) };
    let words = [earlier, later].map(|seen| word_of(&crate::written::DECISIONS, &seen.rule.decision.value));
    Err(contradiction(
        profile,
        path.spot,
        format!(
            "{operation} to `{}` is \"{}\" here, but \"{}\" by rule `{}` at {}",
            path.value.escape_debug(),
            words[1],
            words[0],
            earlier.rule.name.value.escape_debug(),
            profile.whereabouts(earlier.rule.name.spot)
        ),
        "keep one of the two, or give each its own operations",
    ))
}

fn unreached<'s, I>(profile: &Resolved, earlier: impl Fn() -> I, later: &Seen<'_>) -> Result<(), ProfileError>
where
    I: Iterator<Item = &'s Seen<'s>>,
{
    let decider = |matcher: &Matcher, operation: SocketOperation| {
        earlier().find(|known| {
            known.rule.operations.contains(&operation)
                && known.paths.iter().any(|(_, outer)| outer.covers(matcher))
        })
    };
    let mut first = None;
    for (_, matcher) in &later.paths {
        for operation in &later.rule.operations {
            match decider(matcher, *operation) {
                Some(known) => first = first.or(Some(known)),
                None => return Ok(()),
            }
        }
    }
    let Some(first) = first else { return Ok(()) };
    let line = profile.origin(first.rule.name.spot).map_or(0, |origin| origin.line);
    Err(contradiction(
        profile,
        later.rule.name.spot,
        format!(
            "the rule `{}` is never reached: rule `{}` at line {line} decides first",
            later.rule.name.value.escape_debug(),
            first.rule.name.value.escape_debug()
        ),
        "put it before that rule, or remove it",
    ))
}
