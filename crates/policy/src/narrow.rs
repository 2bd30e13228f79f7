//! A workspace's profile on top of a trusted one. The workspace belongs to whoever wrote the repository, so
//! each of its keys may only take something away; one that adds is refused at its line, with both values.
//! Next: `check`, then `plan`.

use std::fmt::Display;

use stockade_proto::{Code, Layer, Mode};

use crate::check::plain_path;
use crate::environment;
use crate::problem::ProfileError;
use crate::profile::Resolved;
use crate::resolve::{apply, merge_set};
use crate::text::{At, Spot};
use crate::values::{self, LIMITS};
use crate::written::{List, REACHES, REQUIREMENTS, VIEWS, Written, word_of};

/// `blame` is where to point when the values come from a trusted profile that the workspace extends.
pub(crate) fn narrow(
    mut base: Resolved,
    mut overlay: Written,
    blame: Option<Spot>,
) -> Result<Resolved, ProfileError> {
    let judge = Judge { base: &base, blame };
    judge.words(&overlay)?;
    judge.paths(&overlay)?;
    judge.environment(&overlay)?;
    judge.shell(&overlay)?;
    judge.limits(&overlay)?;
    judge.layers(&overlay)?;
    if base.bounds.is_empty() && (overlay.readable.is_some() || overlay.writable.is_some()) {
        let readable = base.readable.value.iter().map(|item| (item.clone(), false));
        base.bounds = readable.chain(base.writable.value.iter().map(|item| (item.clone(), true))).collect();
    }
    let deny = extended(&base.deny, overlay.deny.take());
    let deny_write = extended(&base.deny_write, overlay.deny_write.take());
    let set = std::mem::take(&mut overlay.env_set);
    merge_set(&mut base.env_set, set);
    apply(&mut base, overlay);
    base.deny = deny;
    base.deny_write = deny_write;
    Ok(base)
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

struct Judge<'b> {
    base: &'b Resolved,
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
        match overlay.env_set.iter().find(|(name, _)| !self.may_set(&name.value)) {
            Some((name, value)) => {
                let asked = format!("{{ {} = {} }}", name.value, quoted(&value.value));
                Err(self.widens("env.set", name.spot, asked, "own value"))
            }
            None => Ok(()),
        }
    }

    /// Without walls a variable such as PATH decides which program runs, and behind them what a person passed
    /// or wrote is not a workspace's to replace.
    fn may_set(&self, name: &str) -> bool {
        let base = self.base;
        let is_passed = base.env_allow.value.iter().any(|pattern| environment::covers(&pattern.value, name));
        let is_set = base.env_set.iter().any(|(known, _)| known.value == name);
        base.mode.value == Mode::Sandbox && !is_passed && !is_set && !["PATH", "HOME"].contains(&name)
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

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

/// By components, both without a trailing slash.
pub(crate) fn is_below(path: &str, base: &str) -> bool {
    path == base || path.strip_prefix(base).is_some_and(|rest| rest.starts_with('/') || base == "/")
}
