//! Tracing and reading the memory of processes outside, by system call.

use stockade_escape_tests::{SECRET, Sandbox, Victim, wall, wall_of};
use stockade_proto::Layer;

#[test]
fn by_every_call() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    let (pid, address, length) = (victim.pid(), &victim.address, SECRET.len());
    for attack in [
        format!("trace {pid}"),
        format!("seize {pid}"),
        format!("vm-read {pid} {address} {length}"),
        format!("vm-write {pid} {address}"),
        format!("pidfd-getfd {pid} {}", victim.fd),
        format!("kcmp {pid}"),
    ] {
        wall(&sandbox, &attack);
    }
    assert!(victim.is_alive());
}

#[test]
fn the_pid_namespace_is_what_stops_it() {
    // The same number, with the process layer (and what stands on it) off.
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    let layers = [Layer::Process, Layer::Landlock];
    wall_of(&layers, || Sandbox::new().given_away(), |_| format!("see-pid {}", victim.pid()));
}
