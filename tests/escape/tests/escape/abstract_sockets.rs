//! Abstract Unix sockets of the host: no path, no mount namespace in the way.

use stockade_escape_tests::{Datagrams, Listener, SECRET, Sandbox, wall};
use stockade_proto::Layer;

fn name(of: &str) -> String {
    format!("stockade-escape-{of}-{}", std::process::id())
}

#[test]
fn stream() {
    let name = name("stream");
    let _listener = Listener::abstract_name(&name);
    wall(&Sandbox::new(), &format!("abstract {name}"));
}

#[test]
fn datagram() {
    let name = name("datagram");
    let socket = Datagrams::abstract_name(&name);
    let sandbox = Sandbox::new();
    sandbox.bare(&format!("abstract-dgram {name}")).won();
    assert!(socket.arrived());
    sandbox.attack(&format!("abstract-dgram {name}")).held();
    sandbox.attack(&format!("pair-sendto @{name}")).held();
    assert!(!socket.arrived());
}

#[test]
fn each_layer_alone_stops_it() {
    let name = name("alone");
    let _listener = Listener::abstract_name(&name);
    let attack = format!("abstract {name}");
    let both_off = Sandbox::new().without(&[Layer::Network, Layer::Landlock, Layer::Sockets]);
    assert_eq!(both_off.attack(&attack).won(), SECRET);
    // The network namespace holds abstract names as well.
    Sandbox::new().without(&[Layer::Landlock, Layer::Sockets]).attack(&attack).held();
    // So does the supervisor of sockets.
    Sandbox::new().without(&[Layer::Landlock, Layer::Network]).attack(&attack).held();
    let scoped = Sandbox::new().without(&[Layer::Network, Layer::Sockets]).attack(&attack);
    if scoped.is_won() {
        stockade_escape_tests::skip("Landlock scopes abstract sockets from ABI 6 on; this kernel is older");
    }
}
