//! System V and POSIX objects of the host.

use stockade_escape_tests::{Sandbox, wall_of};
use stockade_proto::Layer;

#[test]
fn shared_memory() {
    let key = 0x5713_0000_i64 + i64::from(std::process::id() & 0xffff);
    let sandbox = Sandbox::new().staged(&format!("with-shm {key} walrus"));
    assert_eq!(sandbox.bare(&format!("shm-read {key}")).won(), "walrus");
    sandbox.attack(&format!("shm-read {key}")).held();
}

#[test]
fn the_namespace_is_what_stops_it() {
    let key = 0x5714_0000_i64 + i64::from(std::process::id() & 0xffff);
    let make = || Sandbox::new().given_away().staged(&format!("with-shm {key} walrus"));
    wall_of(&[Layer::Process], make, |_| format!("shm-read {key}"));
}

#[test]
fn posix_shared_memory() {
    let name = format!("stockade-escape-{}", std::process::id());
    let path = std::path::Path::new("/dev/shm").join(&name);
    if std::fs::write(&path, "walrus").is_err() {
        return stockade_escape_tests::skip("no /dev/shm on this host");
    }
    let sandbox = Sandbox::new();
    let bare = sandbox.bare(&format!("read /dev/shm/{name}"));
    let inside = sandbox.attack(&format!("read /dev/shm/{name}"));
    std::fs::remove_file(&path).expect("our own file");
    bare.won();
    inside.held();
}
