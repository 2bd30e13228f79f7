//! Rebuilding the mount tree with the old calls.

use stockade_escape_tests::{SECRET, Sandbox, wall};

fn with_mount_point() -> Sandbox {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("m")).expect("a mount point");
    sandbox
}

#[test]
fn fresh_filesystems() {
    let sandbox = with_mount_point();
    for kind in ["tmpfs", "proc", "sysfs", "devpts", "mqueue", "ramfs"] {
        // A user namespace owns no PID or network namespace: proc and sysfs are refused there even
        // without walls, so only the private tmpfs must win for everybody.
        if kind == "tmpfs" || stockade_escape_tests::am_root() {
            wall(&sandbox, &format!("try become-root , mount {kind} ./m"));
        } else {
            sandbox.attack(&format!("try become-root , mount {kind} ./m")).held();
        }
    }
}

#[test]
fn bind_and_remount() {
    let sandbox = with_mount_point();
    wall(&sandbox, "try become-root , bind / ./m");
    sandbox.attack("try become-root , remount-rw /usr").held();
    sandbox.attack("try become-root , remount-rw /").held();
    sandbox.attack("try become-root , remount-rw /proc/sys").held();
}

#[test]
fn removing_a_mount_that_covers_something() {
    let sandbox = Sandbox::new();
    sandbox.plant("work/.env", SECRET);
    for path in ["/proc", "/tmp", "/dev", "/usr", "./.env", ".", "/proc/sys", "/sys"] {
        sandbox.attack(&format!("try become-root , umount {path}")).held();
    }
    // Without the wall: a mount of one's own making goes away.
    let open = with_mount_point();
    open.bare("become-root , mount tmpfs ./m , umount ./m").won();
}

#[test]
fn pivot_root() {
    let sandbox = with_mount_point();
    wall(&sandbox, "try become-root , bind . ./m , chdir ./m , pivot-root .");
    sandbox.attack("try become-root , pivot-root .").held();
}

#[test]
fn overlay() {
    with_mount_point().attack("try become-root , mount overlay ./m").held();
}
