//! Contradictions inside one resolved profile. What a person wrote twice against itself is an error at the
//! spot; a built-in's value that stands against a person's gives way, and a warning says so. Next: `plan`.

mod egress;
mod sockets;

use stockade_proto::{Code, Layer, Mode, Requirement};

use crate::problem::ProfileError;
use crate::profile::{Reach, Resolved, View};
use crate::text::{At, Spot};
use crate::written::{REACHES, SocketWatch, word_of};

pub(crate) fn check(profile: &mut Resolved) -> Result<(), ProfileError> {
    shell(profile)?;
    match profile.mode.value {
        Mode::Host => host(profile),
        Mode::Sandbox => {
            paths(profile)?;
            process(profile)?;
            inherited_view(profile)?;
            missing_wall(profile)?;
            network(profile)?;
            egress::egress(profile)?;
            sockets::sockets(profile)
        }
    }
}

fn contradiction(profile: &Resolved, spot: Spot, message: String, remedy: &str) -> ProfileError {
    profile.error(Code::ProfileInvalid, spot, message, remedy)
}

fn shell(profile: &Resolved) -> Result<(), ProfileError> {
    let allowed = |list: &[At<String>], word: &str| list.iter().any(|item| item.value == word);
    let program = &profile.shell_program;
    if !allowed(&profile.shell_allowed_programs.value, &program.value) {
        return Err(contradiction(
            profile,
            program.spot,
            format!("the shell `{}` is not in `shell.allowed-programs`", program.value.escape_debug()),
            "add it there, or choose one that is",
        ));
    }
    match profile.shell_args.value.iter().find(|arg| !allowed(&profile.shell_allowed_args.value, &arg.value))
    {
        None => Ok(()),
        Some(arg) => Err(contradiction(
            profile,
            arg.spot,
            format!("the shell argument `{}` is not in `shell.allowed-args`", arg.value.escape_debug()),
            "add it there, or choose one that is",
        )),
    }
}

/// A host profile with a wall's key would look walled.
fn host(profile: &Resolved) -> Result<(), ProfileError> {
    let lists = [
        ("readable", &profile.readable),
        ("writable", &profile.writable),
        ("deny", &profile.deny),
        ("deny-write", &profile.deny_write),
    ];
    let mut sandbox_only: Vec<(&str, Spot)> = lists
        .iter()
        .filter(|(_, list)| !profile.is_built_in(list.spot))
        .map(|(key, list)| (*key, list.spot))
        .collect();
    if profile.fs.value != View::Inherit {
        sandbox_only.push(("fs", profile.fs.spot));
    }
    if profile.network.value != Reach::Inherit {
        sandbox_only.push(("network", profile.network.spot));
    }
    if !profile.egress_allow.value.is_empty() {
        sandbox_only.push(("egress", profile.egress_allow.spot));
    }
    sandbox_only.extend(profile.egress_sets.iter().map(|(name, _)| ("egress", name.spot)));
    if profile.watch.value != SocketWatch::Off {
        sandbox_only.push(("unix-sockets-mode", profile.watch.spot));
    }
    sandbox_only.extend(profile.socket_rules.iter().map(|rule| ("unix_sockets", rule.name.spot)));
    if !profile.is_built_in(profile.toolchains.spot) {
        sandbox_only.push(("toolchains", profile.toolchains.spot));
    }
    for layer in Layer::ALL.into_iter().filter(|layer| *layer != Layer::Limits) {
        let requirement = profile.layer(layer);
        if !profile.is_built_in(requirement.spot) {
            sandbox_only.push(("layers", requirement.spot));
        }
    }
    match sandbox_only.into_iter().min_by_key(|(_, spot)| (spot.text, spot.start)) {
        None => Ok(()),
        Some((key, spot)) => Err(contradiction(
            profile,
            spot,
            format!("`{key}` has no meaning in mode \"host\", which has no walls"),
            "remove it, or write mode = \"sandbox\"",
        )),
    }
}

/// `?` and `$HOME` are spellings, not paths.
pub(crate) fn plain_path(written: &str) -> String {
    let bare = written.strip_suffix('?').unwrap_or(written);
    let home = bare.strip_prefix("$HOME").or_else(|| bare.strip_prefix("${HOME}"));
    let bare = match home {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("~{rest}"),
        Some(_) | None => bare.to_owned(),
    };
    let parts = bare.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    if bare.starts_with('/') { format!("/{parts}") } else { parts }
}

fn paths(profile: &Resolved) -> Result<(), ProfileError> {
    for writable in &profile.writable.value {
        let path = plain_path(&writable.value);
        if profile.readable.value.iter().any(|readable| plain_path(&readable.value) == path) {
            return Err(contradiction(
                profile,
                writable.spot,
                format!("`{}` is in both `readable` and `writable`", writable.value.escape_debug()),
                "keep it in one of them; writable paths can be read too",
            ));
        }
    }
    Ok(())
}

/// Every namespace here is made inside the user namespace of the process layer.
fn process(profile: &Resolved) -> Result<(), ProfileError> {
    if profile.layer(Layer::Process).value != Requirement::Off {
        return Ok(());
    }
    let filesystem =
        profile.layer(Layer::Filesystem).value != Requirement::Off && profile.fs.value != View::Inherit;
    let network =
        profile.layer(Layer::Network).value != Requirement::Off && profile.network.value != Reach::Inherit;
    let needy = if filesystem { "filesystem" } else { "network" };
    if filesystem || network {
        return Err(contradiction(
            profile,
            profile.layer(Layer::Process).spot,
            format!("layers.process is off, but layers.{needy} stands on its namespaces"),
            "turn that layer off too, or keep layers.process",
        ));
    }
    Ok(())
}

fn inherited_view(profile: &mut Resolved) -> Result<(), ProfileError> {
    if profile.fs.value != View::Inherit {
        return Ok(());
    }
    for (key, list) in [("readable", &profile.readable), ("writable", &profile.writable)] {
        if !list.value.is_empty() {
            return Err(contradiction(
                profile,
                list.spot,
                format!("`{key}` has no meaning with fs = \"inherit\", which shows everything"),
                "remove it, or choose a workspace view",
            ));
        }
    }
    for layer in [Layer::Filesystem, Layer::Landlock] {
        let requirement = profile.layer(layer).clone();
        if requirement.value != Requirement::Off && !profile.is_built_in(requirement.spot) {
            return Err(contradiction(
                profile,
                requirement.spot,
                format!("layers.{layer} asks for a wall that fs = \"inherit\" takes away"),
                "remove one of the two",
            ));
        }
    }
    drop_denials(profile, "fs is \"inherit\"")?;
    let spot = profile.fs.spot;
    let [filesystem, landlock, ..] = &mut profile.layers;
    *filesystem = At::new(Requirement::Off, spot);
    *landlock = At::new(Requirement::Off, spot);
    Ok(())
}

fn missing_wall(profile: &mut Resolved) -> Result<(), ProfileError> {
    if profile.layer(Layer::Filesystem).value != Requirement::Off || profile.fs.value == View::Inherit {
        return Ok(());
    }
    if profile.layer(Layer::Landlock).value == Requirement::Off {
        return Err(contradiction(
            profile,
            profile.layer(Layer::Filesystem).spot,
            "layers.filesystem and layers.landlock are both off, so nothing would enforce `fs`".to_owned(),
            "keep one of them, or write fs = \"inherit\"",
        ));
    }
    drop_denials(profile, "layers.filesystem is off")
}

/// Deny lists are mounts: without the filesystem layer nothing would enforce them.
fn drop_denials(profile: &mut Resolved, because: &str) -> Result<(), ProfileError> {
    for (key, list) in [("deny", &profile.deny), ("deny-write", &profile.deny_write)] {
        if !list.value.is_empty() && !profile.is_built_in(list.spot) {
            return Err(contradiction(
                profile,
                list.spot,
                format!("`{key}` can't be enforced when {because}"),
                "remove it, or keep the filesystem layer",
            ));
        }
    }
    if !profile.deny.value.is_empty() || !profile.deny_write.value.is_empty() {
        profile.warnings.push(format!("{because}: the built-in deny and deny-write lists are not enforced"));
        profile.deny.value.clear();
        profile.deny_write.value.clear();
    }
    Ok(())
}

fn network(profile: &mut Resolved) -> Result<(), ProfileError> {
    let requirement = profile.layer(Layer::Network).clone();
    let inherits = profile.network.value == Reach::Inherit;
    if inherits && requirement.value != Requirement::Off && !profile.is_built_in(requirement.spot) {
        return Err(contradiction(
            profile,
            requirement.spot,
            "layers.network asks for a wall that network = \"inherit\" takes away".to_owned(),
            "remove one of the two",
        ));
    }
    if !inherits && requirement.value == Requirement::Off {
        // `network` may come from a built-in here; the person wrote `off`, so it is theirs to complete.
        return Err(contradiction(
            profile,
            requirement.spot,
            format!(
                "layers.network is off, but `network` is \"{}\", which nothing would enforce",
                word_of(&REACHES, &profile.network.value)
            ),
            "write network = \"inherit\" if the host's network is wanted",
        ));
    }
    if inherits {
        let spot = profile.network.spot;
        let [_, _, _, slot, ..] = &mut profile.layers;
        *slot = At::new(Requirement::Off, spot);
    }
    Ok(())
}
