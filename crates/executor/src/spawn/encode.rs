//! A ground and a plan in the kernel's terms, each written into a sealed memfd for `stockade-init`. Pure
//! translation: the init decides nothing, so everything it needs is here.

use std::ffi::CString;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use stockade_launch::{MAX_DONATIONS, MAX_INSIDE, MAX_OFFERED, MountStep, Sink, Writer, wall};
use stockade_policy::{Ground, Separation};
use stockade_proto::{Bytes, Code, Fault, Mode, Mount, MountKind, Network, Plan, Refusal, Requirement};

use super::rights;
use super::stem::{STASH, Template};
use crate::Abort;
use crate::cgroup;

/// RLIMIT numbers of x86-64.
const RLIMIT_CPU: u32 = 0;
const RLIMIT_FSIZE: u32 = 1;
const RLIMIT_NOFILE: u32 = 7;

/// Each mount costs about 7 µs and a line of mountinfo that init checks; thousands mean that a deny
/// glob matches what it should not.
pub(crate) const MAX_MOUNTS: usize = 4096;

/// Beside the two of DNS.
const MAX_PORTS: usize = MAX_OFFERED - 2;

struct Buffer(Vec<u8>);

impl Sink for Buffer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// What the host gives, beside the plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) landlock_abi: u32,
    /// The executor is host root: it donates trees, maps are free, groups can be cleared.
    pub(crate) is_root: bool,
    /// A cgroup counts the CPU time of the whole tree.
    pub(crate) counts_cpu: bool,
    /// Init is born in its network namespace, and has no power over it.
    pub(crate) network: bool,
}

impl Given {
    pub(crate) fn of_this_host(host: Option<&cgroup::Host>, network: bool) -> Self {
        Self {
            landlock_abi: stockade_sys::landlock_abi(),
            is_root: rustix::process::geteuid().is_root(),
            counts_cpu: host.is_some(),
            network,
        }
    }
}

pub(crate) fn walls(ground: &Ground) -> u32 {
    let on = |requirement: Requirement| requirement != Requirement::Off;
    let mut walls = 0;
    if ground.mode == Mode::Sandbox {
        walls |= wall::PRIVILEGES;
    }
    if on(ground.layers.process) {
        walls |= wall::USER | wall::PID | wall::UTS | wall::CGROUP;
    }
    if on(ground.layers.filesystem) {
        walls |= wall::USER | wall::MOUNT;
    }
    if ground.network != Separation::None {
        walls |= wall::USER | wall::NET;
    }
    walls
}

/// The binds that host root donates, in the order in which init takes them.
pub(crate) fn donated<'m>(
    mounts: impl Iterator<Item = &'m Mount>,
    given: Given,
) -> impl Iterator<Item = &'m stockade_proto::Bind> {
    mounts.filter(move |_| given.is_root).filter_map(Mount::bind)
}

pub(crate) fn ground(ground: &Ground, given: Given) -> Result<OwnedFd, Abort> {
    whole_ground(ground, &ground.mounts, "", given)
}

/// Of a stem: with all the mounts that its inits share, and what they are kept in meanwhile.
pub(crate) fn stem(template: &Template, given: Given) -> Result<OwnedFd, Abort> {
    whole_ground(template.ground(), template.mounts(), STASH, given)
}

fn whole_ground(ground: &Ground, mounts: &[Mount], stash: &str, given: Given) -> Result<OwnedFd, Abort> {
    let mut buffer = Buffer(Vec::with_capacity(8 * 1024));
    let mut writer = Writer::new(&mut buffer);
    writer.u32(if given.network { walls(ground) & !wall::NET } else { walls(ground) });
    writer.u32(ground.identity.uid);
    writer.u32(ground.identity.gid);
    writer.u32(u32::from(given.is_root));
    writer.u64(ground.limits.scratch_bytes);
    writer.text(ground.hostname.as_bytes());
    writer.text(stash.as_bytes());
    write_mounts(&mut writer, mounts.iter(), given)?;
    sealed(&buffer.0)
}

/// When init is told what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// With its walls.
    Now,
    /// When they stand, and somebody has something to run.
    Later,
}

/// `mounts` are those of the plan that the sandbox does not stand on already.
pub(crate) fn launch(
    plan: &Plan,
    mounts: &[&Mount],
    given: Given,
    filter: &[u8],
    order: Order,
) -> Result<OwnedFd, Abort> {
    // One descriptor of the packet is the launch itself.
    let donated = donated(mounts.iter().copied(), given).count();
    if plan.mounts.len() > MAX_MOUNTS || donated >= MAX_DONATIONS {
        return Err(Refusal::new(
            Code::WorkspaceTooLarge,
            format!("the plan has {} mounts, more than a sandbox is built from", plan.mounts.len()),
            "Narrow the profile's deny globs, or list fewer extra paths.",
        )
        .into());
    }
    sealed(&encode(plan, mounts, given, filter, order)?)
}

/// What runs in a sandbox whose walls stand.
pub(crate) fn order(plan: &Plan, given: Given) -> Vec<u8> {
    let mut buffer = Buffer(Vec::with_capacity(1024));
    write_order(&mut Writer::new(&mut buffer), plan, given);
    buffer.0
}

pub(crate) fn sealed(bytes: &[u8]) -> Result<OwnedFd, Abort> {
    seal(bytes).map_err(|error| {
        Fault::new(
            Code::SpawnFailed,
            format!("the launch could not be stored in memory: {error}"),
            "Free some memory.",
        )
        .into()
    })
}

fn encode(
    plan: &Plan,
    mounts: &[&Mount],
    given: Given,
    filter: &[u8],
    order: Order,
) -> Result<Vec<u8>, Abort> {
    let mut buffer = Buffer(Vec::with_capacity(16 * 1024));
    let mut writer = Writer::new(&mut buffer);
    write_mounts(&mut writer, mounts.iter().copied(), given)?;
    let rules = plan.landlock.as_ref().map_or(&[][..], |landlock| &landlock.rules);
    let abi = if plan.landlock.is_some() { given.landlock_abi } else { 0 };
    writer.u64(rights::handled(abi));
    writer.u64(rights::scoped(abi));
    writer.u32(count(rules.len()));
    for rule in rules {
        writer.text(rule.path.as_slice());
        writer.u64(rights::of_rule(rule, abi));
    }
    writer.text(filter);
    writer.u32(u32::from(plan.sockets.is_some()));
    let ports = ports(plan)?;
    writer.u32(count(ports.len()));
    ports.iter().for_each(|port| writer.u32(u32::from(*port)));
    writer.u32(if plan.publish.is_empty() { 0 } else { count(MAX_INSIDE) });
    writer.u32(u32::from(order == Order::Now));
    if order == Order::Now {
        write_order(&mut writer, plan, given);
    }
    Ok(buffer.0)
}

fn write_order(writer: &mut Writer<'_, Buffer>, plan: &Plan, given: Given) {
    writer.text(plan.cwd.as_slice());
    let rlimits = rlimits(plan, given);
    writer.u32(count(rlimits.len()));
    for (resource, value) in rlimits {
        writer.u32(resource);
        writer.u64(value);
    }
    write_texts(writer, &candidates(plan));
    write_texts(writer, &plan.command.argv);
    writer.u32(count(plan.env.len()));
    for (name, value) in &plan.env {
        writer.text(&[name.as_slice(), b"=", value.as_slice()].concat());
    }
}

/// The TCP ports that the allowlist names, each once. DNS has its own listeners.
fn ports(plan: &Plan) -> Result<Vec<u16>, Abort> {
    let Network::Allowlist(egress) = &plan.network else { return Ok(Vec::new()) };
    let mut ports: Vec<u16> = egress.targets.iter().flat_map(|target| target.ports.iter().copied()).collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.len() > MAX_PORTS {
        return Err(Refusal::new(
            Code::ProfileInvalid,
            format!("the allowlist names {} different ports; {MAX_PORTS} is the most", ports.len()),
            "Name fewer ports: each is a listener inside the sandbox.",
        )
        .into());
    }
    Ok(ports)
}

/// The planner bounds every list far below this; a longer one reads as malformed.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn write_texts(writer: &mut Writer<'_, Buffer>, texts: &[Bytes]) {
    writer.u32(count(texts.len()));
    for text in texts {
        writer.text(text.as_slice());
    }
}

fn c_string(bytes: &Bytes) -> Result<CString, Abort> {
    CString::new(bytes.as_slice()).map_err(|_| {
        Refusal::new(Code::OptionInvalid, format!("the path {bytes} holds a NUL byte"), "Remove it.").into()
    })
}

fn write_mounts<'m>(
    writer: &mut Writer<'_, Buffer>,
    mut mounts: impl ExactSizeIterator<Item = &'m Mount>,
    given: Given,
) -> Result<(), Abort> {
    writer.u32(count(mounts.len()));
    mounts.try_for_each(|mount| write_mount(writer, mount, given))
}

fn write_mount(writer: &mut Writer<'_, Buffer>, mount: &Mount, given: Given) -> Result<(), Abort> {
    let held;
    let step = match &mount.kind {
        MountKind::Dir { mode } => MountStep::Dir { mode: *mode },
        MountKind::File { mode, contents } => MountStep::File { mode: *mode, contents: contents.as_slice() },
        MountKind::Symlink { to } => {
            held = c_string(to)?;
            MountStep::Symlink { to: &held }
        }
        MountKind::Scratch { mode } => MountStep::Scratch { mode: *mode },
        MountKind::Bind(bind) if given.is_root => {
            MountStep::BindDonated { is_dir: bind.source.is_dir, writable: bind.writable }
        }
        MountKind::Bind(bind) => {
            held = c_string(&bind.source.path)?;
            MountStep::BindPath {
                source: &held,
                dev: bind.source.dev,
                ino: bind.source.ino,
                is_dir: bind.source.is_dir,
                writable: bind.writable,
            }
        }
        MountKind::Proc => MountStep::Proc,
        MountKind::DevPts => MountStep::DevPts,
        MountKind::Device => MountStep::Device,
        MountKind::Mask { is_dir, optional } => MountStep::Mask { is_dir: *is_dir, optional: *optional },
        MountKind::Protect { optional } => MountStep::Protect { optional: *optional },
        MountKind::Pin => MountStep::Pin,
        MountKind::Cover { contents } => MountStep::Cover { contents: contents.as_slice() },
    };
    writer.mount(mount.target.as_slice(), step);
    Ok(())
}

fn rlimits(plan: &Plan, given: Given) -> Vec<(u32, u64)> {
    let mut rlimits = Vec::new();
    if let Some(bytes) = plan.limits.file_size_bytes {
        rlimits.push((RLIMIT_FSIZE, bytes));
    }
    if let Some(files) = plan.limits.open_files {
        // The host's own hard limit may be lower; raising it is not ours to do.
        let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        rlimits.push((RLIMIT_NOFILE, hard.map_or(files, |hard| files.min(hard))));
    }
    if let (Some(seconds), false) = (plan.limits.cpu_seconds, given.counts_cpu) {
        rlimits.push((RLIMIT_CPU, seconds));
    }
    rlimits
}

/// As a shell would look for it, on the plan's own PATH.
fn candidates(plan: &Plan) -> Vec<Bytes> {
    let Some(program) = plan.command.argv.first() else {
        return Vec::new();
    };
    if program.as_slice().contains(&b'/') {
        return vec![program.clone()];
    }
    let path =
        plan.env.iter().find(|(name, _)| name.as_slice() == b"PATH").map(|(_, value)| value.as_slice());
    path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin")
        .split(|byte| *byte == b':')
        .filter(|directory| directory.starts_with(b"/"))
        .map(|directory| Bytes::from([directory, b"/", program.as_slice()].concat()))
        .collect()
}

fn seal(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let memfd = memfd_create(c"stockade-launch", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(memfd);
    file.write_all(bytes)?;
    let memfd = OwnedFd::from(file);
    fcntl_add_seals(&memfd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(memfd)
}
