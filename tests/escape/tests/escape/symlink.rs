//! A symlink in the workspace that points out, planted by the host or by the attacker.

use stockade_escape_tests::{SECRET, Sandbox, wall};

#[test]
fn planted_by_the_host() {
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink(sandbox.secret(), sandbox.workspace().join("door")).expect("a symlink");
    std::os::unix::fs::symlink(sandbox.outside(), sandbox.workspace().join("hall")).expect("a symlink");
    wall(&sandbox, "read ./door");
    wall(&sandbox, "read ./hall/secret");
    sandbox.attack("write ./door").held();
    assert_eq!(std::fs::read_to_string(sandbox.secret()).expect("the secret"), SECRET);
}

#[test]
fn planted_by_the_attacker() {
    let sandbox = Sandbox::new();
    let secret = sandbox.secret();
    wall(&sandbox, &format!("try unlink ./door , symlink {} ./door , read ./door", secret.display()));
    wall(&sandbox, "try unlink ./door , symlink ../outside/secret ./door , read ./door");
}

#[test]
fn left_for_the_next_execution() {
    let sandbox = Sandbox::new();
    sandbox.attack(&format!("symlink {} ./later", sandbox.outside().display())).won();
    assert_eq!(sandbox.bare("read ./later/secret").won(), SECRET);
    sandbox.attack("read ./later/secret").held();
    sandbox.attack("create ./later/new").held();
    assert!(!sandbox.outside().join("new").exists());
}

#[test]
fn through_magic_links() {
    let sandbox = Sandbox::new();
    wall(&sandbox, "read /proc/self/cwd/../outside/secret");
    let secret = sandbox.secret().display().to_string();
    wall(&sandbox, &format!("read /proc/self/root{secret}"));
    wall(&sandbox, &format!("read /proc/thread-self/root{secret}"));
    wall(&sandbox, "open-dir . , read /proc/self/cwd/../outside/secret");
}
