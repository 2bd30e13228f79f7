//! From a request to a plan that this host can carry out: survey, resolve, plan, and ask the cgroups. The
//! ground of the plan is known first, so an init can be parked on it while the rest is surveyed and
//! planned; in a service one may wait already, or be born of a stem. Next on the line: `execute`.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode as FileMode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use stockade_policy::{Ground, HostReport, Needs, Object, Request, Resolved, Sources, Unavailable};
use stockade_proto::{Code, Fault, Layer, Plan, PublishedPort, Refusal, Requirement, Stdin, link};
use stockade_sys::ahead::Ahead;

use crate::cgroup;
use crate::kept::Kept;
use crate::lingering::Lingering;
use crate::publish::Door;
use crate::spawn::{Awaited, Parked, Template, Walls};
use crate::survey::{Near, Outlook};
use crate::{Abort, publish, spawn, survey};

/// A request whose ground is known and can be had here.
#[derive(Debug)]
pub struct Begun {
    request: Request,
    profile: Arc<Resolved>,
    needs: Needs,
    report: HostReport,
    ground: Arc<Ground>,
    limits: Option<Arc<cgroup::Host>>,
    outlook: Arc<Outlook>,
}

/// A plan, and the sandbox that waits for it. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Ready {
    pub plan: Arc<Plan>,
    pub(crate) parked: Parked,
    pub(crate) ground: Arc<Ground>,
    pub(crate) limits: Option<Arc<cgroup::Host>>,
    pub(crate) doors: Vec<Door>,
    pub(crate) lingering: Option<Arc<Lingering>>,
    outlook: Arc<Outlook>,
}

/// A sandbox that waits for a request like the one before it, with its walls if a stem bore it. It holds nothing of that one.
#[derive(Debug)]
pub struct Spare(Parked);

/// How to make a [`Spare`].
#[derive(Debug)]
pub struct Recipe {
    ground: Arc<Ground>,
    template: Option<Template>,
    plan: Arc<Plan>,
    walls: Option<Arc<Walls>>,
    stdin: Stdin,
    counted: bool,
    outlook: Arc<Outlook>,
}

impl Recipe {
    /// On the thread that it is to wait on.
    pub fn park(self, kept: &Kept) -> Result<Spare, Abort> {
        let host = if self.counted { Some(self.outlook.near().cgroups()?) } else { None };
        let host = host.as_deref();
        let born = self
            .template
            .and_then(|template| spawn::park_on(template, self.stdin, host, kept, Awaited::Later));
        match born {
            Some(mut parked) => {
                parked.wall(self.plan, self.walls, host)?;
                Ok(Spare(parked))
            }
            None => spawn::park(self.ground, self.stdin, host, Some(kept)).map(Spare),
        }
    }
}

impl Ready {
    pub fn recipe(&self) -> Recipe {
        let stdin = self.plan.stdio.stdin;
        let (counted, outlook) = (self.limits.is_some(), Arc::clone(&self.outlook));
        let template = self.parked.template(&self.plan, &self.ground);
        let (ground, plan) = (Arc::clone(&self.ground), Arc::clone(&self.plan));
        Recipe { ground, template, plan, walls: self.parked.walls(), stdin, counted, outlook }
    }

    /// Ports inside, with the host's ports that lead to them from now on.
    pub fn published(&self) -> impl Iterator<Item = PublishedPort> {
        self.doors.iter().map(|door| door.at)
    }
}

#[derive(Debug)]
pub enum Beginning {
    Begun(Box<Begun>),
    /// The limits need a cgroup that is delegated to this user; systemd's user manager may give one.
    NeedsScope(Refusal),
}

impl Begun {
    /// The plan alone: nothing is changed on the host.
    pub fn plan(self) -> Result<Plan, Abort> {
        plan(&self.ground, &self.request, &self.profile, &self.needs, self.report, &self.outlook)
    }

    /// An init parked on the ground, and the plan that is made while it builds there. The calling thread must
    /// outlive the execution: init dies with the thread that started it. Where a seed was started before, init is that.
    pub fn ready(self, seed: Option<Ahead>) -> Result<Ready, Abort> {
        self.ready_from(None, None, seed)
    }

    /// As `ready`, on the sandbox that waits already, if it stands on the same ground, or with what a service keeps: where
    /// a stem stands, the plan comes first.
    pub fn ready_on(self, spare: Option<Spare>, kept: &Kept) -> Result<Ready, Abort> {
        self.ready_from(spare, Some(kept), None)
    }

    fn ready_from(
        self,
        spare: Option<Spare>,
        kept: Option<&Kept>,
        mut seed: Option<Ahead>,
    ) -> Result<Ready, Abort> {
        let Self { request, profile, needs, report, ground, limits, outlook } = self;
        let mut park = || {
            let limits = limits.as_deref();
            let sown = seed.take().map(|seed| spawn::park_on_seed(seed, &ground, request.stdin, limits));
            if let Some(sown) = sown.transpose()?.flatten() {
                return Ok(sown);
            }
            if let Some(host) = limits {
                host.forget_seed();
            }
            spawn::park(Arc::clone(&ground), request.stdin, limits, kept)
        };
        let waiting = spare.and_then(|Spare(parked)| parked.onto(&ground, request.stdin, kept));
        // Born of a stem it is there sooner than if it were begun now; but that takes the plan.
        let stem_stands = || {
            kept.is_some_and(|kept| spawn::stem_stands(&ground, &report.workspace, limits.as_deref(), kept))
        };
        let parked = match waiting {
            Some(waiting) => Ok(Some(waiting)),
            None if stem_stands() => Ok(None),
            None => park().map(Some),
        };
        // What is wrong with the request is said before what is wrong with the host.
        let plan = plan(&ground, &request, &profile, &needs, report, &outlook)?;
        // One that waits may stand on more than the ground.
        let parked = match parked?.filter(|parked| parked.fits(&plan)) {
            Some(parked) => parked,
            None => {
                let born = kept.and_then(|kept| {
                    let template = Template::of(&plan, &ground)?;
                    spawn::park_on(template, request.stdin, limits.as_deref(), kept, Awaited::Now)
                });
                born.map_or_else(park, Ok)?
            }
        };
        let doors = publish::open(&plan)?;
        let lingering = kept.map(|kept| Arc::clone(&kept.lingering));
        Ok(Ready { plan: Arc::new(plan), parked, ground, limits, doors, lingering, outlook })
    }
}

fn plan(
    ground: &Ground,
    request: &Request,
    profile: &Resolved,
    needs: &Needs,
    report: HostReport,
    outlook: &Outlook,
) -> Result<Plan, Abort> {
    let report = survey::complete(needs, report, outlook)?;
    Ok(stockade_policy::plan(ground, request, profile, &report)?)
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

pub fn begin(request: Request) -> Result<Beginning, Abort> {
    let outlook = Arc::new(Outlook::fresh());
    let near = outlook.near();
    let workspace = survey::workspace(&request.workspace, &near.caller)?;
    let profiles = survey::Profiles::new(&near.caller, Some(&workspace));
    let profile = stockade_policy::resolve(&request.profile, &profiles)?;
    begin_from(request, Arc::new(profile), workspace, &near, outlook)
}

/// As `begin`, with a service's profiles before the files of their names, and in that workspace or none.
pub fn begin_under(
    mut request: Request,
    place: link::Place,
    service: &survey::ServiceProfiles,
    outlook: Arc<Outlook>,
) -> Result<Beginning, Abort> {
    let near = outlook.near();
    let workspace = survey::workspace(&request.workspace, &near.caller)?;
    if workspace.path != request.workspace || (workspace.dev, workspace.ino) != (place.dev, place.ino) {
        return Err(Refusal::new(
            Code::WorkspaceMissing,
            format!("the workspace {} was replaced after it was checked", request.workspace),
            "Try again when nothing else moves that path.",
        )
        .into());
    }
    let files = survey::Profiles::new(&near.caller, Some(&workspace));
    let profile = service.resolve(&request.profile, files)?;
    service.check(&profile)?;
    stockade_policy::hold_to_profile(&profile, &mut request);
    begin_from(request, profile, workspace, &near, outlook)
}

/// As `begin`, with the profiles of `sources` in place of the files of the workspace, the user and the system.
pub fn begin_with(request: Request, sources: &dyn Sources) -> Result<Beginning, Abort> {
    let outlook = Arc::new(Outlook::fresh());
    let near = outlook.near();
    let workspace = survey::workspace(&request.workspace, &near.caller)?;
    let profile = stockade_policy::resolve(&request.profile, sources)?;
    begin_from(request, Arc::new(profile), workspace, &near, outlook)
}

fn begin_from(
    request: Request,
    profile: Arc<Resolved>,
    workspace: Object,
    near: &Near,
    outlook: Arc<Outlook>,
) -> Result<Beginning, Abort> {
    let needs = stockade_policy::needs(&profile, &request, &near.caller)?;
    let mut report = survey::begin(&needs, workspace, near);
    let mut ground = stockade_policy::ground(&request, &profile, &report)?;
    let mut limits = None;
    if ground.layers.limits != Requirement::Off {
        let host = near.cgroups()?;
        match host.availability(&ground.limits, spawn::tree_kill(&ground)) {
            Ok(_) => limits = Some(host),
            Err(unavailable) => {
                // Again, so that `must` refuses and `prefer` is recorded, in the one place that does so.
                let missing = Unavailable { why: unavailable.to_string(), remedy: unavailable.remedy() };
                report.layers = report.layers.without(Layer::Limits, missing);
                ground = match stockade_policy::ground(&request, &profile, &report) {
                    Ok(ground) => ground,
                    Err(refusal) if unavailable.a_scope_helps() => {
                        return Ok(Beginning::NeedsScope(refusal));
                    }
                    Err(refusal) => return Err(refusal.into()),
                };
            }
        }
    }
    let ground = Arc::new(ground);
    Ok(Beginning::Begun(Box::new(Begun { request, profile, needs, report, ground, limits, outlook })))
}
