//! `/proc/PID/root` and friends of processes outside: a door to their whole tree.

use stockade_escape_tests::{SECRET, Sandbox, Victim, wall};

#[test]
fn roots_of_outsiders() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    let (pid, secret) = (victim.pid(), sandbox.secret());
    wall(&sandbox, &format!("read /proc/{pid}/root{}", secret.display()));
    wall(&sandbox, &format!("read /proc/{pid}/cwd/secret"));
    wall(&sandbox, &format!("read /proc/{pid}/fd/{}", victim.fd));
}

#[test]
fn root_of_pid_1() {
    // In the sandbox PID 1 is our init: its root is the sandbox's own, or closed. Outside, a process with
    // the host's root stands for it: that is what init was when it started.
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    let secret = sandbox.secret().display().to_string();
    assert_eq!(sandbox.bare(&format!("read /proc/{}/root{secret}", victim.pid())).won(), SECRET);
    sandbox.attack(&format!("read /proc/1/root{secret}")).held();
    sandbox.attack("read /proc/1/cwd/../outside/secret").held();
    sandbox.attack(&format!("chdir /proc/1/root , read .{secret}")).held();
}

#[test]
fn bind_of_proc_self_root() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("m")).expect("a mount point");
    let secret = sandbox.secret();
    wall(&sandbox, &format!("try become-root , bind /proc/self/root ./m , read ./m{}", secret.display()));
    sandbox.attack(&format!("try become-root , bind /proc/1/root ./m , read ./m{}", secret.display())).held();
    assert_eq!(std::fs::read_to_string(secret).expect("the secret"), SECRET);
}
