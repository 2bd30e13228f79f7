//! Layout and writes against the fake kernel: what can't be run live on every host.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use super::error::{CgroupError, Unavailable};
use super::fake::{FakeTree, limits};
use super::layout::{Controller, TreeKill};
use super::name::Owner;
use super::{Host, sweep};

const ALL: &str = "cpuset cpu io memory pids";

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap().trim().to_owned()
}

/// An ordinary user: this one, or, as root, one that owns nothing until `give`.
fn user() -> u32 {
    match rustix::process::geteuid().as_raw() {
        0 => 12_345,
        uid => uid,
    }
}

fn give(group: &Path) {
    for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
        let path = if file.is_empty() { group.to_path_buf() } else { group.join(file) };
        chown(path, Some(user()), None).unwrap();
    }
}

fn v2(tree: &FakeTree, mount: &Path, own: &str, euid: u32) -> Host {
    tree.host(&[("cgroup2", "nsdelegate", mount)], own, euid)
}

/// The root, and a scope below it that systemd has given to the user, with us in it and those others.
fn delegated(tree: &FakeTree, name: &str, others: &str) -> (PathBuf, PathBuf) {
    let mount = tree.v2_root("cg", ALL);
    fs::write(mount.join("cgroup.subtree_control"), "memory pids cpu").unwrap();
    let scope = tree.group(&mount, name, &format!("{}\n{others}", tree.owner.pid));
    give(&scope);
    tree.mark(&scope);
    (mount, scope)
}

#[test]
fn root_without_delegation_sits_at_the_top() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    let slice = tree.group(&mount, "user.slice", "");
    tree.group(&slice, "session-1.scope", "77\n78\n");
    let host = v2(&tree, &mount, "/user.slice/session-1.scope", 0);
    assert_eq!(host.availability(&limits(), TreeKill::Needed).unwrap(), "cgroup v2: memory, cpu, pids");
    assert!(!mount.join("stockade").exists(), "asking changes nothing");

    let group = host.create(&limits(), TreeKill::Needed).unwrap();
    let dir = mount.join("stockade").join(group.name());
    assert_eq!(read(mount.join("cgroup.subtree_control")), "memory pids cpu");
    assert_eq!(read(mount.join("stockade/cgroup.subtree_control")), "memory pids cpu");
    assert_eq!(read(dir.join("memory.max")), "33554432");
    assert_eq!(read(dir.join("memory.swap.max")), "0");
    assert_eq!(read(dir.join("memory.oom.group")), "1");
    assert_eq!(read(dir.join("pids.max")), "64");
    assert_eq!(read(dir.join("cpu.max")), "100000 100000");
    assert!(group.clone_fd().is_some());
    assert!(group.oom_fd().is_none());
    group.place(4242).unwrap();
    assert_eq!(read(dir.join("cgroup.procs")), "4242");

    let counters = group.counters().unwrap();
    assert_eq!(counters.oom_kills, 3);
    assert_eq!(counters.pids_max_hits, 7);
    assert_eq!(counters.memory_peak_bytes, Some(8192));
    assert_eq!((counters.cpu_user_us, counters.cpu_system_us), (Some(3000), Some(2000)));
    assert_eq!(group.cpu_usage_us().unwrap(), Some(5000));
    group.kill().unwrap();
    assert_eq!(read(dir.join("cgroup.kill")), "1");
    assert!(group.wait_empty(std::time::Instant::now()).unwrap());
    group.remove().unwrap();
    assert!(!dir.exists());

    let second = host.create(&limits(), TreeKill::Needed).unwrap();
    second.remove().unwrap();
}

#[test]
fn a_hit_that_an_ancestor_caused_is_not_ours() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    let host = v2(&tree, &mount, "/", 0);
    let group = host.create(&limits(), TreeKill::Needed).unwrap();
    fs::write(mount.join("stockade").join(group.name()).join("pids.peak"), "63\n").unwrap();
    assert_eq!(group.counters().unwrap().pids_max_hits, 0);
}

#[test]
fn alone_in_a_delegated_scope_we_move_ourselves_only() {
    let tree = FakeTree::new();
    let (mount, scope) = delegated(&tree, "run-1.scope", "");
    let host = v2(&tree, &mount, "/run-1.scope", user());
    host.availability(&limits(), TreeKill::PidNamespace).unwrap();
    assert!(!scope.join("supervisor").exists(), "asking changes nothing");
    let group = host.create(&limits(), TreeKill::PidNamespace).unwrap();
    assert_eq!(read(scope.join("supervisor/cgroup.procs")), tree.owner.pid.to_string());
    assert_eq!(read(scope.join("cgroup.subtree_control")), "memory pids cpu");
    assert_eq!(read(scope.join(group.name()).join("memory.max")), "33554432");
    assert!(!mount.join("stockade").exists());
    group.remove().unwrap();

    // A second executor, born in the supervisor group, finds the seat taken and uses it as it is.
    give(&scope.join("supervisor"));
    let host = v2(&tree, &mount, "/run-1.scope/supervisor", user());
    let group = host.create(&limits(), TreeKill::PidNamespace).unwrap();
    assert!(scope.join(group.name()).exists());
    assert!(!scope.join("supervisor/supervisor").exists());
    group.remove().unwrap();
}

/// A seed is where we are when it is started, and no stranger; whatever else is there is one.
#[test]
fn our_own_seed_is_moved_along() {
    let tree = FakeTree::new();
    let (mount, scope) = delegated(&tree, "run-1.scope", "99\n");
    let alone = v2(&tree, &mount, "/run-1.scope", user());
    let refused = alone.availability(&limits(), TreeKill::PidNamespace).unwrap_err();
    assert_eq!(refused, Unavailable::Shared { group: scope.clone() });
    let host = Host { seed: 99.into(), ..alone };
    let group = host.create(&limits(), TreeKill::PidNamespace).unwrap();
    assert_eq!(read(scope.join("supervisor/cgroup.procs")), format!("{}\n99", tree.owner.pid));
    assert_eq!(read(scope.join("cgroup.procs")), "");
    group.remove().unwrap();
}

/// When it is gone, who has its number is a stranger.
#[test]
fn a_seed_that_is_gone_is_forgotten() {
    let tree = FakeTree::new();
    let (mount, scope) = delegated(&tree, "run-1.scope", "99\n");
    let host = Host { seed: 99.into(), ..v2(&tree, &mount, "/run-1.scope", user()) };
    host.forget_seed();
    assert!(host.create(&limits(), TreeKill::PidNamespace).is_err());
    assert_eq!(read(scope.join("cgroup.procs")), format!("{}\n99", tree.owner.pid));
}

#[test]
fn a_scope_with_others_in_it_is_refused_to_a_user() {
    let tree = FakeTree::new();
    let (mount, scope) = delegated(&tree, "term.scope", "99\n");
    let host = v2(&tree, &mount, "/term.scope", user());
    let refused = host.availability(&limits(), TreeKill::PidNamespace).unwrap_err();
    assert_eq!(refused, Unavailable::Shared { group: scope.clone() });
    assert!(matches!(
        host.create(&limits(), TreeKill::PidNamespace),
        Err(CgroupError::Unavailable(Unavailable::Shared { .. }))
    ));
    assert_eq!(read(scope.join("cgroup.procs")).lines().count(), 2, "nobody was moved");
}

#[test]
fn a_user_managers_own_delegation_is_not_ours() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    fs::write(mount.join("cgroup.subtree_control"), "memory pids cpu").unwrap();
    let manager = tree.group(&mount, "user@1000.service", "");
    let app = tree.group(&manager, "app.slice", "");
    let scope = tree.group(&app, "term.scope", &format!("{}\n99\n", tree.owner.pid));
    for group in [&manager, &app, &scope] {
        give(group);
    }
    tree.mark(&manager);
    let host = v2(&tree, &mount, "/user@1000.service/app.slice/term.scope", user());
    assert_eq!(
        host.availability(&limits(), TreeKill::PidNamespace),
        Err(Unavailable::Shared { group: scope })
    );
}

#[test]
fn a_login_session_is_not_delegated() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    let scope = tree.group(&mount, "session-3.scope", &format!("{}\n", tree.owner.pid));
    let host = v2(&tree, &mount, "/session-3.scope", user() + 1);
    let refused = host.availability(&limits(), TreeKill::PidNamespace).unwrap_err();
    assert_eq!(refused, Unavailable::NotDelegated { own: scope });
    assert!(refused.remedy().contains("systemd-run --user --scope -p Delegate=yes"));
}

#[test]
fn without_systemd_an_empty_group_of_ours_above_will_do() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    fs::write(mount.join("cgroup.subtree_control"), "memory pids cpu").unwrap();
    let alice = tree.group(&mount, "alice", "");
    let shell = tree.group(&alice, "shell", &format!("{}\n99\n", tree.owner.pid));
    give(&alice);
    give(&shell);
    let host = v2(&tree, &mount, "/alice/shell", user());
    let group = host.create(&limits(), TreeKill::Needed).unwrap();
    assert!(alice.join(group.name()).join("memory.max").exists());
    group.remove().unwrap();
}

#[test]
fn a_containers_root_full_of_processes_is_refused_to_its_root() {
    let tree = FakeTree::new();
    let real = tree.v2_root("real", ALL);
    let container = tree.group(&real, "container", "1\n2\n3\n");
    let host = v2(&tree, &container, "/", 0);
    if rustix::process::geteuid().is_root() {
        assert_eq!(
            host.availability(&limits(), TreeKill::PidNamespace),
            Err(Unavailable::Shared { group: container })
        );
    }
}

#[test]
fn a_missing_controller_is_named() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", "cpu pids");
    let host = v2(&tree, &mount, "/", 0);
    let missing = Unavailable::NoController { controller: Controller::Memory, at: mount.clone() };
    assert_eq!(host.availability(&limits(), TreeKill::Needed), Err(missing));
    assert!(matches!(
        host.create(&limits(), TreeKill::Needed),
        Err(CgroupError::Unavailable(Unavailable::NoController { controller: Controller::Memory, .. }))
    ));
    assert_eq!(
        fs::read_dir(mount.join("stockade")).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count(),
        0
    );
    let without = stockade_proto::Limits { memory_bytes: None, ..limits() };
    assert_eq!(host.availability(&without, TreeKill::Needed).unwrap(), "cgroup v2: cpu, pids");
    host.create(&without, TreeKill::Needed).unwrap().remove().unwrap();
}

#[test]
fn no_cgroups_and_read_only_ones() {
    let tree = FakeTree::new();
    let none = Host::from_text(b"", b"", 0, tree.owner);
    assert_eq!(none.availability(&limits(), TreeKill::Needed), Err(Unavailable::NoCgroups));
    let text = b"9 1 0:9 / /cg ro - cgroup2 none rw\n";
    let sealed = Host::from_text(text, b"0::/\n", 0, tree.owner);
    assert_eq!(
        sealed.availability(&limits(), TreeKill::Needed),
        Err(Unavailable::ReadOnly { mount: "/cg".into() })
    );
    let text = b"9 1 0:9 /pod/1 /cg rw - cgroup2 none rw\n";
    let elsewhere = Host::from_text(text, b"0::/pod/2\n", 0, tree.owner);
    assert_eq!(
        elsewhere.availability(&limits(), TreeKill::Needed),
        Err(Unavailable::Unreachable { path: "/pod/2".into() })
    );
}

#[test]
fn of_two_mounts_the_writable_one_that_shows_us_is_used() {
    let tree = FakeTree::new();
    let text = b"1 1 0:9 /pod /other rw - cgroup none rw,memory\n\
        2 1 0:9 / /sealed ro - cgroup none rw,memory\n\
        3 1 0:9 / /good rw - cgroup none rw,memory\n";
    let host = Host::from_text(text, b"4:memory:/me\n", 0, tree.owner);
    assert_eq!(host.v1[0].own.as_deref(), Some(Path::new("/good/me")));
}

#[test]
fn v1_groups_stand_below_our_own_and_leave_nothing() {
    let tree = FakeTree::new();
    let roots = ["memory", "cpu,cpuacct", "pids"].map(|name| (name, tree.v1_root(name)));
    let mounts: Vec<_> = roots.iter().map(|(name, root)| ("cgroup", *name, root.as_path())).collect();
    for (_, root) in &roots {
        tree.group(root, "me", "");
    }
    let host = tree.host(&mounts, "/me", 0);
    // The fake has no cgroup.event_control: such a kernel has no OOM events, and the limit holds.
    let group = host.create(&limits(), TreeKill::Needed).unwrap();
    assert_eq!(group.detail(), "cgroup v1: memory, cpu, pids");
    let at = |index: usize, file: &str| roots[index].1.join("me").join(group.name()).join(file);
    assert_eq!(read(at(0, "memory.limit_in_bytes")), "33554432");
    assert_eq!(read(at(0, "memory.memsw.limit_in_bytes")), "33554432");
    assert_eq!(read(at(0, "memory.swappiness")), "0");
    assert_eq!(read(at(1, "cpu.cfs_quota_us")), "100000");
    assert_eq!(read(at(2, "pids.max")), "64");
    assert!(group.clone_fd().is_none());
    group.place(4242).unwrap();
    for index in 0..3 {
        assert_eq!(read(at(index, "cgroup.procs")), "4242");
        fs::write(at(index, "cgroup.procs"), "").unwrap();
    }
    let counters = group.counters().unwrap();
    assert_eq!((counters.oom_kills, counters.memory_peak_bytes), (2, Some(4096)));
    assert_eq!((counters.cpu_user_us, counters.cpu_system_us), (Some(3000), Some(2000)));
    assert_eq!(group.cpu_usage_us().unwrap(), Some(5000));
    // What ticks found running is a sample; the time is the clock's.
    for (user, system, told) in [(300, 100, (3750, 1250)), (0, 1, (0, 5000)), (0, 0, (5000, 0))] {
        fs::write(at(1, "cpuacct.usage_user"), format!("{}\n", user * 1000)).unwrap();
        fs::write(at(1, "cpuacct.usage_sys"), format!("{}\n", system * 1000)).unwrap();
        let counters = group.counters().unwrap();
        assert_eq!((counters.cpu_user_us.unwrap(), counters.cpu_system_us.unwrap()), told);
    }
    group.kill().unwrap();
    assert_eq!(read(at(2, "pids.max")), "64", "nothing to kill, nothing to change");
    group.remove().unwrap();
    for (_, root) in &roots {
        assert!(fs::read_dir(root.join("me")).unwrap().all(|entry| entry.unwrap().path().is_file()));
    }
}

#[test]
fn a_limit_that_cannot_be_written_leaves_no_group() {
    let tree = FakeTree::new();
    let memory = tree.v1_root("memory");
    // Mounted as pids, but its groups get cpuset's files: pids.max is missing.
    let pids = tree.v1_root("cpuset");
    let host = tree.host(&[("cgroup", "memory", &memory), ("cgroup", "pids", &pids)], "/", 0);
    let limits = stockade_proto::Limits { cpu_millicores: None, ..limits() };
    let fault = host.create(&limits, TreeKill::PidNamespace).unwrap_err();
    assert!(matches!(&fault, CgroupError::Write { path, .. } if path.ends_with("pids.max")), "{fault:?}");
    for root in [&memory, &pids] {
        assert_eq!(fs::read_dir(root).unwrap().count(), 0, "{}", root.display());
    }
}

#[test]
fn sweep_ends_the_dead_and_nobody_else() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    let memory = tree.v1_root("memory");
    let top = tree.group(&mount, "stockade", "");
    let me = tree.owner;
    let dead = Owner { started: me.started + 1, ..me }.group_name(0);
    let alive = me.group_name(1_000_000);
    let elsewhere = Owner { pid_namespace: 1, ..me }.group_name(0);
    for name in [&dead, &alive, &elsewhere, &"stockade-x-notours".to_owned()] {
        tree.group(&top, name, "");
        tree.group(&memory, name, "");
    }
    let host = tree.host(&[("cgroup", "memory", &memory), ("cgroup2", "rw", &mount)], "/", 0);
    let report = sweep(&host);
    assert_eq!(report.removed, std::slice::from_ref(&dead), "{report:?}");
    assert_eq!((report.alive, report.elsewhere), (2, 2));
    assert!(report.faults.is_empty(), "{report:?}");
    for base in [&top, &memory] {
        assert!(!base.join(&dead).exists());
        assert!(base.join(&alive).exists() && base.join(&elsewhere).exists());
        assert!(base.join("stockade-x-notours").exists());
    }
    assert!(sweep(&host).removed.is_empty());
}

/// What another user left is that user's. Root may write anywhere, so that this shows nothing to root.
#[test]
fn sweep_leaves_what_it_may_not_write() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    let top = tree.group(&mount, "stockade", "");
    let dead = Owner { started: tree.owner.started + 1, ..tree.owner }.group_name(0);
    tree.group(&top, &dead, "");
    let closed = |mode| std::fs::set_permissions(&top, std::fs::Permissions::from_mode(mode)).unwrap();
    closed(0o555);
    let report = sweep(&v2(&tree, &mount, "/", 0));
    closed(0o755);
    if rustix::process::geteuid().is_root() {
        assert_eq!(report.removed, [dead], "{report:?}");
    } else {
        assert!(report.removed.is_empty() && report.faults.is_empty(), "{report:?}");
        assert!(top.join(&dead).exists());
    }
}

#[test]
fn sweep_looks_into_sibling_scopes_of_our_slice() {
    let tree = FakeTree::new();
    let mount = tree.v2_root("cg", ALL);
    let slice = tree.group(&mount, "stockade.slice", "");
    let theirs = tree.group(&slice, "run-1.scope", "");
    tree.group(&slice, "run-2.scope", &format!("{}\n", tree.owner.pid));
    let dead = Owner { started: tree.owner.started + 1, ..tree.owner }.group_name(0);
    tree.group(&theirs, &dead, "");
    let host = v2(&tree, &mount, "/stockade.slice/run-2.scope", user());
    assert_eq!(sweep(&host).removed, [dead]);
}
