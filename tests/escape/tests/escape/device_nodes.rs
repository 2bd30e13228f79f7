//! Making devices, and using those that a sandbox has no business with.

use stockade_escape_tests::{Sandbox, wall};

#[test]
fn mknod() {
    let sandbox = Sandbox::new();
    // 1:5 is /dev/zero: harmless where it wins, and the same call makes a disk.
    wall(&sandbox, "mknod ./node c 1 5");
    sandbox.attack("mknod ./disk b 8 0").held();
    sandbox.attack("mknod /tmp/node c 1 5").held();
    sandbox.attack("mknod /dev/node c 1 5").held();
    sandbox.attack("mknod /dev/shm/kmem c 1 1").held();
}

#[test]
fn mknod_with_capabilities_of_a_user_namespace() {
    Sandbox::new().attack("try become-root , mknod ./node c 1 5").held();
}

#[test]
fn a_node_that_lies_in_the_workspace() {
    // Made by root beforehand; a workspace must not be a place where devices work.
    if !stockade_escape_tests::am_root() {
        return stockade_escape_tests::skip("only root can make a device");
    }
    let sandbox = Sandbox::new();
    let node = sandbox.workspace().join("zero");
    let made = std::process::Command::new("mknod")
        .args([node.as_os_str(), "c".as_ref(), "1".as_ref(), "5".as_ref()])
        .status();
    assert!(made.expect("mknod runs").success());
    std::fs::set_permissions(&node, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("its mode");
    wall(&sandbox, "open-write ./zero");
}

#[test]
fn dev_is_minimal() {
    let sandbox = Sandbox::new();
    let expected = [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom",
        "zero",
    ];
    let seen = sandbox.attack("list /dev").won();
    for name in seen.split(' ') {
        assert!(
            expected.contains(&name) || name == "core" || name == "mqueue",
            "/dev/{name} is there: {seen}"
        );
    }
    for name in [
        "kmsg",
        "mem",
        "kvm",
        "fuse",
        "vda",
        "sda",
        "loop0",
        "loop-control",
        "userfaultfd",
        "vsock",
        "net/tun",
        "port",
    ] {
        sandbox.attack(&format!("open-write /dev/{name}")).held();
        sandbox.attack(&format!("stat /dev/{name}")).held();
    }
    wall(&sandbox, "stat /dev/kmsg");
}
