//! Rebuilding the mount tree with the descriptor-based calls.

use stockade_escape_tests::{Sandbox, wall};

#[test]
fn fsopen() {
    wall(&Sandbox::new(), "try become-root , fsopen tmpfs");
}

#[test]
fn open_tree_and_move_mount() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("m")).expect("a mount point");
    wall(&sandbox, "try become-root , open-tree / , move-mount ./m");
    sandbox.attack("open-tree /usr").held();
}

#[test]
fn fspick() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("m")).expect("a mount point");
    wall(&sandbox, "try become-root , mount tmpfs ./m , fspick ./m");
    sandbox.attack("fspick /").held();
    sandbox.attack("fspick /tmp").held();
}

#[test]
fn mount_setattr() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("m")).expect("a mount point");
    wall(&sandbox, "try become-root , mount tmpfs ./m , mount-setattr-rw ./m");
    for path in ["/usr", "/", "/proc/sys", "/etc"] {
        sandbox.attack(&format!("mount-setattr-rw {path}")).held();
    }
}
