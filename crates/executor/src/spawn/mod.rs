//! Turns a plan into a running sandbox, in two steps: `park` starts an init on the ground of a plan (one
//! clone3, the id maps, the donated trees), `Parked::launch` hands it the plan and opens the gate into the cgroup. Runs in the executor, outside every wall; what happens inside is `stockade-init`'s.
//! Next on the line: `supervise`.

mod born;
mod encode;
mod identity;
mod network;
mod rights;
mod seed;
mod stem;
mod stems;
mod walled;
mod words;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode as FileMode, OFlags, StatxFlags, open, openat, statx};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use stockade_launch::{Offer, ToInit, wall};
use stockade_policy::{Ground, Separation};
use stockade_proto::{Bind, Code, Fault, Mount, Network, Plan, Refusal, Requirement, Stdin, install};
use stockade_sys::{Namespaces, Spawn, spawn as clone_init};

use crate::Abort;
use crate::cgroup::{self, CgroupError, Entry, Group, TreeKill};
use crate::kept::Kept;
use crate::live::Live;
use crate::publish::Door;

pub(crate) use born::{park_on, stem_stands};
use encode::Given;
use identity::{give_identity, has_news, has_spoken, open_proc, prove_network};
use network::Lent;
pub(crate) use network::OwnNetworks;
pub(crate) use seed::park_on_seed;
pub(crate) use stem::{Awaited, Template};
pub(crate) use stems::Stems;
use walled::Walled;
pub(crate) use walled::Walls;
pub(crate) use words::take_offered;
use words::{borrowed, hear, receive, tell, tell_order, wait_for_word};

const INIT_NAME: &str = "stockade-init";
const INIT_ARGV0: &CStr = c"stockade-init";

/// A pipe of this size is drained at 2.2 GB/s, one of 64 KiB at half that. An ordinary user has
/// 64 MiB of pipe memory; past that the kernel says no and the pipe keeps its size.
const PIPE_SIZE: usize = 1024 * 1024;

/// A sandbox whose command is about to start.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pidfd: OwnedFd,
    pub(crate) control: OwnedFd,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) group: Option<Group>,
    pub(crate) has_pid_namespace: bool,
    /// None where init made its own.
    pub(crate) network: Option<Lent>,
    /// None until it is launched.
    pub(crate) live: Option<Live>,
    /// Held, it ends when this is closed, and not with init. Only of one that is born of a stem.
    pub(crate) mount_namespace: Option<OwnedFd>,
}

/// What is left of a sandbox whose processes are gone: descriptors, mounts that the kernel takes its time to take apart, and
/// what others may get. Dropped, it is put away.
#[derive(Debug)]
pub struct Remains(Option<Running>);

/// Files and whatever else a sandbox had in memory: what is more takes long enough to be waited for.
const LITTLE_BYTES: u64 = 8 << 20;

impl Remains {
    /// Of one that had so much memory at most, as far as anybody counted.
    pub(crate) fn of(mut running: Running, peak_bytes: Option<u64>) -> Self {
        if peak_bytes.is_none_or(|peak| peak > LITTLE_BYTES) {
            running.mount_namespace = None;
        }
        Self(Some(running))
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        let Some(Running { group, network, mount_namespace, live, .. }) = self.0.take() else { return };
        // Files are charged to the group, and sockets are in the network.
        drop((mount_namespace, live));
        match group.map(Group::leave) {
            // One that can't be removed stays until this executor ends, and is swept by the next one.
            None | Some(Ok(()) | Err(_)) => {}
        }
        if let Some(network) = network {
            network.give_back();
        }
    }
}

fn fault(what: &str, error: &dyn std::fmt::Display) -> Abort {
    Fault::new(
        Code::SpawnFailed,
        format!("{what}: {error}"),
        "Run `stockade doctor`; it shows which part of the host refuses.",
    )
    .into()
}

pub fn find_init() -> Result<PathBuf, Abort> {
    let own = std::env::current_exe()
        .map_err(|error| fault("the path of this program can't be read from /proc", &error))?;
    let places = install::places(&own, INIT_NAME);
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        Fault::new(
            Code::InitMissing,
            format!("{INIT_NAME} is not at {} nor at {}", places[0].display(), places[1].display()),
            "Build or install it beside stockade: `cargo build --release` makes both.",
        )
        .into()
    })
}

pub(crate) fn tree_kill(ground: &Ground) -> TreeKill {
    if encode::walls(ground) & wall::PID == 0 { TreeKill::Needed } else { TreeKill::PidNamespace }
}

/// What init is born in. The others it makes itself, while we go on.
fn namespaces(walls: u32) -> Namespaces {
    Namespaces { user: walls & wall::USER != 0, pid: walls & wall::PID != 0 }
}

/// The command's standard streams: its ends, and ours.
struct Streams {
    theirs: [OwnedFd; 3],
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Streams {
    fn new(stdin: Stdin) -> Result<Self, Abort> {
        let (stdout, out) = output_pipe()?;
        let (stderr, err) = output_pipe()?;
        let (stdin, input) = input(stdin)?;
        Ok(Self { theirs: [input, out, err], stdin, stdout, stderr })
    }

    fn theirs(&self) -> [BorrowedFd<'_>; 3] {
        self.theirs.each_ref().map(AsFd::as_fd)
    }
}

impl Running {
    /// Of an init that has its ends of them.
    fn new(init: Newborn, streams: Streams) -> Self {
        Self {
            pidfd: init.pidfd,
            control: init.control,
            stdout: Some(streams.stdout),
            stderr: Some(streams.stderr),
            stdin: streams.stdin,
            group: None,
            has_pid_namespace: true,
            network: None,
            live: None,
            mount_namespace: None,
        }
    }
}

/// Ours, and the command's.
fn output_pipe() -> Result<(OwnedFd, OwnedFd), Abort> {
    let (ours, theirs) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| fault("a pipe could not be made", &error))?;
    match fcntl_setpipe_size(&ours, PIPE_SIZE) {
        // Smaller is slower and nothing else.
        Ok(_) | Err(_) => {}
    }
    rustix::io::ioctl_fionbio(&ours, true).map_err(|error| fault("a pipe could not be set up", &error))?;
    Ok((ours, theirs))
}

fn input(stdin: Stdin) -> Result<(Option<OwnedFd>, OwnedFd), Abort> {
    match stdin {
        Stdin::Null => {
            let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, FileMode::empty())
                .map_err(|error| fault("/dev/null can't be opened", &error))?;
            Ok((None, null))
        }
        Stdin::Piped => {
            let (theirs, ours) =
                pipe_with(PipeFlags::CLOEXEC).map_err(|error| fault("a pipe could not be made", &error))?;
            rustix::io::ioctl_fionbio(&ours, true)
                .map_err(|error| fault("a pipe could not be set up", &error))?;
            Ok((Some(ours), theirs))
        }
    }
}

/// A sandbox that stands on its ground and waits for its plan. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Parked {
    running: Option<Running>,
    stands_on: StandsOn,
    /// Where its walls stand, too.
    walled: Option<Walled>,
    stdin: Stdin,
    given: Given,
    /// The host's mounts when it was built, where that was before its request.
    mounts: Option<u64>,
    /// Of the sandbox's init, for the owners of its mounts. Only for host root.
    user_namespace: Option<OwnedFd>,
    /// What runs is the seed that bears its init, until it is launched.
    bears: bool,
    /// How it gets into its groups.
    entry: Entry,
}

#[derive(Debug)]
enum StandsOn {
    Ground(Arc<Ground>),
    /// Born of a stem: on everything that plans of one kind have in common.
    Template(Template),
}

impl StandsOn {
    fn ground(&self) -> &Ground {
        match self {
            Self::Ground(ground) => ground,
            Self::Template(template) => template.ground(),
        }
    }
}

/// Whoever dies with its PID namespace is surely gone from the network's; and what can be left in it is known for the
/// calls that the filter lets through.
fn lends(ground: &Ground) -> bool {
    ground.network == Separation::Sealed
        && encode::walls(ground) & wall::PID != 0
        && ground.layers.seccomp != Requirement::Off
}

/// What an init that is exec'd stands on from its first moment.
struct Foot<'f> {
    namespaces: Namespaces,
    cgroup: Option<BorrowedFd<'f>>,
    stdio: [BorrowedFd<'f>; 3],
    ground: BorrowedFd<'f>,
    network: Option<(&'f OwnNetworks, &'f Lent)>,
}

struct Newborn {
    pid: u32,
    pidfd: OwnedFd,
    control: OwnedFd,
}

fn control_pair() -> Result<(OwnedFd, OwnedFd), Abort> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| fault("the control socket could not be made", &error))
}

fn newborn(foot: &Foot<'_>) -> Result<Newborn, Abort> {
    let program = open(&find_init()?, OFlags::PATH | OFlags::CLOEXEC, FileMode::empty())
        .map_err(|error| fault("stockade-init can't be opened", &error))?;
    let (control, init_control) = control_pair()?;
    let [stdin, stdout, stderr] = foot.stdio;
    let spawn = Spawn {
        namespaces: foot.namespaces,
        cgroup: foot.cgroup,
        program: program.as_fd(),
        argv0: INIT_ARGV0,
        fds: &[stdin, stdout, stderr, init_control.as_fd(), foot.ground],
    };
    let child = match foot.network {
        Some((networks, lent)) => networks.inside(lent.fd(), || clone_init(&spawn)).flatten(),
        None => clone_init(&spawn),
    };
    let child = child.map_err(|error| refuse_spawn(&error))?;
    crate::descriptors::as_born(child.pid);
    Ok(Newborn { pid: child.pid, pidfd: child.pidfd, control })
}

/// Starts an init that builds `ground` and then waits.
pub(crate) fn park(
    ground: Arc<Ground>,
    stdin: Stdin,
    host: Option<&cgroup::Host>,
    kept: Option<&Kept>,
) -> Result<Parked, Abort> {
    let walls = encode::walls(&ground);
    let mounts = kept.map(|kept| kept.mounts.now());
    // Without one, init makes its own, as ever.
    let networks = kept.filter(|_| lends(&ground)).and_then(|kept| kept.networks.as_ref());
    let network = networks.and_then(|networks| networks.lend().ok());
    let given = Given::of_this_host(host, network.is_some());
    let memfd = encode::ground(&ground, given)?;
    let streams = Streams::new(stdin)?;
    // On v2 the child is born inside its group; the v1 groups are made while init builds its root.
    let (groups, entry) = (kept.map(|kept| &kept.groups), Entry::Birth);
    let group = host.map(|host| host.begin(&ground.limits, tree_kill(&ground), entry, groups));
    let group = group.transpose().map_err(refuse_limits)?;
    let newborn = newborn(&Foot {
        namespaces: namespaces(walls),
        cgroup: group.as_ref().and_then(Group::clone_fd),
        stdio: streams.theirs(),
        ground: memfd.as_fd(),
        network: networks.zip(network.as_ref()),
    })?;
    let pid = newborn.pid;
    let has_pid_namespace = walls & wall::PID != 0;
    let running = Some(Running { group, has_pid_namespace, network, ..Running::new(newborn, streams) });
    let (stands_on, walled, user_namespace, bears) = (StandsOn::Ground(ground), None, None, false);
    let mut parked =
        Parked { running, stands_on, walled, stdin, given, mounts, user_namespace, bears, entry };
    parked.settle(pid)?;
    Ok(parked)
}

impl Parked {
    /// The same sandbox for another request, if it stands on the same ground and is alive. Whether the plan fits, too, is
    /// seen when there is one.
    pub(crate) fn onto(self, ground: &Ground, stdin: Stdin, kept: Option<&Kept>) -> Option<Self> {
        let fits = self.stands_on.ground().serves(ground)
            && self.stdin == stdin
            && self.mounts == kept.map(|kept| kept.mounts.now());
        let alive = self.running.as_ref().is_some_and(|running| has_news(running.pidfd.as_fd()) == Ok(false));
        (fits && alive).then_some(self)
    }

    /// What init needs from outside to build its ground.
    fn settle(&mut self, pid: u32) -> Result<(), Abort> {
        if encode::walls(self.stands_on.ground()) & wall::USER != 0
            && let Err(abort) = self.identify(pid)
            && !self.running.as_ref().is_some_and(|running| has_spoken(running.control.as_fd()))
        {
            return Err(abort);
        }
        Ok(())
    }

    /// The groups that the gate leads into. Init is at work meanwhile.
    fn open_gate(&mut self, host: Option<&cgroup::Host>) -> Result<(), Abort> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let ground = self.stands_on.ground();
        match (host, &mut running.group) {
            (Some(host), Some(group)) => {
                host.complete(group, &ground.limits, tree_kill(ground), self.entry).map_err(refuse_limits)?;
            }
            (None, Some(_)) => return Err(fault("a group can't be completed", &"this is a bug")),
            (_, None) => {}
        }
        let doors = running.group.as_ref().map(Group::doors).transpose().map_err(refuse_limits)?;
        let doors = doors.unwrap_or_default();
        let count = u32::try_from(doors.len()).map_err(|error| fault("too many cgroups", &error))?;
        tell(&running.control, ToInit::Go(count), &doors)
    }

    /// What only a process outside can do for it.
    fn identify(&mut self, pid: u32) -> Result<(), Abort> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let proc = open_proc(pid)?;
        prove_network(running.network.as_ref(), proc.as_fd())?;
        match &self.stands_on {
            StandsOn::Ground(ground) => {
                self.user_namespace = give_identity(ground, proc.as_fd(), self.given)?;
                self.show_ground()?;
            }
            // It has all that from its stem.
            StandsOn::Template(_) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                // Without it, init's end takes longer and nothing else.
                running.mount_namespace = openat(&proc, "ns/mnt", flags, FileMode::empty()).ok();
            }
        }
        Ok(())
    }

    /// To one who knows who it is.
    fn show_ground(&self) -> Result<(), Abort> {
        let Some(running) = &self.running else { return Ok(()) };
        let mounts = self.stands_on.ground().mounts.iter();
        let trees = donate(mounts, self.user_namespace.as_ref(), self.given)?;
        tell(&running.control, ToInit::Mapped, &borrowed(&trees))
    }

    /// Hands over the plan, or what of it runs where its walls stand already.
    pub(crate) fn launch(
        mut self,
        plan: &Plan,
        execution: &str,
        doors: Vec<Door>,
        host: Option<&cgroup::Host>,
    ) -> Result<Running, Abort> {
        let gone = || fault("the sandbox is gone", &"it was launched before");
        let mut live = Live::new(plan, execution, doors)?;
        match self.walled.take() {
            Some(Walled { offered, .. }) => {
                // Before anybody can call.
                live.prepare(plan)?;
                if !offered.is_empty() {
                    live.take(plan, Offer::Sockets, offered)?;
                }
                let running = self.running.as_ref().ok_or_else(gone)?;
                tell_order(&running.control, &encode::order(plan, self.given))?;
            }
            None => {
                let whole = self.whole(plan)?;
                let running = self.running.as_mut().ok_or_else(gone)?;
                tell(&running.control, ToInit::Launch, &borrowed(&whole))?;
                if self.bears {
                    seed::be_born(running)?;
                    self.bears = false;
                }
                self.open_gate(host)?;
                live.prepare(plan)?;
            }
        }
        let mut running = self.running.take().ok_or_else(gone)?;
        running.live = Some(live);
        Ok(running)
    }

    /// The launch, and the trees that are donated.
    fn whole(&self, plan: &Plan) -> Result<Vec<OwnedFd>, Abort> {
        let rest = self.rest(plan).ok_or_else(|| {
            fault("the plan does not fit the sandbox that was made for it", &"this is a bug")
        })?;
        let mut donations =
            vec![encode::launch(plan, &rest, self.given, &filter(plan)?, encode::Order::Now)?];
        let rest = rest.iter().copied();
        donations.append(&mut donate(rest, self.user_namespace.as_ref(), self.given)?);
        Ok(donations)
    }

    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        match &self.walled {
            Some(walled) => walled.serves(plan),
            None => self.rest(plan).is_some(),
        }
    }

    /// For others of the kind of that plan, which fits.
    pub(crate) fn template(&self, plan: &Plan, ground: &Arc<Ground>) -> Option<Template> {
        let own = match &self.stands_on {
            StandsOn::Template(template) => template.again(plan),
            StandsOn::Ground(_) => None,
        };
        own.or_else(|| Template::of(plan, ground))
    }

    /// The plan's mounts beyond those that it stands on: a plan that does not stand on these is not launched here.
    fn rest<'p>(&self, plan: &'p Plan) -> Option<Vec<&'p Mount>> {
        let ground = self.stands_on.ground();
        let same = plan.layers == ground.layers
            && plan.mode == ground.mode
            && match ground.network {
                Separation::None => plan.network == Network::Inherit,
                Separation::Sealed => plan.network == Network::Deny && plan.publish.is_empty(),
                Separation::WithWays => plan.network != Network::Inherit,
            }
            && plan.identity == ground.identity
            && plan.limits.is_same_but_for_the_deadline(&ground.limits)
            && plan.hostname == ground.hostname;
        if !same {
            return None;
        }
        match &self.stands_on {
            StandsOn::Ground(ground) => {
                Some(plan.mounts.strip_prefix(ground.mounts.as_slice())?.iter().collect())
            }
            StandsOn::Template(template) => template.rest(plan),
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // A socket of it is in the network.
        drop(self.walled.take());
        match rustix::process::pidfd_send_signal(&running.pidfd, rustix::process::Signal::KILL) {
            // Already gone is what we want.
            Ok(()) | Err(_) => {}
        }
        // Reaped, so that its group is empty when it is removed; a killed init of ours has no children yet.
        let reaped = rustix::process::waitid(
            rustix::process::WaitId::PidFd(running.pidfd.as_fd()),
            rustix::process::WaitIdOptions::EXITED,
        );
        if self.bears {
            seed::end_the_born(&running);
        }
        if let (Ok(_), Some(network)) = (reaped, running.network.take()) {
            network.give_back();
        }
    }
}

fn refuse_limits(error: CgroupError) -> Abort {
    Refusal::new(
        Code::LayerUnavailable,
        format!("the limits layer can't be enforced here: {error}"),
        error.remedy(),
    )
    .into()
}

fn filter(plan: &Plan) -> Result<Vec<u8>, Abort> {
    match &plan.seccomp {
        None => Ok(Vec::new()),
        Some(name) => {
            stockade_seccomp::filter(name).map(stockade_seccomp::Filter::program_bytes).ok_or_else(|| {
                Refusal::new(
                    Code::ProfileInvalid,
                    format!("there is no system call filter named {name}"),
                    "Use `default`.",
                )
                .into()
            })
        }
    }
}

pub(crate) fn refuse_spawn(error: &io::Error) -> Abort {
    let (message, remedy) = match error.raw_os_error() {
        Some(1 | 13) => (
            "the kernel refuses new user namespaces to this user",
            "Run `stockade doctor` for the setting to change; in a container, allow nesting (for example `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`).",
        ),
        Some(28 | 87) => (
            "the host's limit on namespaces is reached",
            "Raise the one that is too low, as in `sudo sysctl user.max_net_namespaces=15000`; `sysctl -a --pattern _namespaces` shows them all.",
        ),
        Some(38) => ("this kernel has no clone3", "Stockade needs Linux 5.13 or newer."),
        _ => return fault("the sandbox process could not be created", error),
    };
    Refusal::new(
        Code::LayerUnavailable,
        format!("the process layer can't be enforced here: {message}"),
        remedy,
    )
    .into()
}

/// Host root opens the trees itself: the sandbox's uid could not even reach `/root`, and only host
/// root may map owners.
fn donate<'m>(
    mounts: impl Iterator<Item = &'m Mount>,
    user_namespace: Option<&OwnedFd>,
    given: Given,
) -> Result<Vec<OwnedFd>, Abort> {
    let mut trees = Vec::new();
    for bind in encode::donated(mounts, given) {
        let tree = detach(bind)?;
        let owner_map = user_namespace.filter(|_| bind.owner_mapped).map(AsFd::as_fd);
        stockade_sys::give_away(tree.as_fd(), owner_map).map_err(|error| refuse_map(bind, &error))?;
        trees.push(tree);
    }
    Ok(trees)
}

fn detach(bind: &Bind) -> Result<OwnedFd, Abort> {
    let path = bind.source.path.as_path();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(CWD, path, flags)
        .map_err(|error| fault(&format!("{} can't be shown in the sandbox", bind.source.path), &error))?;
    let stat = statx(&tree, "", AtFlags::EMPTY_PATH, StatxFlags::INO)
        .map_err(|error| fault(&format!("{} can't be examined", bind.source.path), &error))?;
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if (dev, stat.stx_ino) == (bind.source.dev, bind.source.ino) {
        return Ok(tree);
    }
    Err(Refusal::new(
        Code::WorkspaceMissing,
        format!("{} was replaced while the sandbox was being built", bind.source.path),
        "Run the command again when nothing else moves that path.",
    )
    .into())
}

fn refuse_map(bind: &Bind, error: &io::Error) -> Abort {
    Refusal::new(
        Code::LayerUnavailable,
        format!("the file system of {} can't show its files to a sandbox of root: {error}", bind.source.path),
        "Run as an ordinary user, or move the workspace to ext4, xfs or btrfs (overlay file systems of containers can't map owners).",
    )
    .into()
}
