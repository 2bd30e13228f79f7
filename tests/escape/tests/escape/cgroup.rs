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
    // It is told where its groups are, which it could not find out.
    let waits = "echo READY; until [ -e go ]; do sleep 0.05; done; . ./go; echo OVER # walrus-cgroup";
    let running = sandbox.start(&["sh", "-c", waits]);
    running.wait_line("READY");
    let pid = stockade_escape_tests::find_marked("walrus-cgroup").into_iter().max().expect("the command");
    let mut groups = cgroup_directories(pid);
    groups.retain(|group| group.display().to_string().contains("stockade-x-"));
    assert!(!groups.is_empty(), "it is in no group of ours");
    let mut script = String::new();
    for group in &groups {
        let group = group.display();
        script.push_str(&format!(
            "mkdir {group}/sub && echo WON\n(echo $$ > {group}/cgroup.procs) && echo WON\n"
        ));
        // Who made the group can, by that name.
        let below = format!("{group}/below");
        std::fs::create_dir(&below).and_then(|()| std::fs::remove_dir(&below)).expect("it is ours");
    }
    sandbox.plant("work/go.new", &script);
    std::fs::rename(sandbox.workspace().join("go.new"), sandbox.workspace().join("go")).expect("renamed");
    running.wait_line("OVER");
    let ran = running.finish();
    assert!(!ran.stdout_text().contains("WON"), "{ran}");
    assert!(ran.stderr_text().contains("cgroup.procs"), "it was tried: {ran}");
}

#[test]
fn the_view_starts_at_its_own_group() {
    // A cgroup namespace: the path from the machine's root is not told.
    let sandbox = Sandbox::new();
    let text = sandbox.attack("read /proc/self/cgroup").won();
    assert!(!text.contains("stockade"), "{text}");
}
