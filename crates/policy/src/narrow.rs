//! A workspace's profile on top of a trusted one. The workspace belongs to whoever wrote the repository, so
//! each of its keys may only take something away; one that adds is refused at its line, with both values.
//! Next: `check`, then `plan`.

use std::fmt::Display;

use stockade_proto::{Code, Decision, Layer, Mode, Requirement};

use crate::check::plain_path;
use crate::egress;
use crate::environment;
use crate::problem::ProfileError;
use crate::profile::{Reach, Resolved};
use crate::resolve::{apply, merge_set};
use crate::text::{At, Place, Spot};
use crate::values::{self, LIMITS};
use crate::written::{
    DECISIONS, List, REACHES, REQUIREMENTS, RuleText, SocketWatch, VIEWS, WATCHES, Written, word_of,
};

/// The environment of the trusted profile. A workspace's texts narrow `env.allow` one after another, and what
/// the first of them took away is still not the next one's to set.
#[derive(Debug, Clone)]
pub(crate) struct TrustedEnvironment {
    allow: List,
    set: Vec<(At<String>, At<String>)>,
}

impl TrustedEnvironment {
    pub(crate) fn of(trusted: &Resolved) -> Self {
        Self { allow: trusted.env_allow.clone(), set: trusted.env_set.clone() }
    }
}

/// `blame` is where to point when the values come from a trusted profile that the workspace extends.
pub(crate) fn narrow(
    mut base: Resolved,
    mut overlay: Written,
    trusted: &TrustedEnvironment,
    blame: Option<Spot>,
) -> Result<Resolved, ProfileError> {
    let judge = Judge { base: &base, trusted, blame };
    judge.words(&overlay)?;
    judge.paths(&overlay)?;
    judge.environment(&overlay)?;
    judge.shell(&overlay)?;
    judge.limits(&overlay)?;
    judge.layers(&overlay)?;
    judge.egress(&overlay)?;
    let socket_rules = judge.socket_rules(&mut overlay)?;
    if base.bounds.is_empty() && (overlay.readable.is_some() || overlay.writable.is_some()) {
        let readable = base.readable.value.iter().map(|item| (item.clone(), false));
        base.bounds = readable.chain(base.writable.value.iter().map(|item| (item.clone(), true))).collect();
    }
    raise(&base, &mut overlay);
    let deny = extended(&base.deny, overlay.deny.take());
    let deny_write = extended(&base.deny_write, overlay.deny_write.take());
    let set = std::mem::take(&mut overlay.env_set);
    merge_set(&mut base.env_set, set);
    apply(&mut base, overlay);
    base.deny = deny;
    base.deny_write = deny_write;
    base.socket_rules = socket_rules;
    Ok(base)
}

/// A wall that the base had no use for goes up with the key that asks for it.
fn raise(base: &Resolved, overlay: &mut Written) {
    let network = overlay.network.as_ref().filter(|_| base.network.value == Reach::Inherit);
    let network = network.filter(|asked| asked.value < Reach::Inherit).map(|asked| asked.spot);
    let watch = overlay.watch.as_ref().filter(|_| base.watch.value == SocketWatch::Off);
    let watch = watch.filter(|asked| asked.value > SocketWatch::Off).map(|asked| asked.spot);
    for (layer, slot) in Layer::ALL.into_iter().zip(&mut overlay.layers) {
        let asked = match layer {
            Layer::Network => network,
            Layer::Sockets => watch,
            Layer::Filesystem | Layer::Landlock | Layer::Process | Layer::Seccomp | Layer::Limits => None,
        };
        if let (None, Some(spot)) = (&slot, asked) {
            *slot = Some(At::new(Requirement::Must, spot));
        }
    }
}

/// Deny lists only grow.
fn extended(base: &List, overlay: Option<List>) -> List {
    let Some(overlay) = overlay else { return base.clone() };
    let mut all = base.value.clone();
    for item in overlay.value {
        if !all.iter().any(|known| known.value == item.value) {
            all.push(item);
        }
    }
    At::new(all, overlay.spot)
}

/// Where programs and their settings are looked for.
const NEVER_SET: [&str; 2] = ["PATH", "HOME"];

struct Judge<'b> {
    base: &'b Resolved,
    trusted: &'b TrustedEnvironment,
    blame: Option<Spot>,
}

impl Judge<'_> {
    fn widens(&self, key: &str, spot: Spot, asked: impl Display, allowed: impl Display) -> ProfileError {
        let message = match self.blame {
            Some(_) => format!("what it extends has `{key}` = {asked}, but the base allows only {allowed}"),
            None => format!("`{key}` = {asked} is wider than the trusted profile's {allowed}"),
        };
        self.base.error(
            Code::ProfileWidens,
            self.blame.unwrap_or(spot),
            message,
            "a workspace may only narrow; put this in your own profile (`stockade policy init --user`)",
        )
    }

    fn words(&self, overlay: &Written) -> Result<(), ProfileError> {
        let base = self.base;
        if let Some(mode) = overlay.mode.as_ref().filter(|mode| mode.value != base.mode.value) {
            if mode.value == Mode::Host {
                return Err(self.widens("mode", mode.spot, "\"host\"", "\"sandbox\""));
            }
            return Err(base.error(
                Code::ProfileInvalid,
                self.blame.unwrap_or(mode.spot),
                "the trusted profile has mode \"host\": there are no walls to narrow",
                "ask for a sandbox profile with --profile",
            ));
        }
        if let Some(fs) = overlay.fs.as_ref().filter(|fs| fs.value > base.fs.value) {
            let words = (word_of(&VIEWS, &fs.value), word_of(&VIEWS, &base.fs.value));
            return Err(self.widens("fs", fs.spot, quoted(words.0), quoted(words.1)));
        }
        if let Some(reach) = overlay.network.as_ref().filter(|reach| reach.value > base.network.value) {
            let words = (word_of(&REACHES, &reach.value), word_of(&REACHES, &base.network.value));
            return Err(self.widens("network", reach.spot, quoted(words.0), quoted(words.1)));
        }
        if let Some(watch) = overlay.watch.as_ref().filter(|watch| watch.value < base.watch.value) {
            let words = (word_of(&WATCHES, &watch.value), word_of(&WATCHES, &base.watch.value));
            return Err(self.widens("unix-sockets-mode", watch.spot, quoted(words.0), quoted(words.1)));
        }
        match overlay.toolchains.as_ref().filter(|show| show.value && !base.toolchains.value) {
            Some(show) => Err(self.widens("toolchains", show.spot, "true", "false")),
            None => Ok(()),
        }
    }

    /// Compared as written. What a path leads to on this host is checked again when planning, since a
    /// symlink below a covered path may lead out of it.
    fn paths(&self, overlay: &Written) -> Result<(), ProfileError> {
        let readable = self.base.readable.value.iter().chain(&self.base.writable.value).collect::<Vec<_>>();
        let writable = self.base.writable.value.iter().collect::<Vec<_>>();
        let asked = [("readable", &overlay.readable, readable), ("writable", &overlay.writable, writable)];
        for (key, list, allowed) in asked {
            for item in list.iter().flat_map(|list| &list.value) {
                if !allowed.iter().any(|base| is_below(&plain_path(&item.value), &plain_path(&base.value))) {
                    let names = allowed.iter().map(|base| base.value.as_str()).collect::<Vec<_>>();
                    return Err(self.widens(
                        key,
                        item.spot,
                        quoted(&item.value),
                        format!("[{}]", names.join(", ")),
                    ));
                }
            }
        }
        Ok(())
    }

    fn subset(&self, key: &str, asked: Option<&List>, allowed: &List) -> Result<(), ProfileError> {
        for item in asked.iter().flat_map(|list| &list.value) {
            if !allowed.value.iter().any(|base| environment::covers(&base.value, &item.value)) {
                let names = allowed.value.iter().map(|base| base.value.as_str()).collect::<Vec<_>>();
                return Err(self.widens(
                    key,
                    item.spot,
                    quoted(&item.value),
                    format!("[{}]", names.join(", ")),
                ));
            }
        }
        Ok(())
    }

    fn environment(&self, overlay: &Written) -> Result<(), ProfileError> {
        self.subset("env.allow", overlay.env_allow.as_ref(), &self.base.env_allow)?;
        overlay.env_set.iter().try_for_each(|(name, value)| self.variable(name, value))
    }

    /// Without walls any variable may lead a trusted program to the workspace's code; within them a workspace
    /// may add names of its own, and replaces no value that somebody trusted gave.
    fn variable(&self, name: &At<String>, value: &At<String>) -> Result<(), ProfileError> {
        let known = self.trusted.set.iter().find(|(known, _)| known.value == name.value);
        if self.blame.is_some() && known.is_some_and(|(_, known)| known.value == value.value) {
            return Ok(());
        }
        let allowed =
            self.trusted.allow.value.iter().find(|item| environment::covers(&item.value, &name.value));
        let reason = match (self.base.mode.value, known, allowed) {
            (Mode::Host, _, _) => "mode \"host\", in which a workspace sets no variable".to_owned(),
            (Mode::Sandbox, Some((known, _)), _) => {
                format!("own value at {}", self.base.whereabouts(known.spot))
            }
            (Mode::Sandbox, None, _) if NEVER_SET.contains(&name.value.as_str()) => {
                "own value, which is computed".to_owned()
            }
            (Mode::Sandbox, None, Some(item)) => {
                format!("`env.allow` of {}, which passes the caller's value", quoted(&item.value))
            }
            (Mode::Sandbox, None, None) => return Ok(()),
        };
        let key = format!("env.set.{}", name.value.escape_debug());
        Err(self.widens(&key, name.spot, quoted(&value.value), reason))
    }

    fn shell(&self, overlay: &Written) -> Result<(), ProfileError> {
        let exact = |key: &str, items: &[At<String>], allowed: &List| match items
            .iter()
            .find(|item| !allowed.value.iter().any(|base| base.value == item.value))
        {
            None => Ok(()),
            Some(item) => {
                let names = allowed.value.iter().map(|base| base.value.as_str()).collect::<Vec<_>>();
                let allowed = format!("[{}]", names.join(", "));
                Err(self.widens(key, item.spot, quoted(&item.value), allowed))
            }
        };
        fn items(list: Option<&List>) -> &[At<String>] {
            list.map_or(&[], |list| &list.value)
        }
        let shell = &overlay.shell;
        let (programs, args) = (&self.base.shell_allowed_programs, &self.base.shell_allowed_args);
        exact("shell.program", shell.program.as_slice(), programs)?;
        exact("shell.allowed-programs", items(shell.allowed_programs.as_ref()), programs)?;
        exact("shell.args", items(shell.args.as_ref()), args)?;
        exact("shell.allowed-args", items(shell.allowed_args.as_ref()), args)
    }

    fn limits(&self, overlay: &Written) -> Result<(), ProfileError> {
        for ((row, base), asked) in LIMITS.iter().zip(&self.base.limits).zip(&overlay.limits) {
            let Some(asked) = asked else { continue };
            let wider = match (asked.value, base.value) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(asked), Some(base)) => asked > base,
            };
            if wider {
                let show = |value| quoted(&values::show(row.unit, value));
                let key = format!("limits.{}", row.key);
                return Err(self.widens(&key, asked.spot, show(asked.value), show(base.value)));
            }
        }
        Ok(())
    }

    fn layers(&self, overlay: &Written) -> Result<(), ProfileError> {
        for ((layer, base), asked) in Layer::ALL.iter().zip(&self.base.layers).zip(&overlay.layers) {
            let Some(asked) = asked.as_ref().filter(|asked| asked.value < base.value) else { continue };
            let words = (word_of(&REQUIREMENTS, &asked.value), word_of(&REQUIREMENTS, &base.value));
            return Err(self.widens(
                &format!("layers.{layer}"),
                asked.spot,
                quoted(words.0),
                quoted(words.1),
            ));
        }
        Ok(())
    }
}

impl Judge<'_> {
    /// Compared once sets are opened: a set of the workspace's own under a trusted name must not change what
    /// the trusted list means.
    fn egress(&self, overlay: &Written) -> Result<(), ProfileError> {
        let base = self.base;
        let stays = overlay.network.as_ref().is_none_or(|network| network.value == Reach::Allowlist);
        if base.network.value != Reach::Allowlist || !stays {
            return Ok(());
        }
        // An unknown set of the base's would have been told; one of the overlay's is told by `check`.
        let allowed = egress::items(&base.egress_allow, &base.egress_sets).unwrap_or_default();
        let mut sets = base.egress_sets.clone();
        merge_set(&mut sets, overlay.egress.sets.clone());
        let asked = overlay.egress.allow.as_ref().unwrap_or(&base.egress_allow);
        let Ok(asked) = egress::items(asked, &sets) else { return Ok(()) };
        match asked.iter().find(|item| !egress::is_within(&item.wanted, &allowed)) {
            None => Ok(()),
            Some(item) => {
                let names =
                    base.egress_allow.value.iter().map(|item| item.value.as_str()).collect::<Vec<_>>();
                let place = base.whereabouts(base.egress_allow.spot);
                let allowed = format!("[{}] at {place}", names.join(", "));
                let spot =
                    if self.base.place(item.spot) == Place::Workspace { item.spot } else { item.listed };
                Err(self.widens("egress.allow", spot, quoted(&item.rule), allowed))
            }
        }
    }

    /// The workspace's denials, asked before the trusted rules. Anything else of a workspace's would let
    /// something through. Of a trusted profile that it extends, what that one allows must be what the base
    /// allows, and what only the base allows is gone.
    fn socket_rules(&self, overlay: &mut Written) -> Result<Vec<RuleText>, ProfileError> {
        let base = &self.base.socket_rules;
        let asked = std::mem::take(&mut overlay.socket_rules);
        let mut rules = Vec::new();
        for rule in &asked {
            let known = base.iter().find(|known| known.name.value == rule.name.value);
            if self.blame.is_some() && known.is_some_and(|known| known.says_the_same(rule)) {
                continue;
            }
            self.denial(rule, known)?;
            rules.push(rule.clone());
        }
        let stays = |known: &&RuleText| {
            self.blame.is_none()
                || known.decision.value != Decision::Allow
                || asked.iter().any(|rule| rule.says_the_same(known))
        };
        rules.extend(base.iter().filter(stays).cloned());
        Ok(rules)
    }

    fn denial(&self, rule: &RuleText, known: Option<&RuleText>) -> Result<(), ProfileError> {
        let base = self.base;
        if rule.decision.value != Decision::Deny {
            let trusted = known.or(base.socket_rules.first()).map_or(base.watch.spot, |rule| rule.name.spot);
            let allowed = format!("\"deny\" in addition to the rules at {}", base.whereabouts(trusted));
            let asked = quoted(word_of(&DECISIONS, &rule.decision.value));
            let key = format!("decision of the socket rule {}", rule.name.value.escape_debug());
            return Err(self.widens(&key, rule.decision.spot, asked, allowed));
        }
        let Some(known) = known else { return Ok(()) };
        Err(base.error(
            Code::ProfileInvalid,
            self.blame.unwrap_or(rule.name.spot),
            format!(
                "the trusted profile has a rule named `{}` at {}",
                rule.name.value.escape_debug(),
                base.whereabouts(known.name.spot)
            ),
            "give this one another name: it is asked first, and the trusted one stays",
        ))
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

/// By components, both without a trailing slash.
pub(crate) fn is_below(path: &str, base: &str) -> bool {
    path == base || path.strip_prefix(base).is_some_and(|rest| rest.starts_with('/') || base == "/")
}
