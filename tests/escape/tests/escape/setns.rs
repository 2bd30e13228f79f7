//! Joining the namespaces of somebody outside.

use stockade_escape_tests::{Sandbox, Victim, wall};

#[test]
fn by_path() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    for kind in ["mnt", "net", "uts", "ipc", "cgroup"] {
        if stockade_escape_tests::am_root() {
            wall(&sandbox, &format!("setns /proc/{}/ns/{kind}", victim.pid()));
        }
        sandbox.attack(&format!("setns /proc/{}/ns/{kind}", victim.pid())).held();
        sandbox.attack(&format!("setns /proc/self/ns/{kind}")).held();
        sandbox.attack(&format!("setns /proc/1/ns/{kind}")).held();
    }
    sandbox.attack("setns /proc/self/ns/user").held();
    if !stockade_escape_tests::am_root() {
        stockade_escape_tests::skip("joining another process's namespaces needs root on the bare host");
    }
}

#[test]
fn by_pidfd() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    wall(&sandbox, &format!("setns-pidfd {} mnt", victim.pid()));
    sandbox.attack("setns-pidfd 1 mnt").held();
    sandbox.attack("setns-pidfd 1 user").held();
}
