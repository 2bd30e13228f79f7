//! Leaving the cgroup, or using its hierarchy to run something outside.

use stockade_escape_tests::{Sandbox, cgroup_directories, wall};

#[test]
fn the_hierarchy_can_t_be_written() {
    let sandbox = Sandbox::new();
    for path in [
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/cgroup.procs",
        "/sys/fs/cgroup/pids/cgroup.procs",
        "/sys/fs/cgroup/unified/cgroup.procs",
        "/sys/fs/cgroup/memory/release_agent",
        "/sys/fs/cgroup/systemd/release_agent",
        "/sys/fs/cgroup/devices/devices.allow",
    ] {
        if std::path::Path::new(path).exists() {
            wall(&sandbox, &format!("open-write {path}"));
        }
        sandbox.attack(&format!("open-write {path}")).held();
    }
}

#[test]
fn no_hierarchy_can_be_mounted() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("m")).expect("a mount point");
    for kind in ["cgroup", "cgroup2"] {
        sandbox.attack(&format!("try become-root , mount {kind} ./m")).held();
        sandbox.attack(&format!("unshare user mnt cgroup , mount {kind} ./m")).held();
    }
    if stockade_escape_tests::am_root() {
        sandbox.bare("become-root , mount cgroup2 ./m").won();
    } else {
        stockade_escape_tests::skip("mounting a cgroup hierarchy needs root on the bare host");
    }
}

#[test]
fn its_own_group_can_t_be_changed_from_inside() {
    let sandbox = Sandbox::new();
    let running = sandbox.start_attack("hold walrus-cgroup");
    running.wait_line("READY");
    let pid = stockade_escape_tests::find_marked("walrus-cgroup").into_iter().max().expect("the command");
    let groups = cgroup_directories(pid);
    drop(running);
    for group in groups {
        let file = group.join("cgroup.procs");
        sandbox.attack(&format!("open-write {}", file.display())).held();
        sandbox.attack(&format!("mkdir {}/sub", group.display())).held();
    }
}

#[test]
fn the_view_starts_at_its_own_group() {
    // A cgroup namespace: the path from the machine's root is not told.
    let sandbox = Sandbox::new();
    let text = sandbox.attack("read /proc/self/cgroup").won();
    assert!(!text.contains("stockade"), "{text}");
}
