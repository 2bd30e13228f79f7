//! Socket rules for one execution: paths expanded, symlinks of the host accounted for, and the sockets that a
//! rule opens shown in the new root. What a command could have planted is never followed. Next: `plan`.

use std::borrow::Cow;
use std::path::Path;

use stockade_proto::{
    Bind, Bytes, Code, Identity, Mode, Mount, MountKind, Refusal, SocketMode, SocketPattern, SocketPlan,
    SocketRule,
};

use crate::profile::{Resolved, View};
use crate::report::{FoundSocket, HostReport, NeededSocket, Object, SocketObject, SocketPlace};
use crate::request::Caller;
use crate::socket_paths::{self, Matcher, Names, WORKSPACE};
use crate::text::{At, Spot};
use crate::written::SocketWatch;

/// What a rule's `~` and variables stand for, and what the survey found at its paths.
#[derive(Debug, Clone, Copy)]
pub struct SocketGround<'g> {
    pub caller: &'g Caller,
    /// The home that the command sees.
    pub home: &'g Bytes,
    /// Canonical.
    pub workspace: &'g Bytes,
    pub found: &'g [FoundSocket],
}

fn expand(
    profile: &Resolved,
    path: &At<String>,
    ground: &SocketGround<'_>,
) -> Result<SocketPattern, Refusal> {
    let variable = |name: &str| ground.caller.variable(name).cloned();
    let names = Names { home: ground.home, workspace: ground.workspace, variable: &variable };
    socket_paths::expand(&path.value, &names).map_err(|(message, remedy)| {
        Refusal::from(profile.error(Code::ProfileInvalid, path.spot, message, remedy))
    })
}

/// The places of a profile's rules that the survey must look at. The built-ins' are private places, which the
/// new root makes itself; only without one do the host's links matter to them.
pub fn needed_sockets(profile: &Resolved, caller: &Caller) -> Result<Vec<NeededSocket>, Refusal> {
    let mut needed = Vec::new();
    if profile.mode.value == Mode::Host || profile.watch.value == SocketWatch::Off {
        return Ok(needed);
    }
    // Never used: what lies in the workspace has no other name than the workspace's.
    let nowhere = Bytes::from("/");
    let ground = SocketGround { caller, home: &caller.home, workspace: &nowhere, found: &[] };
    for (rule, text) in profile.socket_rules.iter().enumerate() {
        if profile.is_built_in(text.name.spot) && profile.fs.value != View::Inherit {
            continue;
        }
        for (at, path) in text.paths.value.iter().enumerate() {
            let bare = path.value.trim_start_matches(['$', '{']);
            if path.value.starts_with('$') && bare.starts_with(WORKSPACE) {
                continue;
            }
            let SocketPattern::Path(pattern) = expand(profile, path, &ground)? else { continue };
            let place = match socket_paths::literal(&pattern) {
                Some(path) => SocketPlace::Path(Bytes::from(path)),
                None => {
                    let (directory, rest) = socket_paths::directory(&pattern);
                    SocketPlace::Glob { directory: Bytes::from(directory), rest: Bytes::from(rest) }
                }
            };
            needed.push(NeededSocket { rule, at, place });
        }
    }
    Ok(needed)
}

/// The rules as the supervisor decides by them; none where sockets are not watched.
pub fn socket_plan(profile: &Resolved, ground: &SocketGround<'_>) -> Result<Option<SocketPlan>, Refusal> {
    let mode = match profile.watch.value {
        SocketWatch::Off => return Ok(None),
        SocketWatch::Audit => SocketMode::Audit,
        SocketWatch::Enforce => SocketMode::Enforce,
    };
    let mut rules = Vec::new();
    for (at, rule) in profile.socket_rules.iter().enumerate() {
        let mut patterns: Vec<SocketPattern> = Vec::new();
        let mut add = |pattern: SocketPattern| {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        };
        for path in &rule.paths.value {
            add(expand(profile, path, ground)?);
        }
        for found in ground.found.iter().filter(|found| found.needed.rule == at) {
            if let Some(pattern) = real_pattern(found) {
                add(SocketPattern::Path(pattern));
            }
        }
        let spot = rule.name.spot;
        rules.push(SocketRule {
            name: rule.name.value.clone(),
            patterns,
            operations: rule.operations.clone(),
            decision: rule.decision.value,
            message: rule.message.as_ref().map(|message| message.value.clone()),
            origin: profile.origin(spot).filter(|_| !profile.is_built_in(spot)).map(Box::new),
        });
    }
    Ok(Some(SocketPlan { mode, rules }))
}

/// Decisions are made on resolved paths, so a rule for `/var/run/x` must hold for `/run/x`.
fn real_pattern(found: &FoundSocket) -> Option<Bytes> {
    let real = socket_paths::escape(found.real.as_ref()?.as_slice());
    match &found.needed.place {
        SocketPlace::Path(_) => Some(Bytes::from(real)),
        SocketPlace::Glob { rest, .. } => {
            let real = real.strip_suffix(b"/").unwrap_or(&real);
            Some(Bytes::from([real, b"/", rest.as_slice()].concat()))
        }
    }
}

/// How the new root shows a path.
fn holds(root: &[Mount], path: &Path, kind: fn(&MountKind) -> bool) -> bool {
    root.iter().any(|mount| kind(&mount.kind) && path.starts_with(mount.target.as_path()))
}

fn is_bind(kind: &MountKind) -> bool {
    matches!(kind, MountKind::Bind(_))
}

fn is_scratch(kind: &MountKind) -> bool {
    matches!(kind, MountKind::Scratch { .. })
}

/// Whether the root shows the socket through a map of owners that has no place for its own. The kernel lets nobody
/// write to such an object, and connecting is writing. Where commands can write, a mount of its own would be in
/// their way; what is masked stays so.
fn is_nobodys(root: &[Mount], object: &Object, identity: Identity) -> bool {
    let path = object.path.as_path();
    let over = root.iter().rev().filter(|mount| path.starts_with(mount.target.as_path()));
    let mut over = over.filter(|mount| matches!(mount.kind, MountKind::Bind(_) | MountKind::Mask { .. }));
    let mapped = over.next().is_some_and(
        |mount| matches!(&mount.kind, MountKind::Bind(bind) if bind.owner_mapped && !bind.writable),
    );
    mapped && (object.uid, object.gid) != (identity.uid, identity.gid)
}

/// Mounts that show the sockets which rules name by their path, on top of the finished root. A read-only bind
/// is enough to connect to. A link keeps the name that was written, where nothing else stands there.
pub(crate) fn mounts(
    profile: &Resolved,
    report: &HostReport,
    identity: Identity,
    root: &[Mount],
    warnings: &mut Vec<String>,
) -> Result<Vec<Mount>, Refusal> {
    let mut mounts: Vec<Mount> = Vec::new();
    for found in &report.sockets {
        let Some(rule) = profile.socket_rules.get(found.needed.rule).filter(|rule| rule.reaches()) else {
            continue;
        };
        let Some(path) = rule.paths.value.get(found.needed.at) else { continue };
        let written = match &found.needed.place {
            SocketPlace::Path(written) => written,
            SocketPlace::Glob { directory, .. } => {
                let real = found.real.as_ref().unwrap_or(directory).as_path();
                if !holds(root, real, |kind| is_bind(kind) || is_scratch(kind)) {
                    warnings.push(unseen(profile, path, &found.what));
                }
                continue;
            }
        };
        match &found.what {
            SocketObject::Socket(object) => {
                let reason: Cow<str> = Cow::Owned(format!("the socket rule {}", rule.name.value));
                let mut add = |target: &Bytes, kind: MountKind| {
                    let through = *target == object.path && is_nobodys(root, object, identity);
                    let taken = (holds(root, target.as_path(), is_bind) && !through)
                        || mounts.iter().any(|mount| mount.target == *target);
                    if !taken {
                        mounts.push(Mount { target: target.clone(), kind, reason: reason.clone() });
                    }
                };
                let bind = Bind { source: object.source(), writable: false, owner_mapped: false };
                add(&object.path, MountKind::Bind(bind));
                if *written != object.path {
                    add(written, MountKind::Symlink { to: object.path.clone() });
                }
            }
            // What is private inside is not what the host has at that path.
            SocketObject::Other | SocketObject::Missing if holds(root, written.as_path(), is_scratch) => {}
            SocketObject::Other => return Err(not_a_socket(profile, path.spot, written)),
            SocketObject::Missing => warnings
                .push(format!("{}: nothing listens at `{written}` now", profile.whereabouts(path.spot))),
            SocketObject::Planted => warnings.push(format!(
                "{}: `{written}` leads through a link that a command could have made, so it is not shown",
                profile.whereabouts(path.spot)
            )),
            SocketObject::Matches(_) => {}
        }
    }
    Ok(mounts)
}

fn not_a_socket(profile: &Resolved, spot: Spot, path: &Bytes) -> Refusal {
    let message = format!("`{path}` is not a socket");
    profile.error(Code::ProfileInvalid, spot, message, "name the socket itself, or remove the path").into()
}

fn unseen(profile: &Resolved, path: &At<String>, what: &SocketObject) -> String {
    let place = profile.whereabouts(path.spot);
    let written = path.value.escape_debug();
    match what {
        SocketObject::Matches(Some(count)) if *count > 0 => format!(
            "{place}: `{written}` matches {count} of the host's sockets, and none of them is shown: name each by its path"
        ),
        SocketObject::Matches(Some(_)) | SocketObject::Missing => {
            format!("{place}: `{written}` matches nothing on this host")
        }
        SocketObject::Matches(None)
        | SocketObject::Socket(_)
        | SocketObject::Other
        | SocketObject::Planted => {
            format!("{place}: `{written}` lies outside of what is shown: name each socket by its path")
        }
    }
}

/// Tells whether a name in a glob's directory matches what follows the directory.
pub type NameMatcher = Box<dyn Fn(&[u8]) -> bool>;

/// None where more than the directory itself would have to be looked through.
pub fn name_matcher(rest: &Bytes) -> Option<NameMatcher> {
    if rest.as_slice().contains(&b'/') || rest.as_slice().windows(2).any(|two| two == b"**") {
        return None;
    }
    match Matcher::new(&SocketPattern::Path(Bytes::from([b"/", rest.as_slice()].concat()))) {
        Ok(Matcher::Path(shape)) => Some(Box::new(move |name| shape.matches(&[b"/", name].concat()))),
        Ok(Matcher::Own | Matcher::Abstract(_)) | Err(_) => None,
    }
}
