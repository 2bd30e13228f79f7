//! From a profile's name to one resolved profile: the trusted chain of `extends`, then the workspace's own
//! text, which may only narrow it (`narrow`), then the contradictions (`check`). Texts come from [`Sources`];
//! nothing is opened here. Next: `plan`.

use std::borrow::Cow;

use stockade_proto::{Bytes, Code, Layer, Mode, Refusal, Requirement};

use crate::check;
use crate::narrow;
use crate::problem::{ProfileError, nearest};
use crate::profile::{Reach, Resolved, View};
use crate::text::{At, Place, ProfileText, Spot};
use crate::values::LIMIT_COUNT;
use crate::written::{self, RuleText, SocketWatch, Written};

/// The texts that exist, by place and name. Built-ins are not asked for.
pub trait Sources {
    fn find(&self, place: Place, name: &str) -> Result<Option<ProfileText>, Refusal>;
    /// Names of the profiles that exist, for the refusal of one that does not.
    fn names(&self) -> Vec<String>;
}

pub const BUILT_IN: [(&str, &str); 4] = [
    ("default", include_str!("../../../resources/profiles/default.toml")),
    ("readonly", include_str!("../../../resources/profiles/readonly.toml")),
    ("build", include_str!("../../../resources/profiles/build.toml")),
    ("host", include_str!("../../../resources/profiles/host.toml")),
];

/// `extends` deeper than this is a mistake or an attempt to make loading slow.
const MAX_CHAIN: usize = 8;

/// A file name's worth: profile names become file names.
const MAX_NAME: usize = 64;

pub fn is_profile_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

pub fn resolve(name: &str, sources: &dyn Sources) -> Result<Resolved, ProfileError> {
    let mut loader = Loader { sources, texts: Vec::new() };
    if !is_profile_name(name) {
        return Err(loader.no_such_profile(name).into());
    }
    let overlay = sources.find(Place::Workspace, name)?;
    let mut base = match (loader.trusted(name, Place::User)?, &overlay) {
        (Some(base), _) => base,
        (None, Some(_)) => {
            loader.trusted("default", Place::User)?.ok_or_else(|| loader.no_such_profile("default"))?
        }
        (None, None) => return Err(loader.no_such_profile(name).into()),
    };
    name.clone_into(&mut base.name);
    check::check(&mut base)?;
    let Some(text) = overlay else { return Ok(base) };
    let mut narrowed = loader.workspace(base, text)?;
    check::check(&mut narrowed)?;
    Ok(narrowed)
}

/// One text alone, as `policy check FILE` sees it: what it extends is looked up from `place` upwards.
pub fn resolve_text(text: ProfileText, sources: &dyn Sources) -> Result<Resolved, ProfileError> {
    let mut loader = Loader { sources, texts: Vec::new() };
    let name = text.name.clone();
    if text.place == Place::Workspace {
        let base = match loader.trusted(&name, Place::User)? {
            Some(base) => Some(base),
            None => loader.trusted("default", Place::User)?,
        };
        let mut base = base.ok_or_else(|| loader.no_such_profile("default"))?;
        check::check(&mut base)?;
        let mut narrowed = loader.workspace(base, text)?;
        check::check(&mut narrowed)?;
        return Ok(narrowed);
    }
    let chain = loader.chain(text)?;
    let mut resolved = loader.fold(&name, chain)?;
    check::check(&mut resolved)?;
    Ok(resolved)
}

struct Loader<'s> {
    sources: &'s dyn Sources,
    texts: Vec<ProfileText>,
}

impl Loader<'_> {
    fn find(&self, name: &str, from: Place) -> Result<Option<ProfileText>, ProfileError> {
        let mut place = Some(from);
        while let Some(here) = place {
            let found =
                if here == Place::BuiltIn { built_in(name) } else { self.sources.find(here, name)? };
            if found.is_some() {
                return Ok(found);
            }
            place = here.above();
        }
        Ok(None)
    }

    fn no_such_profile(&self, name: &str) -> Refusal {
        let mut names = self.sources.names();
        names.extend(BUILT_IN.iter().map(|(name, _)| (*name).to_owned()));
        names.sort();
        names.dedup();
        // A misspelt name must not be answered with the one profile that has no walls.
        let near = nearest(name, names.iter().map(String::as_str).filter(|near| *near != "host"));
        let message = format!("there is no profile `{}`; there are: {}", Bytes::from(name), names.join(", "));
        let remedy = match near {
            Some(near) => format!("did you mean `{near}`? `stockade policy show {near}` prints it"),
            None => "choose one of them, or make one with `stockade policy init NAME`".to_owned(),
        };
        Refusal::new(Code::ProfileUnknown, message, remedy)
    }

    fn parse(&mut self, text: ProfileText) -> Result<Written, ProfileError> {
        let written = written::parse(&text, self.texts.len())?;
        self.texts.push(text);
        Ok(written)
    }

    fn trusted(&mut self, name: &str, from: Place) -> Result<Option<Resolved>, ProfileError> {
        let Some(text) = self.find(name, from)? else { return Ok(None) };
        let chain = self.chain(text)?;
        self.fold(name, chain).map(Some)
    }

    /// The text and everything it extends, most specific first.
    fn chain(&mut self, text: ProfileText) -> Result<Vec<Written>, ProfileError> {
        let mut chain = Vec::new();
        let mut seen: Vec<(Place, String)> = Vec::new();
        let mut next = Some(text);
        while let Some(text) = next {
            let (place, name) = (text.place, text.name.clone());
            let written = self.parse(text)?;
            seen.push((place, name.clone()));
            next = match &written.extends {
                Some(extends) => Some(self.extended(extends, place, &name, &seen)?),
                None => implicit_base(&written, place),
            };
            chain.push(written);
        }
        Ok(chain)
    }

    fn extended(
        &self,
        extends: &At<String>,
        place: Place,
        own_name: &str,
        seen: &[(Place, String)],
    ) -> Result<ProfileText, ProfileError> {
        let name = extends.value.as_str();
        // `extends` of one's own name means the same name at the next more trusted place.
        let from = if name == own_name { place.above() } else { Some(place) };
        let found = match from {
            Some(from) if is_profile_name(name) => self.find(name, from)?,
            Some(_) | None => None,
        };
        let Some(found) = found else {
            let refusal = self.no_such_profile(name);
            let message = format!("`extends`: {}", refusal.message);
            return Err(self.error(Code::ProfileInvalid, extends.spot, message, refusal.remedy));
        };
        let again = seen.iter().any(|(place, name)| *place == found.place && *name == found.name);
        if again || seen.len() >= MAX_CHAIN {
            let path = seen.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(" → ");
            let message =
                format!("`extends` goes round in a circle or deeper than {MAX_CHAIN}: {path} → {name}");
            return Err(self.error(Code::ProfileInvalid, extends.spot, message, "extend a built-in profile"));
        }
        Ok(found)
    }

    fn error(&self, code: Code, spot: Spot, message: String, remedy: impl Into<String>) -> ProfileError {
        match self.texts.get(spot.text) {
            Some(text) => ProfileError::new(code, text, spot, message, remedy),
            None => Refusal::new(code, message, remedy).into(),
        }
    }

    /// Applies a chain from its root to its most specific text. The root is always a built-in.
    fn fold(&self, name: &str, chain: Vec<Written>) -> Result<Resolved, ProfileError> {
        let mut resolved = empty(name);
        resolved.texts.clone_from(&self.texts);
        let mut is_root = true;
        for written in chain.into_iter().rev() {
            if let Some(mode) =
                written.mode.as_ref().filter(|mode| !is_root && mode.value != resolved.mode.value)
            {
                return Err(resolved.error(
                    Code::ProfileInvalid,
                    mode.spot,
                    "a profile can't change the mode of the one it extends",
                    "extend `host` for mode \"host\", and a sandbox profile such as `default` for \"sandbox\"",
                ));
            }
            apply(&mut resolved, written);
            is_root = false;
        }
        Ok(resolved)
    }

    /// Narrows a trusted base by a workspace's text and by what that text extends.
    fn workspace(&mut self, base: Resolved, text: ProfileText) -> Result<Resolved, ProfileError> {
        let mut overlays = Vec::new();
        let mut seen: Vec<(Place, String)> = Vec::new();
        let mut next = Some(text);
        let mut blame = None;
        let base_name = base.name.clone();
        while let Some(text) = next {
            let (place, name) = (text.place, text.name.clone());
            let written = self.parse(text)?;
            seen.push((place, name.clone()));
            // What a workspace extends is judged like its own lines: naming a wider trusted profile is
            // no way around the user's choice.
            let blamed = (place != Place::Workspace).then_some(blame).flatten();
            next = match &written.extends {
                Some(extends) if place == Place::Workspace && extends.value == base_name => None,
                Some(extends) => {
                    if place == Place::Workspace {
                        blame = Some(extends.spot);
                    }
                    Some(self.extended(extends, place, &name, &seen)?)
                }
                None if place == Place::Workspace => None,
                None => implicit_base(&written, place),
            };
            overlays.push((written, blamed));
        }
        let mut narrowed = base;
        narrowed.texts.clone_from(&self.texts);
        let environment = narrow::TrustedEnvironment::of(&narrowed);
        // A trusted profile that is extended counts as its resolved whole: `build` over `default` is not
        // judged for the lines of `default` that `build` replaces.
        let trusted = overlays.iter().position(|(_, blamed)| blamed.is_some()).unwrap_or(overlays.len());
        let whole = overlays.split_off(trusted);
        if let Some((_, Some(spot))) = whole.first() {
            let spot = *spot;
            let merged = whole.into_iter().rev().map(|(written, _)| written).reduce(written_over);
            if let Some(merged) = merged {
                narrowed = narrow::narrow(narrowed, merged, &environment, Some(spot))?;
            }
        }
        for (written, _) in overlays.into_iter().rev() {
            narrowed = narrow::narrow(narrowed, written, &environment, None)?;
        }
        Ok(narrowed)
    }
}

pub(crate) fn built_in(name: &str) -> Option<ProfileText> {
    let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
    Some(ProfileText {
        place: Place::BuiltIn,
        name: (*name).to_owned(),
        file: Bytes::from(format!("built-in:{name}")),
        text: Cow::Borrowed(text),
    })
}

/// What a text without `extends` rests on: always the built-in, so that a user's own `default` does not
/// change the meaning of a profile that never names it.
fn implicit_base(written: &Written, place: Place) -> Option<ProfileText> {
    let is_host = written.mode.as_ref().is_some_and(|mode| mode.value == Mode::Host);
    match place {
        Place::BuiltIn => None,
        Place::Workspace | Place::User | Place::System => built_in(if is_host { "host" } else { "default" }),
    }
}

/// `child` with the gaps filled from `parent`.
fn written_over(parent: Written, child: Written) -> Written {
    let mut env_set = parent.env_set;
    merge_set(&mut env_set, child.env_set);
    // As in `apply`: a list belongs to the `network` it was written for.
    let mut egress = parent.egress;
    if drops_egress(child.network.as_ref()) {
        egress.allow = None;
    }
    egress.allow = child.egress.allow.or(egress.allow);
    merge_set(&mut egress.sets, child.egress.sets);
    let mut limits = parent.limits;
    for (slot, value) in limits.iter_mut().zip(child.limits) {
        *slot = value.or(slot.take());
    }
    let mut layers = parent.layers;
    for (slot, value) in layers.iter_mut().zip(child.layers) {
        *slot = value.or(slot.take());
    }
    Written {
        description: child.description.or(parent.description),
        extends: None,
        mode: child.mode.or(parent.mode),
        fs: child.fs.or(parent.fs),
        readable: child.readable.or(parent.readable),
        writable: child.writable.or(parent.writable),
        deny: child.deny.or(parent.deny),
        deny_write: child.deny_write.or(parent.deny_write),
        toolchains: child.toolchains.or(parent.toolchains),
        network: child.network.or(parent.network),
        egress,
        watch: child.watch.or(parent.watch),
        socket_rules: rules_over(parent.socket_rules, child.socket_rules),
        env_allow: child.env_allow.or(parent.env_allow),
        env_set,
        shell: written::Shell {
            program: child.shell.program.or(parent.shell.program),
            args: child.shell.args.or(parent.shell.args),
            allowed_programs: child.shell.allowed_programs.or(parent.shell.allowed_programs),
            allowed_args: child.shell.allowed_args.or(parent.shell.allowed_args),
        },
        limits,
        layers,
    }
}

/// The child's rules first. One of the same name takes its parent's place.
fn rules_over(parent: Vec<RuleText>, child: Vec<RuleText>) -> Vec<RuleText> {
    let replaced = |rule: &RuleText| child.iter().any(|own| own.name.value == rule.name.value);
    let kept = parent.into_iter().filter(|rule| !replaced(rule)).collect::<Vec<_>>();
    child.into_iter().chain(kept).collect()
}

/// A text that turns the allowlist off has no use for the list it inherits.
fn drops_egress(network: Option<&At<Reach>>) -> bool {
    network.is_some_and(|network| network.value != Reach::Allowlist)
}

pub(crate) fn merge_set<T>(into: &mut Vec<(At<String>, T)>, from: Vec<(At<String>, T)>) {
    for (name, value) in from {
        into.retain(|(known, _)| known.value != name.value);
        into.push((name, value));
    }
}

/// The root of every fold: closed everywhere. The built-ins write every key of their mode over it.
fn empty(name: &str) -> Resolved {
    // No text at all: counts as built-in.
    let spot = Spot { text: usize::MAX, start: 0, end: 0 };
    let none = At::new(Vec::new(), spot);
    Resolved {
        name: name.to_owned(),
        texts: Vec::new(),
        description: None,
        mode: At::new(Mode::Sandbox, spot),
        fs: At::new(View::WorkspaceReadonly, spot),
        readable: none.clone(),
        writable: none.clone(),
        bounds: Vec::new(),
        deny: none.clone(),
        deny_write: none.clone(),
        toolchains: At::new(false, spot),
        network: At::new(Reach::Deny, spot),
        egress_allow: none.clone(),
        egress_sets: Vec::new(),
        watch: At::new(SocketWatch::Off, spot),
        socket_rules: Vec::new(),
        env_allow: none.clone(),
        env_set: Vec::new(),
        shell_program: At::new(String::new(), spot),
        shell_args: none.clone(),
        shell_allowed_programs: none.clone(),
        shell_allowed_args: none,
        limits: std::array::from_fn::<_, LIMIT_COUNT, _>(|_| At::new(Some(1), spot)),
        layers: Layer::ALL.map(|_| At::new(Requirement::Off, spot)),
        warnings: Vec::new(),
    }
}

pub(crate) fn apply(to: &mut Resolved, written: Written) {
    fn put<T>(slot: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *slot = value;
        }
    }
    if written.description.is_some() {
        to.description = written.description;
    }
    put(&mut to.mode, written.mode);
    put(&mut to.fs, written.fs);
    put(&mut to.readable, written.readable);
    put(&mut to.writable, written.writable);
    put(&mut to.deny, written.deny);
    put(&mut to.deny_write, written.deny_write);
    put(&mut to.toolchains, written.toolchains);
    if drops_egress(written.network.as_ref()) {
        to.egress_allow.value.clear();
    }
    put(&mut to.network, written.network);
    put(&mut to.egress_allow, written.egress.allow);
    merge_set(&mut to.egress_sets, written.egress.sets);
    put(&mut to.watch, written.watch);
    to.socket_rules = rules_over(std::mem::take(&mut to.socket_rules), written.socket_rules);
    put(&mut to.env_allow, written.env_allow);
    merge_set(&mut to.env_set, written.env_set);
    put(&mut to.shell_program, written.shell.program);
    put(&mut to.shell_args, written.shell.args);
    put(&mut to.shell_allowed_programs, written.shell.allowed_programs);
    put(&mut to.shell_allowed_args, written.shell.allowed_args);
    for (slot, value) in to.limits.iter_mut().zip(written.limits) {
        put(slot, value);
    }
    for (slot, value) in to.layers.iter_mut().zip(written.layers) {
        put(slot, value);
    }
}
