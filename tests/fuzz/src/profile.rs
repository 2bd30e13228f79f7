//! A profile, as a user's own and as that of a workspace that nobody trusts.

use std::fmt::Debug;

use stockade_policy::{
    At, List, Place, ProfileError, ProfileText, Reach, Resolved, Sources, explain_profile, resolve_text,
    show_profile,
};
use stockade_proto::{Bytes, Mode, Refusal};

use crate::{must, refusal, sentence};

const NAME: &str = "fuzzed";
/// A line of what is told of a profile holds whole lists.
const TOLD: usize = 16;

/// No profile but the built-in ones.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Sources for Nothing {
    fn find(&self, _: Place, _: &str) -> Result<Option<ProfileText>, Refusal> {
        Ok(None)
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The same text at the place above, so that `extends` finds something that it may go round with.
#[derive(Debug)]
struct Itself<'t>(&'t str);

impl Sources for Itself<'_> {
    fn find(&self, place: Place, name: &str) -> Result<Option<ProfileText>, Refusal> {
        let there = place == Place::System && [NAME, "other"].contains(&name);
        Ok(there.then(|| text(Place::System, name, self.0)))
    }

    fn names(&self) -> Vec<String> {
        vec![NAME.to_owned(), "other".to_owned()]
    }
}

fn text(place: Place, name: &str, text: &str) -> ProfileText {
    let file = Bytes::from(format!("/fuzzed/{}.toml", place.name()));
    ProfileText { place, name: name.to_owned(), file, text: text.to_owned().into() }
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(written) = std::str::from_utf8(bytes) else { return };
    for place in [Place::User, Place::Workspace] {
        told(resolve_text(text(place, NAME, written), &Nothing), written);
        told(resolve_text(text(place, NAME, written), &Itself(written)), written);
    }
}

fn told(resolved: Result<Resolved, ProfileError>, written: &str) {
    match resolved {
        Ok(profile) => {
            shown_again(&profile, written);
            for line in explain_profile(&profile).lines() {
                assert!(line.len() <= TOLD * (written.len() + 4096), "{} bytes in a line", line.len());
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
        Err(error) if error.refusal.origin.as_ref().is_some_and(|origin| is_built_in(&origin.file)) => {
            // It was pointed at the base that the text does not go with.
            sentence(&error.refusal.message);
            sentence(&error.refusal.remedy);
        }
        Err(error) => refusal(&error, written),
    }
}

fn is_built_in(file: &Bytes) -> bool {
    file.as_slice().starts_with(b"built-in:")
}

/// What is shown is a profile, and the same one. Not of a workspace: its narrowing has no text that would say all of
/// it. Nor where socket rules of two texts stand in one: there, what overrode another contradicts it.
fn shown_again(profile: &Resolved, written: &str) {
    let shown = show_profile(profile);
    assert!(!shown.lines().any(|line| line.contains(char::is_control)), "{shown:?}");
    let own_rule = profile.socket_rules.iter().any(|rule| profile.place(rule.name.spot) != Place::BuiltIn);
    if own_rule || profile.texts.iter().any(|text| text.place == Place::Workspace) {
        return;
    }
    let again = must(resolve_text(text(Place::User, NAME, &shown), &Nothing), &shown);
    assert_eq!(outline(profile), outline(&again), "{written}\nis shown as\n{shown}");
}

fn plain(list: &List) -> Vec<&str> {
    list.value.iter().map(|item| item.value.as_str()).collect()
}

fn each<T: Debug>(values: &[At<T>]) -> Vec<String> {
    values.iter().map(|at| format!("{:?}", at.value)).collect()
}

/// The values without their places.
fn outline(profile: &Resolved) -> Vec<String> {
    let mut lines = vec![
        format!("{:?}", profile.description.as_ref().map(|at| &at.value)),
        format!("{:?} {:?} {:?}", profile.mode.value, profile.fs.value, profile.network.value),
        format!("{:?} {:?}", profile.shell_program.value, plain(&profile.shell_args)),
        format!("{:?}", plain(&profile.shell_allowed_programs)),
        format!("{:?}", plain(&profile.shell_allowed_args)),
        format!("{:?}", plain(&profile.env_allow)),
        format!("{:?}", each(&profile.limits)),
    ];
    let mut set = profile.env_set.iter().map(|(name, value)| (&name.value, &value.value)).collect::<Vec<_>>();
    set.sort();
    lines.push(format!("{set:?}"));
    if profile.mode.value == Mode::Host {
        return lines;
    }
    lines.push(format!("{:?} {:?}", profile.toolchains.value, profile.watch.value));
    for list in [&profile.readable, &profile.writable, &profile.deny, &profile.deny_write] {
        lines.push(format!("{:?}", plain(list)));
    }
    lines.push(format!("{:?}", each(&profile.layers)));
    for rule in &profile.socket_rules {
        let message = rule.message.as_ref().map(|at| &at.value);
        let (name, decision) = (&rule.name.value, rule.decision.value);
        lines.push(format!(
            "{name:?} {:?} {:?} {decision:?} {message:?}",
            plain(&rule.paths),
            rule.operations
        ));
    }
    if profile.network.value == Reach::Allowlist {
        lines.push(format!("{:?}", plain(&profile.egress_allow)));
        let mut sets =
            profile.egress_sets.iter().map(|(name, list)| (&name.value, plain(list))).collect::<Vec<_>>();
        sets.sort();
        lines.push(format!("{sets:?}"));
    }
    lines
}
