//! Sandboxes whose walls stand before anybody knows what runs within them: for another execution of the same plan but for
//! its command, which is what the next one usually is. They hold nothing of the execution that they were made after.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode as FileMode, OFlags, fstat, open, statat};
use stockade_launch::{FromInit, Offer, ToInit};
use stockade_proto::{ArgvCommand, Bytes, Mount, Network, Plan};

use super::stem::PATIENCE;
use super::{Parked, Running, encode, fault, filter, hear, take_offered, tell};
use crate::Abort;
use crate::cgroup;

/// Mounts beyond those that a sandbox of its kind has anyway: each is looked at again for every request.
const MOST_MOUNTS: usize = 16;

/// The walls of a plan, and the file that init builds them from.
#[derive(Debug)]
pub(crate) struct Walls {
    /// Without what runs within them.
    plan: Plan,
    is_supervised: bool,
    launch: OwnedFd,
}

#[derive(Debug)]
pub(super) struct Walled {
    pub(super) walls: Arc<Walls>,
    /// For the supervisor of sockets, if the plan has one.
    pub(super) offered: Vec<OwnedFd>,
    places: Vec<Place>,
}

/// What a mount is laid over. Taken away, it takes the mount along.
#[derive(Debug)]
struct Place {
    path: Bytes,
    /// Held, so that nothing else gets its number.
    _held: OwnedFd,
    dev: u64,
    ino: u64,
}

impl Place {
    fn hold(path: &Bytes) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = open(path.as_path(), flags, FileMode::empty()).ok()?;
        let stat = fstat(&held).ok()?;
        Some(Self { path: path.clone(), _held: held, dev: stat.st_dev, ino: stat.st_ino })
    }

    fn is_there(&self) -> bool {
        statat(CWD, self.path.as_path(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.dev, self.ino))
    }
}

impl Walls {
    fn new(plan: &Plan, launch: OwnedFd) -> Self {
        let is_supervised = plan.sockets.is_some();
        let plan = Plan {
            command: ArgvCommand { argv: Vec::new() },
            cwd: Bytes::default(),
            env: Vec::new(),
            sockets: None,
            placeholders: Vec::new(),
            warnings: Vec::new(),
            ..plan.clone()
        };
        Self { plan, is_supervised, launch }
    }

    /// Whether that plan has the same. What runs within them, and for how long, may be something else. Every field is named:
    /// a new one is to be compared, or said to be none of the walls'.
    fn serve(&self, plan: &Plan) -> bool {
        let own = &self.plan;
        let Plan {
            mode,
            identity,
            hostname,
            mounts,
            workspace,
            landlock,
            network,
            publish,
            sockets,
            seccomp,
            limits,
            layers,
            unavailable,
            // Compared with the sandbox that waits.
            stdio: _,
            // What a `Protect` is to stand on: here it stands.
            placeholders: _,
            // A name, and sentences for people.
            profile: _,
            warnings: _,
            // What runs.
            command: _,
            cwd: _,
            env: _,
        } = plan;
        (own.mode, own.layers, own.identity) == (*mode, *layers, *identity)
            && own.limits.is_same_but_for_the_deadline(limits)
            && (&own.hostname, &own.workspace, &own.unavailable) == (hostname, workspace, unavailable)
            && (&own.landlock, &own.seccomp) == (landlock, seccomp)
            // Their rules are the supervisor's, who has those of this plan.
            && self.is_supervised == sockets.is_some()
            && (&own.network, &own.publish) == (network, publish)
            && own.mounts == *mounts
    }
}

impl Walled {
    /// Whether the walls of that plan stand here.
    pub(super) fn serves(&self, plan: &Plan) -> bool {
        self.walls.serve(plan) && plan.placeholders.is_empty() && self.stands()
    }

    fn stands(&self) -> bool {
        self.places.iter().all(Place::is_there)
    }
}

impl Parked {
    /// Builds the walls of that plan, which fits, for others like it; from the file that was made for them before, if one
    /// was. Stays as it is where that can't be.
    pub(crate) fn wall(
        &mut self,
        plan: Arc<Plan>,
        known: Option<Arc<Walls>>,
        host: Option<&cgroup::Host>,
    ) -> Result<(), Abort> {
        let rest = self.rest(&plan).filter(|rest| can_be_walled(&plan, rest));
        let Some((rest, running)) = rest.zip(self.running.as_ref()) else { return Ok(()) };
        let Some(places) = rest.iter().map(|mount| Place::hold(&mount.target)).collect() else {
            return Ok(());
        };
        let walls = match known {
            Some(known) => known,
            None => {
                let launch = encode::launch(&plan, &rest, self.given, &filter(&plan)?, encode::Order::Later)?;
                Arc::new(Walls::new(&plan, launch))
            }
        };
        tell(&running.control, ToInit::Launch, &[walls.launch.as_fd()])?;
        self.open_gate(host)?;
        let Some(running) = &self.running else { return Ok(()) };
        let offered = if walls.is_supervised {
            offered(running)?
        } else {
            next(running, |word| (word == FromInit::Done).then_some(Vec::new()))?
        };
        self.walled = Some(Walled { walls, offered, places });
        Ok(())
    }

    /// Those that stand here.
    pub(crate) fn walls(&self) -> Option<Arc<Walls>> {
        self.walled.as_ref().map(|walled| Arc::clone(&walled.walls))
    }

    /// Itself, unless what its walls stand on is not there any more.
    pub(crate) fn if_it_stands(self) -> Option<Self> {
        let stands = self.walled.as_ref().is_none_or(Walled::stands);
        stands.then_some(self)
    }
}

/// Whether nothing but a command is missing when those walls stand. `rest` is what no stem has, and what is looked at again.
fn can_be_walled(plan: &Plan, rest: &[&Mount]) -> bool {
    let sealed = match plan.network {
        Network::Deny | Network::Inherit => plan.publish.is_empty(),
        Network::Allowlist(_) => false,
    };
    let shown =
        || plan.mounts.iter().filter(|mount| mount.bind().is_some()).map(|mount| mount.target.as_path());
    // What the host has at that place can be taken away, and the mount with it.
    let nested = || shown().any(|one| shown().any(|other| one != other && one.starts_with(other)));
    sealed && rest.len() <= MOST_MOUNTS && rest.iter().all(|mount| mount.bind().is_none()) && !nested()
}

/// What init offers to the supervisor of sockets when all walls stand. Its order tells it that this was taken.
fn offered(running: &Running) -> Result<Vec<OwnedFd>, Abort> {
    let numbers: Vec<i32> = next(running, |word| match word {
        FromInit::Offered { what: Offer::Sockets, fds } => Some(fds.iter().collect()),
        FromInit::Offered { .. }
        | FromInit::Failed { .. }
        | FromInit::Started
        | FromInit::Ended { .. }
        | FromInit::Born { .. }
        | FromInit::Done => None,
    })?;
    take_offered(&running.pidfd, &numbers).map_err(|error| fallen(&error))
}

fn fallen(error: &dyn std::fmt::Display) -> Abort {
    fault("the walls of a sandbox do not stand", error)
}

/// Init's next word, if it is the one that is expected.
fn next<T>(running: &Running, expected: impl FnOnce(FromInit<'_>) -> Option<T>) -> Result<T, Abort> {
    let other = || io::Error::new(io::ErrorKind::InvalidData, "it says something else");
    hear(&running.control, PATIENCE, |word| word.and_then(expected).ok_or_else(other))
        .map_err(|error| fallen(&error))
}
