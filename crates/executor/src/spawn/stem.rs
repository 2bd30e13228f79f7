//! Stems: inits that stand on a ground and start other inits there, each in namespaces of its own and as our child. What
//! sandboxes of one kind have in common, a user namespace and most of their mounts, is made once for all of them; and no
//! program is loaded for each. A stem holds nothing of an execution, and is used for a while only: it sees the host's
//! mounts as they were when it was made.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode as FileMode, OFlags};
use rustix::process::{PidfdFlags, pidfd_open};
use stockade_launch::{Birth, BirthNetwork, FromInit, ToInit, wall};
use stockade_policy::{Ground, Object};
use stockade_proto::{Mount, MountKind, Plan};
use stockade_sys::Namespaces;

use super::encode::{self, Given};
use super::identity::{give_identity, has_news, open_proc};
use super::network::{Lent, Namespace, Networks};
use super::{Foot, Newborn, borrowed, donate, fault, hear, newborn, tell};
use crate::Abort;

/// A directory of every root that is empty in the end: what a stem keeps for its inits is mounted there until then.
pub(super) const STASH: &str = "/sys";

/// For a stem to stand, and to answer; and for walls to stand.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What sandboxes of one kind have in common.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    ground: Arc<Ground>,
    mounts: Arc<[Mount]>,
    /// Beyond these, some are laid over something to hide it. Sandboxes differ by that, stems don't.
    hides: bool,
}

/// Whether it is made of what a stem keeps.
fn is_hiding(mount: &Mount) -> bool {
    matches!(mount.kind, MountKind::Mask { .. } | MountKind::Cover { .. })
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

/// Whether each init has its own.
fn is_private(mount: &Mount) -> bool {
    matches!(mount.kind, MountKind::Scratch { .. } | MountKind::Proc | MountKind::DevPts)
}

impl Template {
    /// None where a stem could not do it.
    pub(crate) fn of(plan: &Plan, ground: &Arc<Ground>) -> Option<Self> {
        let walls = encode::walls(ground);
        let all = wall::USER | wall::MOUNT | wall::PID;
        let is_stash = |mount: &Mount| {
            mount.target.as_slice() == STASH.as_bytes() && matches!(mount.kind, MountKind::Dir { .. })
        };
        if walls & all != all || !ground.mounts.iter().any(is_stash) {
            return None;
        }
        let rest = plan.mounts.strip_prefix(ground.mounts.as_slice())?;
        let another_order = rest.iter().enumerate().any(|(at, mount)| {
            let before = || ground.mounts.iter().chain(&rest[..at]);
            let is_at =
                |mount: &Mount, above: &Mount| mount.target.as_path().starts_with(above.target.as_path());
            // What is laid over something comes last: nothing may stand on it.
            let on_a_cover = || before().any(|other| !is_fixed(other) && is_at(mount, other));
            // What is shared comes before what is private: it may not be laid over that.
            let is_bind = matches!(mount.kind, MountKind::Bind(_));
            let over_private = || before().any(|other| is_private(other) && is_at(other, mount));
            // And what is laid over something comes after what is shared, which would hide it.
            let over_a_cover = || before().any(|other| !is_fixed(other) && is_at(other, mount));
            (is_fixed(mount) && on_a_cover()) || (is_bind && (over_private() || over_a_cover()))
        });
        if another_order {
            return None;
        }
        let fixed = rest.iter().filter(|mount| is_fixed(mount));
        let mounts = ground.mounts.iter().chain(fixed).cloned().collect();
        let hides = rest.iter().any(is_hiding);
        Some(Self { ground: Arc::clone(ground), mounts, hides })
    }

    /// The same for that plan, which fits it. None where the order of its mounts has to be looked at.
    pub(super) fn again(&self, plan: &Plan) -> Option<Self> {
        let rest = plan.mounts.get(self.ground.mounts.len()..)?;
        let laid_over_last = rest.is_sorted_by_key(|mount| !is_fixed(mount));
        laid_over_last.then(|| Self { hides: rest.iter().any(is_hiding), ..self.clone() })
    }

    pub(super) fn serves(&self, other: &Self) -> bool {
        let is_one = Arc::ptr_eq(&self.ground, &other.ground) && Arc::ptr_eq(&self.mounts, &other.mounts);
        is_one || (self.ground.serves(&other.ground) && self.mounts == other.mounts)
    }

    pub(super) fn shows(&self, object: &Object) -> bool {
        let source = object.source();
        self.mounts.iter().any(|mount| mount.bind().is_some_and(|bind| bind.source == source))
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
        let fits = fixed.eq(beyond) && (self.hides || !rest.iter().any(is_hiding));
        fits.then(|| rest.iter().filter(|mount| !is_fixed(mount)).collect())
    }
}

#[derive(Debug)]
pub(crate) struct Stem {
    pub(super) template: Template,
    given: Given,
    pub(super) since: Instant,
    /// The host's mounts when it was made ([`crate::mounts::Watch`]).
    pub(super) mounts: u64,
    pid: u32,
    pidfd: OwnedFd,
    control: Mutex<Control>,
    /// Only where nothing leads into or out of them.
    networks: Option<Arc<Networks>>,
}

/// When an init that is to be born is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A request waits for it.
    Now,
    /// Some request may.
    Later,
}

/// One question at a time, and one answer to each.
#[derive(Debug)]
struct Control {
    socket: OwnedFd,
    /// An answer did not come, or was another one's: what comes next belongs to nobody.
    broken: bool,
}

pub(super) fn end(pidfd: &OwnedFd) {
    match rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL) {
        // Already gone is what we want.
        Ok(()) | Err(_) => {}
    }
    let id = rustix::process::WaitId::PidFd(pidfd.as_fd());
    match rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED) {
        Ok(_) | Err(_) => {}
    }
}

/// A child of ours: the number is its own until we have waited for it.
pub(super) fn pidfd_of(pid: u32) -> io::Result<OwnedFd> {
    let number = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(no_answer)?;
    Ok(pidfd_open(number, PidfdFlags::empty())?)
}

impl Drop for Stem {
    fn drop(&mut self) {
        end(&self.pidfd);
        // What it bore after nobody waited for it any more.
        let control = self.control.get_mut().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Answer::Born(pid)) = hear(&control.socket, Duration::ZERO, answer) {
            if let Ok(unwanted) = pidfd_of(pid) {
                end(&unwanted);
            }
        }
    }
}

/// What a stem answered.
enum Answer {
    Done,
    Born(u32),
    /// It could not, and says why.
    Failed(io::Error),
}

pub(super) fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it answered something else")
}

fn answer(word: Option<FromInit<'_>>) -> io::Result<Answer> {
    match word {
        Some(FromInit::Done) => Ok(Answer::Done),
        Some(FromInit::Born { pid }) => u32::try_from(pid).map(Answer::Born).map_err(|_| no_answer()),
        Some(FromInit::Failed { errno, .. }) => Ok(Answer::Failed(io::Error::from_raw_os_error(errno))),
        Some(FromInit::Started | FromInit::Offered { .. } | FromInit::Ended { .. }) | None => {
            Err(no_answer())
        }
    }
}

impl Stem {
    /// On a thread that outlives it and all that is born of it.
    pub(super) fn make(template: Template, given: Given, mounts: u64) -> Result<Self, Abort> {
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
        let control = Mutex::new(Control { socket: control, broken: false });
        let stem = Self { template, given, since, mounts, pid, pidfd, control, networks };
        stem.settle()?;
        Ok(stem)
    }

    fn settle(&self) -> Result<(), Abort> {
        let proc = open_proc(self.pid)?;
        let namespace = give_identity(&self.template.ground, proc.as_fd(), self.given)?;
        let trees = donate(self.template.mounts.iter(), namespace.as_ref(), self.given)?;
        match self.control().ask(ToInit::Mapped, &borrowed(&trees)) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Born(_)) => Err(fault("a stem does not stand", &no_answer())),
            Ok(Answer::Failed(error)) | Err(error) => Err(fault("a stem does not stand", &error)),
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A namespace that was used before and looks as if it had not been, or a new one.
    pub(super) fn lend(&self) -> Option<Lent> {
        self.networks.as_ref()?.lend(|| self.make_network()).ok()
    }

    fn make_network(&self) -> io::Result<Namespace> {
        let mut control = self.control();
        match control.ask(ToInit::Network, &[])? {
            Answer::Done => {}
            Answer::Born(_) => return Err(no_answer()),
            Answer::Failed(error) => return Err(error),
        }
        // Nobody else asks it meanwhile: it is still in there.
        let directory = PathBuf::from(format!("/proc/{}", self.pid));
        let namespace = std::fs::File::open(directory.join("ns/net"))?;
        Namespace::new(namespace.into(), &directory.join("net"))
    }

    /// Alive, and its answers are those to our questions.
    pub(super) fn is_well(&self) -> bool {
        has_news(self.pidfd.as_fd()) == Ok(false) && !self.control().broken
    }

    /// Starts an init. `stdio` and the control socket first, as an init that is exec'd has them.
    pub(super) fn bear(
        &self,
        fds: [BorrowedFd<'_>; 4],
        network: Option<&Lent>,
        cgroup: Option<BorrowedFd<'_>>,
        awaited: Awaited,
        template: &Template,
    ) -> io::Result<(u32, OwnedFd)> {
        let fresh = encode::walls(&self.template.ground) & wall::NET != 0;
        let birth = Birth {
            network: match network {
                Some(_) => BirthNetwork::Given,
                None if fresh => BirthNetwork::New,
                None => BirthNetwork::Inherited,
            },
            cgroup: cgroup.is_some(),
            awaited: awaited == Awaited::Now,
            hides: template.hides,
        };
        let mut fds = fds.to_vec();
        fds.extend(network.map(Lent::fd));
        fds.extend(cgroup);
        let pid = match self.control().ask(ToInit::Bear(birth), &fds)? {
            Answer::Born(pid) => pid,
            Answer::Done => return Err(no_answer()),
            Answer::Failed(error) => return Err(error),
        };
        match pidfd_of(pid) {
            Ok(pidfd) => Ok((pid, pidfd)),
            Err(error) => {
                // Its control socket is closed with this failure, and it ends by that; it is still to be waited for.
                reap(pid);
                Err(error)
            }
        }
    }
}

/// Without a descriptor of it: on a thread that may wait.
fn reap(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    let waiting = std::thread::Builder::new().name("reap".to_owned()).spawn(move || {
        match rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()) {
            Ok(_) | Err(_) => {}
        }
    });
    match waiting {
        // A process table with one entry more, until we end.
        Ok(_) | Err(_) => {}
    }
}

impl Control {
    fn ask(&mut self, question: ToInit, fds: &[BorrowedFd<'_>]) -> io::Result<Answer> {
        if self.broken {
            return Err(no_answer());
        }
        let asked = tell(&self.socket, question, fds).map_err(io::Error::other);
        let answer = asked.and_then(|()| hear(&self.socket, PATIENCE, answer));
        self.broken = answer.is_err();
        answer
    }
}
