//! Stems: inits that stand on a ground and start other inits there, each in namespaces of its own and as our child. What
//! sandboxes of one kind have in common, a user namespace and most of their mounts, is made once for all of them; and no
//! program is loaded for each. A stem holds nothing of an execution, and is used for a while only: it sees the host's
//! mounts as they were when it was made.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::net::{RecvFlags, recv};
use rustix::process::{PidfdFlags, pidfd_open};
use stockade_launch::{Birth, BirthNetwork, FromInit, MAX_MESSAGE, ToInit, wall};
use stockade_policy::Ground;
use stockade_proto::{Mount, MountKind, Plan};
use stockade_sys::Namespaces;

use super::encode::{self, Given};
use super::network::{Lent, Namespace, Networks};
use super::{Foot, Newborn, borrowed, donate, fault, give_identity, newborn, open_proc, tell};
use crate::Abort;

/// A directory of every root that is empty in the end: what a stem keeps for its inits is mounted there until then.
pub(super) const STASH: &str = "/sys";

/// At once.
const MOST: usize = 8;
/// Kinds of sandboxes that one execution was seen of.
const MOST_SEEN: usize = 32;
/// What is on the host may change.
const AGE: Duration = Duration::from_secs(30);
/// For a stem to stand, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A host that can't have one is not asked again for a while.
const PAUSE: Duration = Duration::from_secs(10);

/// What sandboxes of one kind have in common.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    ground: Ground,
    mounts: Vec<Mount>,
}

/// Whether each init has it from its stem, or lays it over that by itself.
fn is_fixed(mount: &Mount) -> bool {
    match mount.kind {
        MountKind::Dir { .. }
        | MountKind::File { .. }
        | MountKind::Symlink { .. }
        | MountKind::Scratch { .. }
        | MountKind::Bind(_)
        | MountKind::Proc
        | MountKind::DevPts
        | MountKind::Device => true,
        MountKind::Mask { .. } | MountKind::Cover { .. } | MountKind::Protect { .. } | MountKind::Pin => {
            false
        }
    }
}

impl Template {
    /// None where a stem could not do it.
    pub(crate) fn of(plan: &Plan, ground: &Ground) -> Option<Self> {
        let walls = encode::walls(ground);
        let all = wall::USER | wall::MOUNT | wall::PID;
        let is_stash = |mount: &Mount| {
            mount.target.as_slice() == STASH.as_bytes() && matches!(mount.kind, MountKind::Dir { .. })
        };
        if walls & all != all || !ground.mounts.iter().any(is_stash) {
            return None;
        }
        let rest = plan.mounts.strip_prefix(ground.mounts.as_slice())?;
        // What is laid over something comes last: nothing may stand on it.
        let stands_on_a_cover = rest.iter().enumerate().any(|(at, mount)| {
            let covers = rest[..at].iter().filter(|mount| !is_fixed(mount));
            is_fixed(mount)
                && covers.into_iter().any(|cover| mount.target.as_path().starts_with(cover.target.as_path()))
        });
        if stands_on_a_cover {
            return None;
        }
        let fixed = rest.iter().filter(|mount| is_fixed(mount));
        let mounts = ground.mounts.iter().chain(fixed).cloned().collect();
        Some(Self { ground: ground.clone(), mounts })
    }

    fn serves(&self, other: &Self) -> bool {
        self.ground.serves(&other.ground) && self.mounts == other.mounts
    }

    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    pub(super) fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The plan's other mounts, if these are all that it has of this kind.
    pub(super) fn rest<'p>(&self, plan: &'p Plan) -> Option<Vec<&'p Mount>> {
        let (own, beyond) = self.mounts.split_at(self.ground.mounts.len());
        let rest = plan.mounts.strip_prefix(own)?;
        let fixed = rest.iter().filter(|mount| is_fixed(mount));
        fixed.eq(beyond).then(|| rest.iter().filter(|mount| !is_fixed(mount)).collect())
    }
}

#[derive(Debug)]
pub(crate) struct Stem {
    template: Template,
    given: Given,
    since: Instant,
    pid: u32,
    pidfd: OwnedFd,
    /// One question at a time.
    control: Mutex<OwnedFd>,
    /// Only where nothing leads into or out of them.
    networks: Option<Arc<Networks>>,
}

impl Drop for Stem {
    fn drop(&mut self) {
        match rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL) {
            // Already gone is what we want.
            Ok(()) | Err(_) => {}
        }
        let id = rustix::process::WaitId::PidFd(self.pidfd.as_fd());
        match rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED) {
            Ok(_) | Err(_) => {}
        }
    }
}

/// What a stem answered, beside a failure.
enum Answer {
    Done,
    Born(u32),
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a stem answered something else")
}

fn answer(control: &OwnedFd) -> io::Result<Answer> {
    let timeout = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
    if poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&timeout))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut packet = [0; MAX_MESSAGE];
    let (_, length) = recv(control, &mut packet, RecvFlags::DONTWAIT)?;
    match FromInit::decode(&packet[..length]) {
        Some(FromInit::Done) => Ok(Answer::Done),
        Some(FromInit::Born { pid }) => u32::try_from(pid).map(Answer::Born).map_err(|_| no_answer()),
        Some(FromInit::Failed { errno, .. }) => Err(io::Error::from_raw_os_error(errno)),
        Some(FromInit::Started | FromInit::Offered { .. } | FromInit::Ended { .. }) | None => {
            Err(no_answer())
        }
    }
}

impl Stem {
    /// On a thread that outlives it and all that is born of it.
    fn make(template: Template, given: Given) -> Result<Self, Abort> {
        let memfd = encode::stem(&template, given)?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())
            .map_err(|error| fault("/dev/null can't be opened", &error))?;
        let Newborn { pid, pidfd, control } = newborn(&Foot {
            namespaces: Namespaces { user: true, pid: false },
            cgroup: None,
            stdio: [null.as_fd(); 3],
            ground: memfd.as_fd(),
            network: None,
        })?;
        let networks = super::lends(&template.ground).then(Arc::default);
        let since = Instant::now();
        let stem = Self { template, given, since, pid, pidfd, control: Mutex::new(control), networks };
        stem.settle()?;
        Ok(stem)
    }

    fn settle(&self) -> Result<(), Abort> {
        let proc = open_proc(self.pid)?;
        let namespace = give_identity(&self.template.ground, proc.as_fd(), self.given)?;
        let trees = donate(self.template.mounts.iter(), namespace.as_ref(), self.given)?;
        let control = self.control();
        tell(&control, ToInit::Mapped, &borrowed(&trees))?;
        match answer(&control) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Born(_)) => Err(fault("a stem does not stand", &no_answer())),
            Err(error) => Err(fault("a stem does not stand", &error)),
        }
    }

    fn control(&self) -> MutexGuard<'_, OwnedFd> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A namespace that was used before and looks as if it had not been, or a new one.
    pub(super) fn lend(&self) -> Option<Lent> {
        self.networks.as_ref()?.lend(|| self.make_network()).ok()
    }

    fn make_network(&self) -> io::Result<Namespace> {
        let control = self.control();
        tell(&control, ToInit::Network, &[]).map_err(io::Error::other)?;
        match answer(&control)? {
            Answer::Done => {}
            Answer::Born(_) => return Err(no_answer()),
        }
        // Nobody else asks it meanwhile: it is still in there.
        let directory = PathBuf::from(format!("/proc/{}", self.pid));
        let namespace = std::fs::File::open(directory.join("ns/net"))?;
        Namespace::new(namespace.into(), &directory.join("net"))
    }

    /// Starts an init. `stdio` and the control socket first, as an init that is exec'd has them.
    pub(super) fn bear(
        &self,
        fds: [BorrowedFd<'_>; 4],
        network: Option<&Lent>,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> io::Result<(u32, OwnedFd)> {
        let fresh = encode::walls(&self.template.ground) & wall::NET != 0;
        let birth = Birth {
            network: match network {
                Some(_) => BirthNetwork::Given,
                None if fresh => BirthNetwork::New,
                None => BirthNetwork::Inherited,
            },
            cgroup: cgroup.is_some(),
        };
        let mut fds = fds.to_vec();
        fds.extend(network.map(Lent::fd));
        fds.extend(cgroup);
        let control = self.control();
        tell(&control, ToInit::Bear(birth), &fds).map_err(io::Error::other)?;
        let pid = match answer(&control)? {
            Answer::Born(pid) => pid,
            Answer::Done => return Err(no_answer()),
        };
        // Our child: the number is its own until we have waited for it.
        let number =
            i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(no_answer)?;
        Ok((pid, pidfd_open(number, PidfdFlags::empty())?))
    }
}

/// The stems of a service.
#[derive(Debug, Default)]
pub(crate) struct Stems {
    state: Mutex<State>,
    /// One at a time: whoever wants the same waits for it.
    making: Mutex<()>,
    /// Inits die with the thread that is their parent: this one lives as long as the process.
    nurse: OnceLock<SyncSender<Order>>,
}

#[derive(Debug, Default)]
struct State {
    stems: Vec<Arc<Stem>>,
    /// Not worth a stem yet: most recent last.
    seen: Vec<Template>,
    failed: Option<Instant>,
}

struct Order {
    template: Template,
    given: Given,
    reply: SyncSender<Result<Stem, Abort>>,
}

impl Stems {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the second sandbox of a kind, and those after it.
    pub(super) fn find(&self, template: &Template, given: Given) -> Option<Arc<Stem>> {
        let known = {
            let mut state = self.state();
            // Ended without the lock.
            let over: Vec<_> = state.stems.extract_if(.., |stem| stem.since.elapsed() > AGE).collect();
            if let Some(stem) = state.standing(template) {
                return Some(stem);
            }
            // One that was worth making is worth making again.
            let known = over.iter().any(|stem| stem.template.serves(template)) || state.second_time(template);
            drop(state);
            known
        };
        if !known {
            return None;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let state = self.state();
            if let Some(stem) = state.standing(template) {
                return Some(stem);
            }
            if state.failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
                return None;
            }
        }
        let made = self.make(template.clone(), given);
        let mut state = self.state();
        match made {
            Ok(stem) => {
                let stem = Arc::new(stem);
                if state.stems.len() >= MOST {
                    state.stems.remove(0);
                }
                state.stems.push(Arc::clone(&stem));
                Some(stem)
            }
            Err(_) => {
                state.failed = Some(Instant::now());
                None
            }
        }
    }

    /// One that does not do its duty is not asked again.
    pub(super) fn forget(&self, stem: &Arc<Stem>) {
        let mut state = self.state();
        state.stems.retain(|known| !Arc::ptr_eq(known, stem));
        state.failed = Some(Instant::now());
    }

    fn make(&self, template: Template, given: Given) -> Result<Stem, Abort> {
        let nurse = match self.nurse.get() {
            Some(nurse) => nurse,
            None => {
                let nurse = start_nurse().map_err(|error| fault("a thread can't be started", &error))?;
                self.nurse.get_or_init(|| nurse)
            }
        };
        let (reply, made) = sync_channel(1);
        let gone = |_| fault("a stem can't be made", &"its thread is gone");
        nurse.send(Order { template, given, reply }).map_err(|_| gone(()))?;
        made.recv().map_err(|_| gone(()))?
    }
}

impl State {
    fn standing(&self, template: &Template) -> Option<Arc<Stem>> {
        self.stems.iter().find(|stem| stem.template.serves(template)).map(Arc::clone)
    }

    fn second_time(&mut self, template: &Template) -> bool {
        if let Some(at) = self.seen.iter().position(|seen| seen.serves(template)) {
            self.seen.remove(at);
            return true;
        }
        if self.seen.len() >= MOST_SEEN {
            self.seen.remove(0);
        }
        self.seen.push(template.clone());
        false
    }
}

fn start_nurse() -> io::Result<SyncSender<Order>> {
    let (orders, taken): (SyncSender<Order>, Receiver<Order>) = sync_channel(MOST);
    std::thread::Builder::new().name("stems".to_owned()).spawn(move || {
        for Order { template, given, reply } in taken {
            match reply.send(Stem::make(template, given)) {
                // Nobody waits any more: it ends with the answer.
                Ok(()) | Err(_) => {}
            }
        }
    })?;
    Ok(orders)
}
