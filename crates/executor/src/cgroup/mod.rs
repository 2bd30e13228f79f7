//! Limits of an execution tree through cgroups: v2, and v1 on hosts whose controllers sit there.
//! `Host` knows the hierarchies; `Host::create` makes a `Group` with its limits in force; the spawner
//! puts the first process in; the supervisor reads, kills, waits and removes. Nothing here decides what
//! the limits are, and a limit that can't be held is an error, never a group without it.

mod dir;
mod error;
#[cfg(test)]
mod fake;
mod group;
mod layout;
#[cfg(test)]
mod live;
mod mounts;
mod name;
mod pool;
mod scope;
mod seat;
mod stop;
mod sweep;
#[cfg(test)]
mod trees;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Access, AtFlags, CWD};
use stockade_proto::Limits;

pub use error::{CgroupError, Unavailable};
pub use group::{Counters, Group};
pub use layout::{Controller, TreeKill};
pub use pool::Groups;
pub use scope::scope_reexec_argv;
pub use sweep::{SweepReport, sweep};

use dir::Dir;
use layout::{Layout, V1Hierarchy, Version};
use mounts::{CgroupMount, Kind, Membership, locate, parse_memberships, parse_mountinfo};
use name::Owner;
use pool::Home;
use seat::{Seat, Us, V2Mount};

/// Names of one process never repeat; only those of a PID namespace whose inode number was reused could meet.
const NAME_ATTEMPTS: usize = 4;

/// One process may hold several `Host`s: the number is the process's.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// How the first process of a tree gets into its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Born in a v2 group, through the doors of those of v1.
    Birth,
    /// Through doors alone: whoever starts it has no right to clone into our groups, and v2 has no door that is not
    /// paid for by every fork of the machine.
    Doors,
}

/// What `/proc/self/mountinfo` and `/proc/self/cgroup` say, read once.
#[derive(Debug)]
pub struct Host {
    v1: Vec<V1Hierarchy>,
    v2: Option<V2Mount>,
    euid: u32,
    owner: Owner,
    /// Where we are; 0: there is none.
    seed: AtomicU32,
    /// Opened at first use, in the order of `v1`.
    v1_bases: Vec<OnceLock<Arc<Dir>>>,
    belt: OnceLock<Arc<Dir>>,
    seat: OnceLock<(Arc<Dir>, Vec<Controller>)>,
    swept: AtomicBool,
}

impl Host {
    pub fn detect() -> Result<Self, CgroupError> {
        let read = |path: &'static str| {
            read_whole(path).map_err(|source| CgroupError::Read { path: path.into(), source })
        };
        let mountinfo = read("/proc/self/mountinfo")?;
        let memberships = read("/proc/self/cgroup")?;
        let euid = rustix::process::geteuid().as_raw();
        let host = Self::from_text(&mountinfo, &memberships, euid, Owner::this_process()?);
        Ok(Self { seed: stockade_sys::ahead::pid().unwrap_or(0).into(), ..host })
    }

    fn from_text(mountinfo: &[u8], memberships: &[u8], euid: u32, owner: Owner) -> Self {
        let mounts = parse_mountinfo(mountinfo);
        let memberships = parse_memberships(memberships);
        let mut v1: Vec<V1Hierarchy> = Vec::new();
        let mut v2: Option<V2Mount> = None;
        for membership in memberships {
            let Some(mount) = best_mount(&mounts, &membership) else { continue };
            let own = locate(mount, &membership.path);
            let (point, path, writable) = (mount.point.clone(), membership.path, mount.writable);
            match membership.kind {
                Kind::V1(controllers) => {
                    v1.push(V1Hierarchy { controllers, mount: point, own, path, writable });
                }
                Kind::V2 => v2 = Some(V2Mount { point, own, path, writable }),
            }
        }
        let v1_bases = v1.iter().map(|_| OnceLock::new()).collect();
        Self {
            v1,
            v2,
            euid,
            owner,
            seed: AtomicU32::new(0),
            v1_bases,
            belt: OnceLock::new(),
            seat: OnceLock::new(),
            swept: AtomicBool::new(false),
        }
    }

    /// Whether these limits can be held here, by facts that cost no more than a few reads. The answer
    /// is how, as `Enforcement::detail` wants it.
    pub fn availability(&self, limits: &Limits, tree: TreeKill) -> Result<String, Unavailable> {
        let layout = self.layout(limits, tree, Entry::Birth)?;
        for used in &layout.v1 {
            let path = self.v1_path(used.index)?;
            if rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_err() {
                return Err(Unavailable::NotWritable { path: path.to_path_buf() });
            }
        }
        if let Some(controllers) = layout.v2.as_ref().filter(|controllers| !controllers.is_empty()) {
            let (at, offered) = match self.seat.get() {
                Some((base, enabled)) => (base.path().to_path_buf(), enabled.clone()),
                None => {
                    let seat = self.choose_seat(controllers)?;
                    (seat.base().to_path_buf(), seat.offers().unwrap_or_default())
                }
            };
            require(controllers, &offered, &at)?;
        }
        Ok(layout.detail())
    }

    /// Whoever asks first removes what dead executors left; a service asks for every execution.
    pub(crate) fn sweep_once(&self) -> Option<SweepReport> {
        (!self.swept.swap(true, Ordering::Relaxed)).then(|| sweep(self))
    }

    /// Takes the seat that the first of many groups would take, while this process has no child in its way yet.
    pub fn settle(&self, limits: &Limits, tree: TreeKill) -> Result<(), CgroupError> {
        match &self.layout(limits, tree, Entry::Birth)?.v2 {
            Some(controllers) if !controllers.is_empty() => self.v2_base(controllers).map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Makes what the first process is born into: the v2 group, limits in force, where v2 is in use. The
    /// first one on v2 may move this process into a `supervisor` group (see `seat`). Or takes a whole one out of
    /// `groups`, and sees to it that it comes back there.
    pub fn begin(
        &self,
        limits: &Limits,
        tree: TreeKill,
        entry: Entry,
        groups: Option<&Arc<Groups>>,
    ) -> Result<Group, CgroupError> {
        let home = groups.map(|groups| Home::new(groups, limits, tree, entry));
        let layout = self.layout(limits, tree, entry)?;
        let waiting = home.as_ref().and_then(|home| home.take(self, &layout));
        let mut group = match waiting {
            Some(group) => group,
            None => self.make(&layout, limits)?,
        };
        group.home = home;
        Ok(group)
    }

    fn make(&self, layout: &Layout, limits: &Limits) -> Result<Group, CgroupError> {
        let mut attempt = 1;
        loop {
            let name = self.owner.group_name(SEQUENCE.fetch_add(1, Ordering::Relaxed));
            let mut group = Group::named(name, layout.detail(), limits.processes);
            let Some(controllers) = &layout.v2 else { return Ok(group) };
            let base = self.v2_base(controllers)?;
            match group.add(base, Version::V2, controllers.clone(), limits) {
                Err(CgroupError::Make { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists && attempt < NAME_ATTEMPTS =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(group),
            }
        }
    }

    /// Makes the v1 groups, limits in force. `Group::doors` lead into them.
    pub fn complete(
        &self,
        group: &mut Group,
        limits: &Limits,
        tree: TreeKill,
        entry: Entry,
    ) -> Result<(), CgroupError> {
        if group.parts.iter().any(|part| part.version == Version::V1) {
            return Ok(());
        }
        for used in &self.layout(limits, tree, entry)?.v1 {
            let base = cached(&self.v1_bases[used.index], || Dir::open(self.v1_path(used.index)?))?;
            group.add(base, Version::V1, used.controllers.clone(), limits)?;
        }
        Ok(())
    }

    #[cfg(test)]
    fn create(&self, limits: &Limits, tree: TreeKill) -> Result<Group, CgroupError> {
        let mut group = self.begin(limits, tree, Entry::Birth, None)?;
        self.complete(&mut group, limits, tree, Entry::Birth)?;
        Ok(group)
    }

    /// Whether there can be a group that is entered so.
    pub(crate) fn takes(&self, limits: &Limits, tree: TreeKill, entry: Entry) -> bool {
        let layout = self.layout(limits, tree, entry);
        layout.is_ok_and(|layout| entry == Entry::Birth || layout.v2.is_none())
    }

    fn layout(&self, limits: &Limits, tree: TreeKill, entry: Entry) -> Result<Layout, Unavailable> {
        if self.v1.is_empty() && self.v2.is_none() {
            return Err(Unavailable::NoCgroups);
        }
        let belt = match &self.v2 {
            Some(mount) if entry == Entry::Birth => mount.belt(self.euid).map(|_| ()),
            Some(_) | None => Err(Unavailable::NoCgroups),
        };
        Layout::choose(&self.v1, belt, limits, tree)
    }

    fn v1_path(&self, index: usize) -> Result<&Path, Unavailable> {
        let hierarchy = &self.v1[index];
        if !hierarchy.writable {
            return Err(Unavailable::ReadOnly { mount: hierarchy.mount.clone() });
        }
        hierarchy
            .own
            .as_deref()
            .ok_or_else(|| Unavailable::Unreachable { path: hierarchy.path.display().to_string() })
    }

    fn v2_base(&self, controllers: &[Controller]) -> Result<Arc<Dir>, CgroupError> {
        if controllers.is_empty() {
            let mount = self.v2.as_ref().ok_or(Unavailable::NoCgroups)?;
            return cached(&self.belt, || Dir::open(mount.belt(self.euid)?));
        }
        let (base, enabled) = match self.seat.get() {
            Some(seat) => seat,
            None => {
                let (base, enabled) = self.choose_seat(controllers)?.take(self.us())?;
                self.seat.get_or_init(|| (Arc::new(base), enabled))
            }
        };
        require(controllers, enabled, base.path())?;
        Ok(Arc::clone(base))
    }

    fn us(&self) -> Us {
        let seed = self.seed.load(Ordering::Relaxed);
        Us { pid: self.owner.pid, seed: (seed != 0).then_some(seed) }
    }

    /// It is gone, and its number may be anybody's.
    pub(crate) fn forget_seed(&self) {
        self.seed.store(0, Ordering::Relaxed);
    }

    fn choose_seat(&self, controllers: &[Controller]) -> Result<Seat, Unavailable> {
        match (&self.v2, controllers.first()) {
            (Some(mount), _) => Seat::choose(mount, self.euid, self.us()),
            (None, Some(controller)) => {
                Err(Unavailable::NoController { controller: *controller, at: "/sys/fs/cgroup".into() })
            }
            (None, None) => Err(Unavailable::NoCgroups),
        }
    }
}

/// `fs::read` asks /proc for a size it does not tell, and then reads in small pieces, each of which makes
/// the kernel walk its mounts again. Room that is not read into is never touched.
fn read_whole(path: &str) -> io::Result<Vec<u8>> {
    const PIECE: usize = 32 << 10;
    let file = fs::File::open(path)?;
    let mut text = Vec::new();
    loop {
        text.reserve(PIECE);
        if rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text))? == 0 {
            return Ok(text);
        }
    }
}

fn require(needed: &[Controller], offered: &[Controller], at: &Path) -> Result<(), Unavailable> {
    match needed.iter().find(|controller| !offered.contains(controller)) {
        Some(controller) => Err(Unavailable::NoController { controller: *controller, at: at.to_path_buf() }),
        None => Ok(()),
    }
}

/// Two threads may open the same directory at once; one of the two is kept.
fn cached(
    slot: &OnceLock<Arc<Dir>>,
    open: impl FnOnce() -> Result<Dir, CgroupError>,
) -> Result<Arc<Dir>, CgroupError> {
    match slot.get() {
        Some(dir) => Ok(Arc::clone(dir)),
        None => {
            let dir = Arc::new(open()?);
            Ok(Arc::clone(slot.get_or_init(|| dir)))
        }
    }
}

/// A hierarchy can be mounted several times: the one that shows our own group, and writable, is best.
fn best_mount<'a>(mounts: &'a [CgroupMount], membership: &Membership) -> Option<&'a CgroupMount> {
    let same = |mount: &&CgroupMount| match (&mount.kind, &membership.kind) {
        (Kind::V2, Kind::V2) => true,
        (Kind::V1(mounted), Kind::V1(member)) => mounted.iter().any(|controller| member.contains(controller)),
        (Kind::V1(_), Kind::V2) | (Kind::V2, Kind::V1(_)) => false,
    };
    // Of equals the first wins: later ones are bind mounts of it.
    mounts
        .iter()
        .filter(same)
        .min_by_key(|mount| (locate(mount, &membership.path).is_none(), !mount.writable))
}
