//! Unix sockets outside the workspace: agents, container engines, databases listen there.

use stockade_escape_tests::{Datagrams, Listener, SECRET, Sandbox, wall};
use stockade_proto::Layer;

#[test]
fn stream() {
    let sandbox = Sandbox::new();
    let path = sandbox.outside().join("s");
    let _listener = Listener::pathname(&path);
    wall(&sandbox, &format!("unix {}", path.display()));
    wall(&sandbox, "unix ../outside/s");
    std::os::unix::fs::symlink(&path, sandbox.workspace().join("door")).expect("a symlink");
    wall(&sandbox, "unix ./door");
    wall(&sandbox, &format!("try unlink ./l , link {} ./l , unix ./l", path.display()));
}

#[test]
fn datagram() {
    let sandbox = Sandbox::new();
    let path = sandbox.outside().join("d");
    let socket = Datagrams::pathname(&path);
    for attack in ["unix-dgram", "pair-sendto"] {
        let steps = format!("{attack} {}", path.display());
        sandbox.bare(&steps).won();
        assert!(socket.arrived(), "{attack}");
        sandbox.attack(&steps).held();
        assert!(!socket.arrived(), "{attack}");
    }
}

#[test]
fn well_known_sockets_are_absent() {
    let sandbox = Sandbox::new();
    for path in [
        "/run/systemd/private",
        "/run/dbus/system_bus_socket",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/systemd/journal/socket",
        "/dev/log",
    ] {
        sandbox.attack(&format!("stat {path}")).held();
        sandbox.attack(&format!("unix {path}")).held();
    }
}

#[test]
fn a_socket_of_the_host_inside_the_workspace() {
    // No border in the file system stands before it: only the supervisor of sockets does.
    let sandbox = Sandbox::new();
    let path = sandbox.workspace().join("s");
    let _listener = Listener::pathname(&path);
    const EACCES: i32 = 13;
    assert_eq!(sandbox.attack("unix ./s").held(), ("connect".to_owned(), EACCES));
    let open = Sandbox::new().without(&[Layer::Sockets]);
    let path = open.workspace().join("s");
    let _listener = Listener::pathname(&path);
    assert_eq!(open.attack("unix ./s").won(), SECRET);
}
