//! Plans and profiles for people: `--explain`, `policy show`, `policy explain`. Text only; deciding is over
//! when this is called.

mod live;

use stockade_proto::{
    Access, Identity, Layer, Limits, Mode, Mount, MountKind, Network, Placeholder, PlaceholderKind, Plan,
    Requirement,
};

use crate::profile::{Reach, Resolved, View};
use crate::text::{At, Spot};
use crate::values::{self, LIMITS, Unit};
use crate::written::{List, MODES, REACHES, REQUIREMENTS, VIEWS, word_of};

/// A plan as sections of text.
pub fn explain(plan: &Plan) -> String {
    let mut out = String::new();
    section(&mut out, "command", plan.command.argv.iter().map(|arg| quote(&arg.to_string())));
    let mode = word_of(&MODES, &plan.mode);
    section(&mut out, "profile", [format!("{} ({mode})", plan.profile), format!("starts in {}", plan.cwd)]);
    section(&mut out, "identity", [identity(&plan.identity)]);
    section(&mut out, "walls", Layer::ALL.into_iter().map(|layer| wall(plan, layer)));
    section(&mut out, "files", plan.mounts.iter().map(mount));
    let rules = plan.landlock.iter().flat_map(|landlock| &landlock.rules);
    section(&mut out, "landlock", rules.map(|rule| format!("{:<7} {}", access(rule.access), rule.path)));
    section(&mut out, "sockets", live::sockets(plan));
    section(&mut out, "network", live::network(plan));
    section(&mut out, "made while it runs", plan.placeholders.iter().map(placeholder));
    section(&mut out, "environment", plan.env.iter().map(|(name, value)| format!("{name}={value}")));
    section(&mut out, "limits", limits(&plan.limits));
    section(&mut out, "warnings", plan.warnings.iter().cloned());
    out
}

fn placeholder(held: &Placeholder) -> String {
    let what = match held.kind {
        PlaceholderKind::EmptyDirectory => "an empty directory",
        PlaceholderKind::EmptyFile => "an empty file",
        PlaceholderKind::GitCommondir => "a file that leads git nowhere else",
    };
    format!("{} ({what})", held.path)
}

fn section(out: &mut String, title: &str, lines: impl IntoIterator<Item = String>) {
    let mut lines = lines.into_iter().peekable();
    if lines.peek().is_none() {
        return;
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(title);
    out.push('\n');
    for line in lines {
        out.push_str("  ");
        out.push_str(&line);
        out.push('\n');
    }
}

fn identity(identity: &Identity) -> String {
    let Identity { uid, gid, host_uid, host_gid } = identity;
    if identity.is_mapped() {
        format!("{uid}:{gid} inside, {host_uid}:{host_gid} to the host, never root there")
    } else {
        format!("{uid}:{gid}")
    }
}

fn wall(plan: &Plan, layer: Layer) -> String {
    let what = match layer {
        Layer::Filesystem => "a root of its own: what is not listed does not exist",
        Layer::Landlock => "what is not listed is refused",
        Layer::Process => "sees and signals only its own processes",
        Layer::Network => match &plan.network {
            Network::Deny => "no network",
            Network::Allowlist(_) => "listed hosts only",
            Network::Inherit => "the host's network",
        },
        Layer::Seccomp => "dangerous system calls are refused",
        Layer::Sockets => "each Unix socket is decided by a rule",
        Layer::Limits => "memory, CPU and processes are capped",
    };
    match plan.layers.get(layer) {
        Requirement::Off if layer == Layer::Network => format!("{:<11} off: {what}", layer.name()),
        Requirement::Off => format!("{:<11} off", layer.name()),
        requirement @ (Requirement::Prefer | Requirement::Must) => {
            format!("{:<11} {}: {what}", layer.name(), word_of(&REQUIREMENTS, &requirement))
        }
    }
}

fn mount(mount: &Mount) -> String {
    let (what, leads) = match &mount.kind {
        MountKind::Dir { .. } => ("directory", String::new()),
        MountKind::File { .. } => ("file", String::new()),
        MountKind::Symlink { to } => ("link", format!(" -> {to}")),
        MountKind::Scratch { .. } => ("scratch", String::new()),
        MountKind::Bind(bind) if bind.writable => ("read-write", String::new()),
        MountKind::Bind(_) => ("read-only", String::new()),
        MountKind::Proc => ("proc", String::new()),
        MountKind::DevPts => ("terminals", String::new()),
        MountKind::Device => ("device", String::new()),
        MountKind::Mask { .. } => ("masked", String::new()),
        MountKind::Cover { .. } => ("replaced", String::new()),
        MountKind::Protect { .. } => ("protected", String::new()),
        MountKind::Pin => ("pinned", String::new()),
    };
    format!("{what:<10} {}{leads}  ({})", mount.target, mount.reason)
}

const fn access(access: Access) -> &'static str {
    match access {
        Access::List => "list",
        Access::Read => "read",
        Access::Write => "write",
        Access::Device => "device",
        Access::Proc => "proc",
    }
}

fn limits(limits: &Limits) -> Vec<String> {
    let values = [
        limits.memory_bytes,
        limits.cpu_millicores,
        limits.cpu_seconds,
        limits.processes,
        limits.open_files,
        limits.file_size_bytes,
        limits.wall_ms,
        limits.output_bytes,
        Some(limits.scratch_bytes),
        Some(limits.grace_ms),
    ];
    LIMITS
        .iter()
        .zip(values)
        .map(|(row, value)| format!("{:<11} {}", row.key, values::show(row.unit, value)))
        .collect()
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The resolved profile as TOML that parses back, each key with its origin.
pub fn show_profile(profile: &Resolved) -> String {
    let mut out = String::new();
    let mut line = |text: String, spot: Spot| {
        out.push_str(&format!("{text}  # {}\n", profile.whereabouts(spot)));
    };
    if let Some(description) = &profile.description {
        line(format!("description = {}", toml_string(&description.value)), description.spot);
    }
    let word = |word: &str| format!("\"{word}\"");
    line(format!("mode = {}", word(word_of(&MODES, &profile.mode.value))), profile.mode.spot);
    line(format!("fs = {}", word(word_of(&VIEWS, &profile.fs.value))), profile.fs.spot);
    let sandboxed = profile.mode.value == Mode::Sandbox;
    if sandboxed {
        for (key, list) in [
            ("readable", &profile.readable),
            ("writable", &profile.writable),
            ("deny", &profile.deny),
            ("deny-write", &profile.deny_write),
        ] {
            line(format!("{key} = {}", toml_list(list)), list.spot);
        }
        line(format!("toolchains = {}", profile.toolchains.value), profile.toolchains.spot);
    }
    line(format!("network = {}", word(word_of(&REACHES, &profile.network.value))), profile.network.spot);
    if sandboxed {
        line(live::show_mode(profile), profile.watch.spot);
    }
    show_tables(profile, sandboxed, &mut out);
    live::show(profile, &mut out);
    out
}

fn show_tables(profile: &Resolved, sandboxed: bool, out: &mut String) {
    let mut line = |text: String, spot: Option<Spot>| match spot {
        Some(spot) => out.push_str(&format!("{text}  # {}\n", profile.whereabouts(spot))),
        None => out.push_str(&format!("\n{text}\n")),
    };
    line("[env]".to_owned(), None);
    line(format!("allow = {}", toml_list(&profile.env_allow)), Some(profile.env_allow.spot));
    for (name, value) in &profile.env_set {
        line(format!("set.{} = {}", toml_string(&name.value), toml_string(&value.value)), Some(value.spot));
    }
    line("[shell]".to_owned(), None);
    let program = &profile.shell_program;
    line(format!("program = {}", toml_string(&program.value)), Some(program.spot));
    for (key, list) in [
        ("args", &profile.shell_args),
        ("allowed-programs", &profile.shell_allowed_programs),
        ("allowed-args", &profile.shell_allowed_args),
    ] {
        line(format!("{key} = {}", toml_list(list)), Some(list.spot));
    }
    line("[limits]".to_owned(), None);
    for (row, at) in LIMITS.iter().zip(&profile.limits) {
        let shown = values::show(row.unit, at.value);
        let bare = at.value.is_some() && matches!(row.unit, Unit::Count | Unit::Seconds | Unit::Cores);
        let shown = if bare { shown } else { format!("\"{shown}\"") };
        line(format!("{} = {shown}", row.key), Some(at.spot));
    }
    line("[layers]".to_owned(), None);
    for layer in Layer::ALL.into_iter().filter(|layer| sandboxed || *layer == Layer::Limits) {
        let at = profile.layer(layer);
        line(format!("{layer} = \"{}\"", word_of(&REQUIREMENTS, &at.value)), Some(at.spot));
    }
}

fn toml_list(list: &List) -> String {
    format!("[{}]", list.value.iter().map(|item| toml_string(&item.value)).collect::<Vec<_>>().join(", "))
}

pub(crate) fn toml_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The profile in sentences, each with the place that decided it.
pub fn explain_profile(profile: &Resolved) -> String {
    let mut out = String::new();
    let from = |spot: Spot| profile.whereabouts(spot);
    if let Some(description) = &profile.description {
        out.push_str(&format!(
            "{}: {}\n\n",
            profile.name,
            stockade_proto::Bytes::from(description.value.as_str())
        ));
    }
    let mut say = |sentence: String, spot: Spot| out.push_str(&format!("- {sentence} [{}]\n", from(spot)));
    match profile.mode.value {
        Mode::Host => say("Commands run without walls, as you.".to_owned(), profile.mode.spot),
        Mode::Sandbox => {
            say(view(profile.fs.value).to_owned(), profile.fs.spot);
            let lists = [
                (&profile.readable, "It may read"),
                (&profile.writable, "It may write"),
                (&profile.deny, "In the workspace it can't read"),
                (&profile.deny_write, "In the workspace it can't change"),
            ];
            for (list, verb) in lists {
                if !list.value.is_empty() {
                    say(format!("{verb} {}.", names(&list.value)), list.spot);
                }
            }
            let tools = if profile.toolchains.value {
                "Toolchains that PATH names below your home are shown read-only, credentials masked."
            } else {
                "Nothing of your home directory is shown."
            };
            say(tools.to_owned(), profile.toolchains.spot);
        }
    }
    let reach = match profile.network.value {
        Reach::Deny => "There is no network.",
        Reach::Allowlist => "The network reaches listed hosts only.",
        Reach::Inherit => "It has the host's network.",
    };
    say(reach.to_owned(), profile.network.spot);
    if profile.mode.value == Mode::Sandbox {
        live::say(profile, &mut say);
    }
    say(
        format!("From your environment it gets {}.", names(&profile.env_allow.value)),
        profile.env_allow.spot,
    );
    for (name, value) in &profile.env_set {
        say(format!("{} is set to {}.", name.value.escape_debug(), quote(&value.value)), value.spot);
    }
    for (row, at) in LIMITS.iter().zip(&profile.limits) {
        let sentence = match at.value {
            Some(_) => format!("{} is limited to {}.", row.key, values::show(row.unit, at.value)),
            None => format!("{} has no limit.", row.key),
        };
        say(sentence, at.spot);
    }
    for layer in
        Layer::ALL.into_iter().filter(|layer| profile.mode.value == Mode::Sandbox || *layer == Layer::Limits)
    {
        let at = profile.layer(layer);
        let sentence = match at.value {
            Requirement::Must => format!("Without the layer {layer} nothing runs."),
            Requirement::Prefer => {
                format!("Where the host lacks the layer {layer}, it runs without, and says so.")
            }
            Requirement::Off => format!("The layer {layer} is off."),
        };
        say(sentence, at.spot);
    }
    for warning in &profile.warnings {
        out.push_str(&format!("- Mind: {warning}.\n"));
    }
    out
}

const fn view(view: View) -> &'static str {
    match view {
        View::WorkspaceRw => {
            "It may change the workspace; system paths are read-only; the rest does not exist."
        }
        View::WorkspaceReadonly => "It may read the workspace and system paths; the rest does not exist.",
        View::Inherit => "It sees and changes the files you can.",
    }
}

fn names(items: &[At<String>]) -> String {
    if items.is_empty() {
        return "nothing".to_owned();
    }
    items.iter().map(|item| item.value.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
}
