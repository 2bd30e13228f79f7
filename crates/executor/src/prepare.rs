//! From a request to a plan that this host can carry out: survey, resolve, plan, and ask the cgroups.
//! Nothing is changed on the host. Next on the line: `execute`.

use std::path::Path;

use rustix::fs::{CWD, Mode as FileMode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use stockade_policy::{Caller, LayerReport, Object, Request, Sources, Unavailable};
use stockade_proto::{Code, Fault, Layer, Plan, Refusal, Requirement};

use crate::cgroup;
use crate::enforcement::layer_facts;
use crate::{Abort, spawn, survey};

/// A plan, and what the host holds its limits with.
#[derive(Debug)]
pub struct Prepared {
    pub plan: Plan,
    pub(crate) limits: Option<cgroup::Host>,
}

#[derive(Debug)]
pub enum Preparation {
    Ready(Box<Prepared>),
    /// The limits need a cgroup that is delegated to this user; systemd's user manager may give one.
    NeedsScope(Refusal),
}

/// What every execution stands on, said plainly before anything else trips over it.
pub fn check_ground() -> Result<(), Abort> {
    if !Path::new("/proc/self/fd").exists() {
        return Err(Fault::new(
            Code::HostUnreadable,
            "/proc is not mounted, or not the one of this PID namespace",
            "mount -t proc proc /proc",
        )
        .into());
    }
    if std::env::var_os("STOCKADE").is_some() && is_filtered() {
        return Err(Refusal::new(
            Code::InsideSandbox,
            "this is the inside of a Stockade sandbox already, and walls are not built inside walls",
            "Run the command itself: it has these walls around it.",
        )
        .into());
    }
    Ok(())
}

/// Our own filter answers so to this call, and no kernel that we run on does.
fn is_filtered() -> bool {
    let opened = openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, FileMode::empty(), ResolveFlags::empty());
    matches!(opened, Err(Errno::NOSYS))
}

/// Init is one of them.
const FEWEST_PROCESSES: u64 = 2;
/// Below this the kernel can't even start a process inside the group.
const LEAST_MEMORY: u64 = 4 * 1024 * 1024;

/// Limits under which the sandbox itself could not stand.
fn check_limits(plan: &Plan) -> Result<(), Refusal> {
    let too_small = |name: &str, least: &str| {
        Refusal::new(
            Code::LimitInvalid,
            format!("the limit `{name}` leaves no room for the command: the sandbox's own init needs some"),
            format!("write {name} = {least} or more under [limits]"),
        )
    };
    if plan.limits.processes.is_some_and(|processes| processes < FEWEST_PROCESSES) {
        return Err(too_small("processes", "2"));
    }
    if plan.limits.memory_bytes.is_some_and(|memory| memory < LEAST_MEMORY) {
        return Err(too_small("memory", "\"4M\""));
    }
    Ok(())
}

pub fn prepare(request: &Request) -> Result<Preparation, Abort> {
    let caller = survey::caller();
    let workspace = survey::workspace(&request.workspace, &caller)?;
    let profiles = survey::Profiles::new(&caller, Some(&workspace));
    prepare_from(request, caller, workspace, &profiles)
}

/// As `prepare`, with the profiles of `sources` in place of the files of the workspace, the user and the system.
pub fn prepare_with(request: &Request, sources: &dyn Sources) -> Result<Preparation, Abort> {
    let caller = survey::caller();
    let workspace = survey::workspace(&request.workspace, &caller)?;
    prepare_from(request, caller, workspace, sources)
}

fn prepare_from(
    request: &Request,
    caller: Caller,
    workspace: Object,
    sources: &dyn Sources,
) -> Result<Preparation, Abort> {
    let profile = stockade_policy::resolve(&request.profile, sources)?;
    let needs = stockade_policy::needs(&profile, request, &caller)?;
    let report = survey::survey(&needs, workspace, caller, layers())?;
    let plan = stockade_policy::plan(request, &profile, &report)?;
    check_limits(&plan)?;
    if plan.layers.limits == Requirement::Off {
        return Ok(Preparation::Ready(Box::new(Prepared { plan, limits: None })));
    }
    let host = cgroup::Host::detect().map_err(|error| {
        Fault::new(Code::HostUnreadable, format!("the host's cgroups can't be read: {error}"), error.remedy())
    })?;
    let Err(unavailable) = host.availability(&plan.limits, spawn::tree_kill(&plan)) else {
        return Ok(Preparation::Ready(Box::new(Prepared { plan, limits: Some(host) })));
    };
    // Planned again, so that `must` refuses and `prefer` is recorded, in the one place that does so.
    let mut report = report;
    report.layers = report
        .layers
        .without(Layer::Limits, Unavailable { why: unavailable.to_string(), remedy: unavailable.remedy() });
    match stockade_policy::plan(request, &profile, &report) {
        Ok(plan) => Ok(Preparation::Ready(Box::new(Prepared { plan, limits: None }))),
        Err(refusal) if unavailable.a_scope_helps() => Ok(Preparation::NeedsScope(refusal)),
        Err(refusal) => Err(refusal.into()),
    }
}

fn layers() -> LayerReport {
    let mut report = LayerReport::all_available();
    for fact in layer_facts() {
        if let Some((why, remedy)) = fact.unavailable {
            report = report.without(fact.layer, Unavailable { why, remedy });
        }
    }
    report
}
