//! Which hierarchies an execution's limits need, and what is written into each. Pure: the answer is
//! the fewest groups that hold the limits. `group` makes them.

use std::fmt;
use std::path::PathBuf;

use stockade_proto::Limits;

use super::error::{CgroupError, Unavailable};

/// The kernel's default CFS period. A new group has it, so v1 needs no write for it.
const CPU_PERIOD_US: u64 = 100_000;
/// A thousandth of a core per period.
const MILLICORE_US: u64 = CPU_PERIOD_US / 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Memory,
    Cpu,
    Pids,
    Cpuacct,
    Freezer,
}

impl Controller {
    pub(super) const ALL: [Self; 5] = [Self::Memory, Self::Cpu, Self::Pids, Self::Cpuacct, Self::Freezer];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
            Self::Cpuacct => "cpuacct",
            Self::Freezer => "freezer",
        }
    }

    pub(super) fn from_kernel_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.name().as_bytes() == name)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether the group itself must be able to kill the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKill {
    /// There is no PID namespace: only the group knows every process of the tree.
    Needed,
    /// The death of PID 1 takes the tree along; the group kills only with what the limits need anyway.
    PidNamespace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A v1 hierarchy, and where this process sits in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct V1Hierarchy {
    pub(super) controllers: Vec<Controller>,
    pub(super) mount: PathBuf,
    pub(super) own: Option<PathBuf>,
    pub(super) path: PathBuf,
    pub(super) writable: bool,
}

/// Controllers used of `hierarchies[index]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct V1Use {
    pub(super) index: usize,
    pub(super) controllers: Vec<Controller>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Layout {
    pub(super) v1: Vec<V1Use>,
    /// `Some` with no controller: a v2 group for `cgroup.kill`, `populated` and CPU time alone.
    pub(super) v2: Option<Vec<Controller>>,
}

impl Layout {
    /// `belt` is whether a v2 group without controllers can be made. A controller sits on one
    /// hierarchy only, so what v1 has, v2 has not.
    pub(super) fn choose(
        v1: &[V1Hierarchy],
        belt: Result<(), Unavailable>,
        limits: &Limits,
        tree: TreeKill,
    ) -> Result<Self, Unavailable> {
        let mut layout = Self::default();
        let limited = [
            (Controller::Memory, limits.memory_bytes.is_some()),
            (Controller::Cpu, limits.cpu_millicores.is_some()),
            (Controller::Pids, limits.processes.is_some()),
        ];
        for (controller, _) in limited.into_iter().filter(|(_, limited)| *limited) {
            if !layout.use_v1(v1, controller) {
                layout.v2.get_or_insert_default().push(controller);
            }
        }
        if layout.v2.is_some() {
            return Ok(layout);
        }
        let wants_time = limits.cpu_seconds.is_some() && !layout.uses(Controller::Cpuacct);
        let wants_kill = tree == TreeKill::Needed;
        if !wants_time && !wants_kill {
            return Ok(layout);
        }
        let Err(unavailable) = belt else {
            layout.v2 = Some(Vec::new());
            return Ok(layout);
        };
        let time = !wants_time || layout.use_v1(v1, Controller::Cpuacct);
        // `pids.max` of 0 stops forks as well as a freezer does.
        let kill = !wants_kill || layout.uses(Controller::Pids) || layout.use_v1(v1, Controller::Freezer);
        if time && kill { Ok(layout) } else { Err(unavailable) }
    }

    fn uses(&self, controller: Controller) -> bool {
        self.v1.iter().any(|used| used.controllers.contains(&controller))
    }

    fn use_v1(&mut self, v1: &[V1Hierarchy], controller: Controller) -> bool {
        let Some(index) = v1.iter().position(|hierarchy| hierarchy.controllers.contains(&controller)) else {
            return false;
        };
        let at = self.v1.iter().position(|used| used.index == index).unwrap_or_else(|| {
            self.v1.push(V1Use { index, controllers: Vec::new() });
            self.v1.len() - 1
        });
        let used = &mut self.v1[at].controllers;
        if !used.contains(&controller) {
            used.push(controller);
        }
        // Often mounted together with cpu, and then its clock costs nothing.
        if v1[index].controllers.contains(&Controller::Cpuacct) && !used.contains(&Controller::Cpuacct) {
            used.push(Controller::Cpuacct);
        }
        true
    }

    /// `cgroup v1: memory, cpu, pids; v2: kill, cpu time`
    pub(super) fn detail(&self) -> String {
        let names = |list: &mut dyn Iterator<Item = &Controller>| {
            list.map(|controller| controller.name()).collect::<Vec<_>>().join(", ")
        };
        // A clock that came along with cpu is no limit.
        let limits = |used: &'_ V1Use| used.controllers.len() > 1;
        let v1 = names(&mut self.v1.iter().flat_map(|used| {
            let silent = limits(used).then_some(Controller::Cpuacct);
            used.controllers.iter().filter(move |controller| Some(**controller) != silent)
        }));
        let v2 = self.v2.as_ref().map(|list| match list.as_slice() {
            [] => "kill, cpu time".to_owned(),
            list => names(&mut list.iter()),
        });
        match (v1.as_str(), v2) {
            ("", None) => "no cgroup limit asked for".to_owned(),
            ("", Some(v2)) => format!("cgroup v2: {v2}"),
            (v1, None) => format!("cgroup v1: {v1}"),
            (v1, Some(v2)) => format!("cgroup v1: {v1}; v2: {v2}"),
        }
    }
}

/// What a missing file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    /// The limit can't be held: no group.
    Refuse,
    /// Swap is not accounted on this kernel: fine only where there is no swap.
    OnlyWithoutSwap,
    /// A refinement of a limit that holds without it.
    Skip,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) file: &'static str,
    pub(super) value: String,
    pub(super) absent: Absent,
    /// What the kernel takes, for the person whose value it did not take.
    pub(super) accepted: &'static str,
}

const MEMORY_RANGE: &str = "it takes a number of bytes";
const PIDS_RANGE: &str = "it takes 0 to 4194304";
const CPU_RANGE: &str = "it takes at least 10 thousandths of a core, and no more than the groups above allow";

/// In the order of writing. v1 refuses a memory+swap limit below the memory limit, so memory comes
/// first. No `memory.high`: it can stall a tree for ever without an OOM kill.
pub(super) fn settings(
    version: Version,
    controller: Controller,
    limits: &Limits,
) -> Result<Vec<Setting>, CgroupError> {
    use Absent::{OnlyWithoutSwap, Refuse, Skip};
    let row = |file, value: String, absent, accepted| Setting { file, value, absent, accepted };
    Ok(match (version, controller) {
        (Version::V1, Controller::Memory) => limits.memory_bytes.map_or_else(Vec::new, |bytes| {
            vec![
                row("memory.limit_in_bytes", bytes.to_string(), Refuse, MEMORY_RANGE),
                row("memory.memsw.limit_in_bytes", bytes.to_string(), OnlyWithoutSwap, MEMORY_RANGE),
                row("memory.swappiness", "0".into(), Skip, MEMORY_RANGE),
            ]
        }),
        (Version::V2, Controller::Memory) => limits.memory_bytes.map_or_else(Vec::new, |bytes| {
            vec![
                row("memory.max", bytes.to_string(), Refuse, MEMORY_RANGE),
                row("memory.swap.max", "0".into(), OnlyWithoutSwap, MEMORY_RANGE),
                row("memory.oom.group", "1".into(), Refuse, MEMORY_RANGE),
            ]
        }),
        (Version::V1 | Version::V2, Controller::Pids) => limits
            .processes
            .map_or_else(Vec::new, |count| vec![row("pids.max", count.to_string(), Refuse, PIDS_RANGE)]),
        (Version::V1, Controller::Cpu) => cpu_quota_us(limits)?.map_or_else(Vec::new, |quota| {
            vec![row("cpu.cfs_quota_us", quota.to_string(), Refuse, CPU_RANGE)]
        }),
        (Version::V2, Controller::Cpu) => cpu_quota_us(limits)?.map_or_else(Vec::new, |quota| {
            vec![row("cpu.max", format!("{quota} {CPU_PERIOD_US}"), Refuse, CPU_RANGE)]
        }),
        (Version::V1 | Version::V2, Controller::Cpuacct | Controller::Freezer) => Vec::new(),
    })
}

fn cpu_quota_us(limits: &Limits) -> Result<Option<u64>, CgroupError> {
    let Some(millicores) = limits.cpu_millicores else { return Ok(None) };
    // v1 reads a signed number, in which a negative one means "no limit": never come near it.
    let quota = millicores.checked_mul(MILLICORE_US).filter(|quota| i64::try_from(*quota).is_ok());
    quota.map(Some).ok_or(CgroupError::CpuTooLarge { millicores })
}

/// A v1 quota above an ancestor's is refused by the kernel, though the ancestor then holds the limit.
pub(super) fn holds_cpu_quota(ancestor_quota: &str, ancestor_period: &str, wanted: &str) -> bool {
    let parse = |text: &str| text.trim().parse::<u128>().ok();
    match (parse(ancestor_quota), parse(ancestor_period), parse(wanted)) {
        (Some(quota), Some(period), Some(wanted)) => {
            period > 0 && quota * u128::from(CPU_PERIOD_US) <= wanted * period
        }
        // A quota of -1 is none.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::fake::limits;
    use Controller::{Cpu, Cpuacct, Freezer, Memory, Pids};

    fn hierarchies(sets: &[&[Controller]]) -> Vec<V1Hierarchy> {
        sets.iter()
            .map(|set| V1Hierarchy {
                controllers: set.to_vec(),
                mount: "/cg".into(),
                own: Some("/cg".into()),
                path: "/".into(),
                writable: true,
            })
            .collect()
    }

    fn no_belt() -> Result<(), Unavailable> {
        Err(Unavailable::NoCgroups)
    }

    #[test]
    fn only_the_hierarchies_that_limits_need() {
        let v1 = hierarchies(&[&[Cpu], &[Cpuacct], &[Memory], &[Freezer], &[Pids]]);
        let none = Limits { memory_bytes: None, cpu_millicores: None, processes: None, ..limits() };
        let layout = Layout::choose(&v1, Ok(()), &none, TreeKill::PidNamespace).unwrap();
        assert_eq!(layout, Layout::default());
        assert_eq!(layout.detail(), "no cgroup limit asked for");
        let memory = Limits { memory_bytes: Some(1), ..none };
        let layout = Layout::choose(&v1, Ok(()), &memory, TreeKill::PidNamespace).unwrap();
        assert_eq!(layout.v1, vec![V1Use { index: 2, controllers: vec![Memory] }]);
        assert_eq!(layout.v2, None);
        let layout = Layout::choose(&v1, Ok(()), &limits(), TreeKill::PidNamespace).unwrap();
        assert_eq!(layout.detail(), "cgroup v1: memory, cpu, pids");
    }

    #[test]
    fn a_belt_serves_as_clock_and_kill() {
        let v1 = hierarchies(&[&[Cpu], &[Cpuacct], &[Memory], &[Freezer], &[Pids]]);
        let layout = Layout::choose(&v1, Ok(()), &limits(), TreeKill::Needed).unwrap();
        assert_eq!(layout.detail(), "cgroup v1: memory, cpu, pids; v2: kill, cpu time");
        let timed = Limits { cpu_seconds: Some(1), ..limits() };
        assert_eq!(Layout::choose(&v1, Ok(()), &timed, TreeKill::PidNamespace).unwrap().v2, Some(vec![]));
    }

    #[test]
    fn without_a_belt_v1_has_clock_and_kill() {
        let v1 = hierarchies(&[&[Cpu, Cpuacct], &[Memory], &[Freezer], &[Pids]]);
        let timed = Limits { cpu_seconds: Some(1), ..limits() };
        let layout = Layout::choose(&v1, no_belt(), &timed, TreeKill::Needed).unwrap();
        assert_eq!(layout.v1.len(), 3, "cpuacct rides with cpu, pids stops forks: {layout:?}");
        assert_eq!(layout.detail(), "cgroup v1: memory, cpu, pids");
        let no_pids = Limits { processes: None, ..timed };
        let layout = Layout::choose(&v1, no_belt(), &no_pids, TreeKill::Needed).unwrap();
        assert!(layout.uses(Freezer));
        let apart = hierarchies(&[&[Cpu], &[Cpuacct], &[Memory]]);
        assert!(Layout::choose(&apart, no_belt(), &no_pids, TreeKill::PidNamespace).unwrap().uses(Cpuacct));
        assert_eq!(
            Layout::choose(&apart, no_belt(), &no_pids, TreeKill::Needed),
            Err(Unavailable::NoCgroups),
            "nothing can kill the tree"
        );
    }

    #[test]
    fn what_v1_lacks_is_asked_of_v2() {
        let v1 = hierarchies(&[&[Memory]]);
        let layout = Layout::choose(&v1, no_belt(), &limits(), TreeKill::Needed).unwrap();
        assert_eq!(layout.v2, Some(vec![Cpu, Pids]));
        assert_eq!(layout.detail(), "cgroup v1: memory; v2: cpu, pids");
        let layout = Layout::choose(&[], no_belt(), &limits(), TreeKill::Needed).unwrap();
        assert_eq!(layout.detail(), "cgroup v2: memory, cpu, pids");
    }

    fn written(version: Version, controller: Controller, limits: &Limits) -> Vec<(&'static str, String)> {
        settings(version, controller, limits).unwrap().into_iter().map(|row| (row.file, row.value)).collect()
    }

    #[test]
    fn settings_in_order() {
        let half = Limits { memory_bytes: Some(1 << 20), cpu_millicores: Some(500), ..limits() };
        assert_eq!(
            written(Version::V1, Memory, &half),
            [
                ("memory.limit_in_bytes", "1048576".to_owned()),
                ("memory.memsw.limit_in_bytes", "1048576".to_owned()),
                ("memory.swappiness", "0".to_owned()),
            ]
        );
        assert_eq!(
            written(Version::V2, Memory, &half),
            [
                ("memory.max", "1048576".to_owned()),
                ("memory.swap.max", "0".to_owned()),
                ("memory.oom.group", "1".to_owned()),
            ]
        );
        assert_eq!(written(Version::V1, Cpu, &half), [("cpu.cfs_quota_us", "50000".to_owned())]);
        assert_eq!(written(Version::V2, Cpu, &half), [("cpu.max", "50000 100000".to_owned())]);
        assert_eq!(written(Version::V2, Pids, &half), [("pids.max", "64".to_owned())]);
        assert_eq!(written(Version::V1, Freezer, &half), []);
    }

    #[test]
    fn a_quota_never_turns_negative() {
        for millicores in [u64::MAX, u64::MAX / 100, i64::MAX.unsigned_abs() / 100 + 1] {
            let limits = Limits { cpu_millicores: Some(millicores), ..limits() };
            assert!(
                matches!(settings(Version::V1, Cpu, &limits), Err(CgroupError::CpuTooLarge { .. })),
                "{millicores}"
            );
        }
    }

    #[test]
    fn a_tighter_ancestor_holds_the_quota() {
        assert!(holds_cpu_quota("50000\n", "100000\n", "100000"));
        assert!(holds_cpu_quota("200000", "400000", "50000"));
        assert!(!holds_cpu_quota("50000", "50000", "50000"));
        assert!(!holds_cpu_quota("-1\n", "100000\n", "100000"));
        assert!(!holds_cpu_quota("x", "100000", "100000"));
    }
}
