//! Files that belong to another user, readable only by it: root's, when root calls.

use stockade_escape_tests::{Sandbox, am_root, skip, wall};

#[test]
fn shadow() {
    let sandbox = Sandbox::new();
    if !std::path::Path::new("/etc/shadow").exists() {
        return skip("this host has no /etc/shadow");
    }
    wall(&sandbox, "read /etc/shadow");
    wall(&sandbox, "open-write /etc/shadow");
}

#[test]
fn a_file_of_mode_0600_outside() {
    let sandbox = Sandbox::new();
    let path = sandbox.plant("outside/private", "x");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its mode");
    wall(&sandbox, &format!("read {}", path.display()));
}

#[test]
fn a_file_of_another_user_in_the_workspace() {
    // Root owns the workspace, somebody else a file in it: the sandbox is not that somebody.
    if !am_root() {
        return skip("only root can make a file of another user");
    }
    let sandbox = Sandbox::new();
    let path = sandbox.plant("work/theirs", "x");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its mode");
    std::os::unix::fs::chown(&path, Some(65_533), Some(65_533)).expect("root may");
    wall(&sandbox, "read ./theirs");
}

#[test]
fn becoming_another_user() {
    let sandbox = Sandbox::new();
    wall(&sandbox, "setuid 1");
    wall(&sandbox, "setgroups");
    let verdict = sandbox.attack("setuid 0");
    // Uid 0 inside may be the command's own name for itself; then nothing is gained by asking.
    if verdict.is_won() {
        sandbox.attack("setuid 0 , caps").held();
        sandbox.attack("setuid 0 , read /etc/shadow").held();
    }
}
