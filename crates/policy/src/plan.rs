//! The one constructor of a `Plan`: a request, a resolved profile and a host report become a complete,
//! printable list of facts, or a refusal. Pure. Next: the executor spawns it.

use std::path::Path;

use stockade_proto::{
    ArgvCommand, Bytes, Code, Identity, Layer, Layers, Limits, Mode, Mount, MountKind, Network, Placeholder,
    Plan, Refusal, Request, Requirement, SocketPlan, Stdio,
};

use crate::command;
use crate::egress;
use crate::environment::{self, Surroundings, TOOLCHAIN_HOMES};
use crate::git::GitFacts;
use crate::landlock;
use crate::mounts::{self, Layout, sandbox_home};
use crate::profile::{Reach, Resolved, View};
use crate::publish;
use crate::report::{Extra, HostReport, is_untrusted};
use crate::request::Caller;
use crate::sockets::{self, SocketGround};
use crate::values::{self, LIMIT_COUNT, LIMITS, Unit, limit};

/// Host root is never mapped into a sandbox: uid 0 there could open files of the kernel's own for writing.
/// This uid stands in for it. It is above every range that systemd, container tools and distributions hand
/// out (they end at 0x6fff_ffff), and below 2^31, which some programs can't hold.
pub const SANDBOX_ROOT_UID: u32 = 0x7ffe_0000;

/// Below these the sandbox itself could not stand: init is a process, and the kernel needs some memory to start
/// any in a group.
const LEAST: [(usize, u64, &str); 2] =
    [(limit::PROCESSES, 2, "2"), (limit::MEMORY, 4 * 1024 * 1024, "\"4M\"")];

/// `NAME_FILES` has it too.
const HOSTNAME: &str = "stockade";
const SECCOMP: &str = "default";
/// The same, and calls that name a socket are trapped for the supervisor.
const SUPERVISED: &str = "sockets";

/// What every plan of this profile on this host begins with. It needs no look at the workspace's contents or
/// at toolchains, so a sandbox can be built on it while those are surveyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    pub mode: Mode,
    pub layers: Layers,
    pub unavailable: Vec<(Layer, String)>,
    pub identity: Identity,
    pub limits: Limits,
    pub network: Separation,
    pub hostname: String,
    /// The plan's first mounts.
    pub mounts: Vec<Mount>,
    warnings: Vec<String>,
}

impl Ground {
    /// Whether a sandbox that waits on one can take a plan of the other: the deadline is none of its business.
    pub fn serves(&self, other: &Self) -> bool {
        let Self { mode, layers, unavailable, identity, limits, network, hostname, mounts, warnings } = self;
        limits.is_same_but_for_the_deadline(&other.limits)
            && (mode, layers, identity, network)
                == (&other.mode, &other.layers, &other.identity, &other.network)
            && (unavailable, hostname, warnings) == (&other.unavailable, &other.hostname, &other.warnings)
            && *mounts == other.mounts
    }
}

/// How a sandbox stands to networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separation {
    /// The host's network.
    None,
    /// A namespace of its own that nothing leads into or out of.
    Sealed,
    /// A namespace of its own with ways that init opens, for which it needs power over it.
    WithWays,
}

fn separation(request: &Request, profile: &Resolved, layers: &Layers) -> Separation {
    if layers.network == Requirement::Off {
        return Separation::None;
    }
    match profile.network.value {
        Reach::Inherit => Separation::None,
        Reach::Deny if request.publish.is_empty() => Separation::Sealed,
        Reach::Deny | Reach::Allowlist => Separation::WithWays,
    }
}

/// Of `report`, only the caller, the workspace itself, the capacity, the layers and the system paths count.
pub fn ground(request: &Request, profile: &Resolved, report: &HostReport) -> Result<Ground, Refusal> {
    command::argv(&request.command, profile)?;
    let Walls { layers, unavailable } = walls(profile, report)?;
    let mut warnings: Vec<String> = unavailable
        .iter()
        .map(|(layer, why)| format!("the layer `{layer}` is missing, and the profile only prefers it: {why}"))
        .collect();
    let identity = identity(profile, report, &layers)?;
    let limits = limits(request, profile, report, &mut warnings)?;
    let has_root = layers.filesystem != Requirement::Off && has_view(profile);
    let home = sandbox_home(&report.caller.home);
    let layout = Layout::new(report, identity, profile.fs.value, &home);
    Ok(Ground {
        mode: profile.mode.value,
        network: separation(request, profile, &layers),
        hostname: HOSTNAME.to_owned(),
        mounts: if has_root { layout.ground() } else { Vec::new() },
        layers,
        unavailable,
        identity,
        limits,
        warnings,
    })
}

/// On the ground of the same request, profile and report.
pub fn plan(
    ground: &Ground,
    request: &Request,
    profile: &Resolved,
    report: &HostReport,
) -> Result<Plan, Refusal> {
    let argv = command::argv(&request.command, profile)?;
    let warnings = profile.warnings.iter().chain(&report.warnings).chain(&ground.warnings);
    let mut warnings: Vec<String> = warnings.cloned().collect();
    check_extras(profile, report)?;
    let Ground { layers, identity, .. } = *ground;
    let has_root = layers.filesystem != Requirement::Off;
    let home = if has_root { sandbox_home(&report.caller.home) } else { report.caller.home.clone() };
    let mut root = root(ground, profile, report, &home);
    let cwd = cwd(profile, report, &root)?;
    let around = surroundings(profile, report, &home, &root);
    let env = environment::build(request, profile, &report.caller, &around, &mut warnings)?;
    command::check_total(&argv, &env)?;
    if profile.mode.value == Mode::Sandbox {
        warn(report, profile, has_root, &mut warnings);
    }
    let on = if has_root { landlock::Ground::NewRoot } else { landlock::Ground::Host };
    let landlock = (layers.landlock != Requirement::Off).then(|| landlock::rules(&root, on));
    let sockets = sockets(profile, report, &home, &layers)?;
    if has_root && sockets.is_some() {
        // After Landlock's rules, which connecting to a socket does not ask.
        let shown = sockets::mounts(profile, report, identity, &root, &mut warnings)?;
        root.extend(shown);
    }
    let network = network(profile, report, &layers, &mut warnings);
    if let Network::Allowlist(_) = &network
        && has_root
    {
        root.extend(mounts::name_files(report, &root));
    }
    let filter = if sockets.is_some() { SUPERVISED } else { SECCOMP };
    Ok(Plan {
        profile: profile.name.clone(),
        mode: ground.mode,
        command: ArgvCommand { argv },
        cwd,
        env,
        identity,
        workspace: report.workspace.path.clone(),
        hostname: ground.hostname.clone(),
        landlock,
        placeholders: placeholders(report, has_root && profile.fs.value == View::WorkspaceRw),
        mounts: if has_root { root } else { Vec::new() },
        publish: publish::checked(&request.publish, &network)?,
        network,
        sockets,
        seccomp: (layers.seccomp != Requirement::Off).then(|| filter.to_owned()),
        limits: ground.limits.clone(),
        layers,
        unavailable: ground.unavailable.clone(),
        stdio: Stdio { stdin: request.stdin },
        warnings,
    })
}

/// The home that a command of this profile sees, if its layers can be had.
pub fn home_inside(profile: &Resolved, caller: &Caller) -> Bytes {
    let has_root = profile.layer(Layer::Filesystem).value != Requirement::Off;
    if has_root { sandbox_home(&caller.home) } else { caller.home.clone() }
}

struct Walls {
    layers: Layers,
    unavailable: Vec<(Layer, String)>,
}

/// What the profile asks of each layer against what the host can do. `must` refuses; only `prefer`, which a
/// person wrote, lets the execution start without.
fn walls(profile: &Resolved, report: &HostReport) -> Result<Walls, Refusal> {
    let mut layers = Layers::all(Requirement::Off);
    let mut missing = Vec::new();
    for layer in Layer::ALL {
        // The new root and the empty network are made inside the process layer's user namespace, and the
        // supervisor of sockets is asked by the filter.
        let ground = match layer {
            Layer::Filesystem | Layer::Network => Layer::Process,
            Layer::Sockets => Layer::Seccomp,
            Layer::Landlock | Layer::Process | Layer::Seccomp | Layer::Limits => layer,
        };
        let possible = report.layers.get(layer).and_then(|()| report.layers.get(ground));
        let effective = match (profile.layer(layer).value, possible) {
            (Requirement::Off, _) => Requirement::Off,
            (requirement, Ok(())) => requirement,
            (Requirement::Prefer, Err(reason)) => {
                missing.push((layer, reason.why.clone()));
                Requirement::Off
            }
            (Requirement::Must, Err(reason)) => return Err(unavailable(layer, &reason.why, &reason.remedy)),
        };
        layers.set(layer, effective);
    }
    Ok(Walls { layers, unavailable: missing })
}

fn unavailable(layer: Layer, why: &str, remedy: &str) -> Refusal {
    Refusal::new(
        Code::LayerUnavailable,
        format!("the profile requires the layer `{layer}`, which this host can't enforce: {why}"),
        remedy,
    )
}

fn identity(profile: &Resolved, report: &HostReport, layers: &Layers) -> Result<Identity, Refusal> {
    let (caller, owner) = (&report.caller, &report.workspace);
    let own = Identity { uid: caller.uid, gid: caller.gid, host_uid: caller.uid, host_gid: caller.gid };
    if profile.mode.value == Mode::Host || caller.uid != 0 {
        return Ok(own);
    }
    if layers.process != Requirement::Off {
        return Ok(Identity {
            uid: owner.uid,
            gid: owner.gid,
            host_uid: SANDBOX_ROOT_UID,
            host_gid: SANDBOX_ROOT_UID,
        });
    }
    // Without a user namespace nothing can be mapped; the workspace's owner is the only identity left.
    if owner.uid == 0 || owner.gid == 0 {
        return Err(unavailable(
            Layer::Process,
            "as root, on a workspace of root's, only a user namespace keeps the command from being root",
            "give the workspace to an ordinary user with chown, or allow user namespaces",
        ));
    }
    Ok(Identity { uid: owner.uid, gid: owner.gid, host_uid: owner.uid, host_gid: owner.gid })
}

fn limits(
    request: &Request,
    profile: &Resolved,
    report: &HostReport,
    warnings: &mut Vec<String>,
) -> Result<Limits, Refusal> {
    let capacity = &report.capacity;
    let ceilings = [
        (limit::MEMORY, capacity.memory_bytes, "memory"),
        (limit::CPU, capacity.cores.saturating_mul(1_000), "cores"),
        (limit::PROCESSES, capacity.pid_max, "largest process id"),
        (limit::SCRATCH, capacity.memory_bytes, "memory"),
    ];
    let mut values: [Option<u64>; LIMIT_COUNT] = profile.limits.each_ref().map(|at| at.value);
    for (at, ceiling, what) in ceilings {
        let Some(value) = values[at].filter(|value| *value > ceiling) else { continue };
        let row = LIMITS[at];
        let (asked, has) = (values::show(row.unit, Some(value)), values::show(row.unit, Some(ceiling)));
        let written = &profile.limits[at];
        // A person must know that a limit of theirs limits nothing. A built-in's they did not choose.
        if !profile.is_built_in(written.spot) {
            let message = format!("the limit `{}` of {asked} is beyond this host's {what}, {has}", row.key);
            let remedy = format!("write at most \"{has}\", or \"none\"");
            return Err(profile.error(Code::LimitInvalid, written.spot, message, remedy).into());
        }
        warnings.push(format!("the limit `{}` is lowered from {asked} to this host's {has}", row.key));
        values[at] = Some(ceiling);
    }
    for (at, least, shown) in LEAST {
        let written = &profile.limits[at];
        if written.value.is_some_and(|value| value < least) {
            let name = LIMITS[at].key;
            let message = format!(
                "the limit `{name}` leaves no room for the command: the sandbox's own init needs some"
            );
            let remedy = format!("write {name} = {shown} or more under [limits]");
            return Err(profile.error(Code::LimitInvalid, written.spot, message, remedy).into());
        }
    }
    match request.timeout_ms {
        Some(0) => {
            return Err(Refusal::new(
                Code::LimitInvalid,
                "--timeout is zero, so nothing could run",
                format!("write {}", Unit::Duration.form()),
            ));
        }
        Some(timeout) => values[limit::WALL] = Some(timeout),
        None => {}
    }
    Ok(values::to_limits(values))
}

/// Of an execution whose output a service keeps, where the profile says `none`.
pub const KEPT_OUTPUT: u64 = 1 << 30;

/// What is written down of an execution's output has an end.
pub fn bound_output(profile: &mut Resolved) {
    profile.limits[limit::OUTPUT].value.get_or_insert(KEPT_OUTPUT);
}

/// Whoever calls a service did not write its profiles: a request may ask for less time than the profile has, never for
/// more.
pub fn hold_to_profile(profile: &Resolved, request: &mut Request) {
    if let (Some(asked), Some(wall)) = (request.timeout_ms, profile.limits[limit::WALL].value) {
        request.timeout_ms = Some(asked.min(wall));
    }
}

/// Paths that lead nowhere, to the kernel's own file systems, or, in a workspace's profile, out of what the
/// trusted profile shows.
fn check_extras(profile: &Resolved, report: &HostReport) -> Result<(), Refusal> {
    for extra in report.extras.iter().filter(|extra| !extra.needed.bound_only) {
        let needed = &extra.needed;
        let refuse = |code: Code, message: String, remedy: &str| {
            Err(Refusal::from(profile.error(code, needed.spot, message, remedy)))
        };
        let Some(object) = &extra.object else {
            if needed.optional {
                continue;
            }
            return refuse(
                Code::ProfileInvalid,
                format!("`{}` does not exist or can't be read", needed.path),
                "create it, or write it with a trailing `?` if it may be missing",
            );
        };
        let path = object.path.as_path();
        let kernel = ["/proc", "/sys", "/dev"].iter().any(|kernel| path.starts_with(kernel));
        let below_shm = path.starts_with("/dev/shm") && path != Path::new("/dev/shm");
        if path == Path::new("/") || (kernel && !below_shm) {
            return refuse(
                Code::ProfileInvalid,
                format!(
                    "`{}` can't be shown: it is the root or one of the kernel's own file systems",
                    object.path
                ),
                "name the directory that is needed",
            );
        }
        if is_untrusted(profile, needed.spot) && !report.extras.iter().any(|bound| bounds(bound, extra)) {
            return refuse(
                Code::ProfileWidens,
                format!(
                    "`{}` leads to `{}`, which the trusted profile does not show",
                    needed.path, object.path
                ),
                "a workspace may only narrow; put this in your own profile (`stockade policy init --user`)",
            );
        }
    }
    Ok(())
}

fn bounds(bound: &Extra, asked: &Extra) -> bool {
    let (Some(base), Some(object)) = (&bound.object, &asked.object) else { return false };
    bound.needed.bound_only
        && (bound.needed.writable || !asked.needed.writable)
        && object.path.as_path().starts_with(base.path.as_path())
}

/// The new root, also made where it will not be mounted: Landlock's rules are derived from it.
fn root(ground: &Ground, profile: &Resolved, report: &HostReport, home: &Bytes) -> Vec<Mount> {
    if !has_view(profile) {
        return Vec::new();
    }
    let layout = || Layout::new(report, ground.identity, profile.fs.value, home);
    let first = if ground.mounts.is_empty() { layout().ground() } else { ground.mounts.clone() };
    layout().build(first)
}

/// Whether the profile describes a root at all.
fn has_view(profile: &Resolved) -> bool {
    profile.mode.value == Mode::Sandbox && profile.fs.value != View::Inherit
}

fn sockets(
    profile: &Resolved,
    report: &HostReport,
    home: &Bytes,
    layers: &Layers,
) -> Result<Option<SocketPlan>, Refusal> {
    if layers.sockets == Requirement::Off {
        return Ok(None);
    }
    let (caller, workspace) = (&report.caller, &report.workspace.path);
    sockets::socket_plan(profile, &SocketGround { caller, home, workspace, found: &report.sockets })
}

fn network(profile: &Resolved, report: &HostReport, layers: &Layers, warnings: &mut Vec<String>) -> Network {
    match (layers.network, profile.network.value) {
        (Requirement::Off, _) | (_, Reach::Inherit) => Network::Inherit,
        (Requirement::Prefer | Requirement::Must, Reach::Deny) => Network::Deny,
        (Requirement::Prefer | Requirement::Must, Reach::Allowlist) => {
            Network::Allowlist(egress::egress_plan(profile, &report.registries, warnings))
        }
    }
}

/// Whether a path exists in the new root: shown by a bind or made by scratch.
fn is_shown(root: &[Mount], path: &Path) -> bool {
    root.iter().any(|mount| {
        let holds = matches!(mount.kind, MountKind::Bind(_) | MountKind::Scratch { .. });
        holds && path.starts_with(mount.target.as_path())
    })
}

fn is_bound(root: &[Mount], path: &Path) -> bool {
    root.iter()
        .any(|mount| matches!(mount.kind, MountKind::Bind(_)) && path.starts_with(mount.target.as_path()))
}

fn cwd(profile: &Resolved, report: &HostReport, root: &[Mount]) -> Result<Bytes, Refusal> {
    let Some(cwd) = &report.cwd else { return Ok(report.workspace.path.clone()) };
    let path = cwd.as_path();
    let sees_all = profile.mode.value == Mode::Host || profile.fs.value == View::Inherit;
    let masked = report.deny.iter().any(|found| path.starts_with(found.path.as_path()));
    if sees_all || (is_bound(root, path) && !masked) {
        return Ok(cwd.clone());
    }
    Err(Refusal::new(
        Code::CwdOutside,
        format!("the working directory `{cwd}` is not visible in the sandbox"),
        format!("choose one below the workspace `{}`, or add it to `readable`", report.workspace.path),
    ))
}

fn surroundings<'p>(
    profile: &Resolved,
    report: &HostReport,
    home: &'p Bytes,
    root: &[Mount],
) -> Surroundings<'p> {
    let sees_all = root.is_empty();
    let shown = |path: &Path| sees_all || is_bound(root, path);
    let path = report.path.iter().filter(|dir| shown(dir.as_path())).cloned().collect();
    let toolchain_homes = TOOLCHAIN_HOMES
        .into_iter()
        .filter_map(|name| report.caller.variable(name).map(|value| (name, value.clone())))
        .filter(|(_, value)| value.as_path().is_absolute())
        .filter(|(_, value)| profile.toolchains.value || sees_all || is_bound(root, value.as_path()))
        .filter(|(_, value)| sees_all || is_shown(root, value.as_path()))
        .collect();
    Surroundings { home, path, toolchain_homes }
}

fn placeholders(report: &HostReport, wanted: bool) -> Vec<Placeholder> {
    if wanted { report.absent.clone() } else { Vec::new() }
}

fn warn(report: &HostReport, profile: &Resolved, has_root: bool, warnings: &mut Vec<String>) {
    match &report.git {
        GitFacts::Unverified { why } if has_root => {
            warnings.push(format!("the repository of this worktree is not shown, so git won't work: {why}"));
        }
        GitFacts::Unverified { .. } | GitFacts::Absent | GitFacts::Directory | GitFacts::Worktree { .. } => {}
    }
    let wants_root = profile.layer(Layer::Filesystem).value != Requirement::Off;
    if wants_root && !has_root {
        warnings.push(
            "without the filesystem layer there is no private /tmp or home, and the deny lists are not enforced"
                .to_owned(),
        );
    }
}
