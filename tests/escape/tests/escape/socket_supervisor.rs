//! Through the supervisor of sockets: it performs calls for the command, and for an ordinary user it holds
//! every capability in the sandbox's network. None of them may serve the command.

use stockade_escape_tests::{Sandbox, skip};

fn has_ip() -> bool {
    ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].iter().any(|path| std::path::Path::new(path).exists())
}

/// `ip` names the kernel as the destination, which makes it pass over who opened the socket.
#[test]
fn links_are_told_and_not_changed() {
    if !has_ip() {
        return skip("this host has no ip");
    }
    let sandbox = Sandbox::new();
    let script = "ip link add evil0 type dummy; ip link set lo mtu 1000; ip link del lo; ip -o link";
    let ran = sandbox.run(&["sh", "-c", script]);
    let told = ran.stdout_text();
    assert!(told.contains("lo:"), "{ran}");
    assert!(!told.contains("evil0") && !told.contains("mtu 1000"), "{ran}");
}

#[test]
fn low_ports_stay_closed() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip("this host has no /usr/bin/python3");
    }
    let sandbox = Sandbox::new();
    let script = "import socket\ns = socket.socket()\ntry:\n s.bind(('127.0.0.1', 80))\n print('bound')\nexcept OSError as e: print('errno', e.errno)\ns.bind(('127.0.0.1', 8080))\nprint('high')";
    let ran = sandbox.run(&["/usr/bin/python3", "-c", script]);
    assert_eq!(ran.stdout_text(), "errno 13\nhigh\n", "{ran}");
}
