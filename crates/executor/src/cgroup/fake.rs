//! A directory tree that behaves like the kernel's where this module relies on it: files appear with a
//! group and vanish with it, controllers are offered downwards, and a group with processes gets none.
//! One per test thread; paths outside it go to the real kernel.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stockade_proto::Limits;
use tempfile::TempDir;

use super::name::Owner;
use super::{Host, dir::Dir};

thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

struct Kernel {
    root: PathBuf,
    marks: Vec<PathBuf>,
    pid: u32,
}

/// The default profile's limits, small.
pub(super) fn limits() -> Limits {
    Limits {
        memory_bytes: Some(32 << 20),
        cpu_millicores: Some(1000),
        cpu_seconds: None,
        processes: Some(64),
        open_files: None,
        file_size_bytes: None,
        wall_ms: None,
        output_bytes: None,
        scratch_bytes: 0,
        grace_ms: 0,
    }
}

pub(super) struct FakeTree {
    tree: TempDir,
    pub(super) owner: Owner,
}

impl Drop for FakeTree {
    fn drop(&mut self) {
        KERNEL.with_borrow_mut(|kernel| *kernel = None);
    }
}

impl FakeTree {
    pub(super) fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        let owner = Owner::this_process().unwrap();
        KERNEL.with_borrow_mut(|kernel| {
            *kernel = Some(Kernel { root: tree.path().into(), marks: vec![], pid: owner.pid });
        });
        Self { tree, owner }
    }

    /// The real root of a v2 hierarchy offering `controllers`, at `name`.
    pub(super) fn v2_root(&self, name: &str, controllers: &str) -> PathBuf {
        let root = self.tree.path().join(name);
        fs::create_dir(&root).unwrap();
        for (file, text) in
            [("cgroup.controllers", controllers), ("cgroup.subtree_control", ""), ("cgroup.procs", "1\n2\n")]
        {
            fs::write(root.join(file), text).unwrap();
        }
        root
    }

    pub(super) fn v1_root(&self, controllers: &str) -> PathBuf {
        let root = self.tree.path().join(controllers);
        fs::create_dir(&root).unwrap();
        root
    }

    /// A group below `parent` with these processes in it.
    pub(super) fn group(&self, parent: &Path, name: &str, pids: &str) -> PathBuf {
        Dir::open(parent).unwrap().make(name).unwrap();
        let path = parent.join(name);
        fs::write(path.join("cgroup.procs"), pids).unwrap();
        path
    }

    pub(super) fn mark(&self, group: &Path) {
        KERNEL.with_borrow_mut(|kernel| kernel.as_mut().unwrap().marks.push(group.into()));
    }

    /// A host that sees `mounts` (type, super options, mount point) and sits at `own` in each.
    pub(super) fn host(&self, mounts: &[(&str, &str, &Path)], own: &str, euid: u32) -> Host {
        use std::fmt::Write;
        let (mut mountinfo, mut memberships) = (String::new(), String::new());
        for (index, (kind, options, point)) in mounts.iter().enumerate() {
            writeln!(mountinfo, "9 1 0:9 / {} rw - {kind} none rw,{options}", point.display()).unwrap();
            let id = if *kind == "cgroup2" { 0 } else { index + 1 };
            let controllers = if *kind == "cgroup2" { "" } else { options };
            writeln!(memberships, "{id}:{controllers}:{own}").unwrap();
        }
        Host::from_text(mountinfo.as_bytes(), memberships.as_bytes(), euid, self.owner)
    }
}

fn with<T>(path: &Path, act: impl FnOnce(&Kernel) -> T) -> Option<T> {
    KERNEL.with_borrow(|kernel| kernel.as_ref().filter(|kernel| path.starts_with(&kernel.root)).map(act))
}

pub(super) fn marked(group: &Path) -> bool {
    with(group, |kernel| kernel.marks.iter().any(|mark| mark == group)).unwrap_or(false)
}

pub(super) fn made(group: &Path) {
    with(group, |kernel| {
        let parent = group.parent().unwrap();
        let file = |name: &str, text: &str| fs::write(group.join(name), text).unwrap();
        file("cgroup.procs", "");
        let v2 = parent.join("cgroup.subtree_control").exists();
        let controllers = if v2 {
            let offered = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap();
            file("cgroup.controllers", &offered);
            file("cgroup.subtree_control", "");
            file("cgroup.events", "populated 0\nfrozen 0\n");
            file("cgroup.kill", "");
            file("cpu.stat", "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\n");
            offered.split_whitespace().map(|name| format!("v2 {name}")).collect::<Vec<_>>()
        } else {
            let mount = group.strip_prefix(&kernel.root).unwrap().iter().next().unwrap();
            mount.to_str().unwrap().split(',').map(|name| format!("v1 {name}")).collect()
        };
        for controller in controllers {
            for (name, text) in files_of(&controller) {
                file(name, text);
            }
        }
    });
}

fn files_of(controller: &str) -> &'static [(&'static str, &'static str)] {
    match controller {
        "v1 memory" => &[
            ("memory.limit_in_bytes", ""),
            ("memory.memsw.limit_in_bytes", ""),
            ("memory.swappiness", "60"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("memory.max_usage_in_bytes", "4096\n"),
        ],
        "v2 memory" => &[
            ("memory.max", "max\n"),
            ("memory.swap.max", "max\n"),
            ("memory.oom.group", "0\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 1\n"),
            ("memory.peak", "8192\n"),
        ],
        "v1 pids" | "v2 pids" => &[("pids.max", "max\n"), ("pids.events", "max 7\n"), ("pids.peak", "64\n")],
        "v1 cpu" => &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")],
        "v2 cpu" => &[("cpu.max", "max 100000\n")],
        "v1 cpuacct" => &[
            ("cpuacct.usage", "5000000\n"),
            ("cpuacct.usage_user", "3000000\n"),
            ("cpuacct.usage_sys", "2000000\n"),
        ],
        _ => &[],
    }
}

pub(super) fn removing(group: &Path) {
    with(group, |_| {
        for entry in fs::read_dir(group).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_file() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    });
}

pub(super) fn write(path: &Path, value: &str) -> Option<io::Result<()>> {
    with(path, |kernel| {
        let group = path.parent().unwrap();
        if !path.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        match path.file_name().unwrap().to_str().unwrap() {
            "cgroup.subtree_control" => enable(group, value.strip_prefix('+').unwrap()),
            "cgroup.procs" if group.parent().unwrap().join("cgroup.subtree_control").exists() => {
                let pid = if value == "0" { kernel.pid.to_string() } else { value.to_owned() };
                enter(group, &pid)
            }
            "cgroup.kill" => {
                fs::write(group.join("cgroup.procs"), "")?;
                fs::write(path, value)
            }
            _ => fs::write(path, value),
        }
    })
}

/// From the group above.
fn enter(group: &Path, pid: &str) -> io::Result<()> {
    let above = group.parent().unwrap().join("cgroup.procs");
    let stay = fs::read_to_string(&above)?
        .lines()
        .filter(|line| *line != pid)
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    fs::write(above, stay)?;
    let inside = group.join("cgroup.procs");
    fs::write(&inside, format!("{}{pid}\n", fs::read_to_string(&inside)?))
}

fn enable(group: &Path, controller: &str) -> io::Result<()> {
    let read = |file: &str| fs::read_to_string(group.join(file));
    if !read("cgroup.controllers")?.split_whitespace().any(|offered| offered == controller) {
        return Err(io::ErrorKind::NotFound.into());
    }
    // The real root alone may hold processes beside children with controllers.
    if group.join("cgroup.events").exists() && !read("cgroup.procs")?.is_empty() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let enabled = read("cgroup.subtree_control")?;
    fs::write(group.join("cgroup.subtree_control"), format!("{} {controller}\n", enabled.trim()))?;
    for child in Dir::open(group).unwrap().children()? {
        let file = group.join(child).join("cgroup.controllers");
        let offered = fs::read_to_string(&file)?;
        fs::write(file, format!("{offered} {controller}"))?;
    }
    Ok(())
}
