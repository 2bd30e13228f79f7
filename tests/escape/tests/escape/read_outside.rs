//! Reading a file outside the workspace, by its name, by `..`, by a directory descriptor.

use stockade_escape_tests::{SECRET, Sandbox, wall, wall_of};
use stockade_proto::Layer;

#[test]
fn absolute_path() {
    let sandbox = Sandbox::new();
    wall(&sandbox, &format!("read {}", sandbox.secret().display()));
}

#[test]
fn dot_dot() {
    wall(&Sandbox::new(), "read ../outside/secret");
}

#[test]
fn dot_dot_past_the_root() {
    let sandbox = Sandbox::new();
    let below_root = sandbox.secret().display().to_string();
    wall(&sandbox, &format!("climb , read {}", below_root.trim_start_matches('/')));
}

#[test]
fn directory_descriptor() {
    wall(&Sandbox::new(), "open-dir . , read-at ../outside/secret");
}

#[test]
fn listing_and_stat() {
    let sandbox = Sandbox::new();
    wall(&sandbox, &format!("list {}", sandbox.outside().display()));
    wall(&sandbox, &format!("stat {}", sandbox.secret().display()));
}

#[test]
fn mounts_and_landlock_are_what_stops_it() {
    wall_of(&[Layer::Filesystem, Layer::Landlock], Sandbox::new, |sandbox| {
        format!("read {}", sandbox.secret().display())
    });
}

#[test]
fn mounts_alone_stop_it() {
    let sandbox = Sandbox::new().without(&[Layer::Landlock]);
    sandbox.attack(&format!("read {}", sandbox.secret().display())).held();
    sandbox.attack("read ../outside/secret").held();
}

#[test]
fn a_readable_path_is_readable_and_nothing_beside_it() {
    let sandbox = Sandbox::new();
    let shown = sandbox.plant("shown/file", SECRET);
    let sandbox = sandbox.profile_with(|base| format!("readable = [\"{}\"]", base.join("shown").display()));
    assert_eq!(sandbox.attack(&format!("read {}", shown.display())).won(), SECRET);
    sandbox.attack(&format!("read {}", sandbox.secret().display())).held();
    sandbox.attack(&format!("write {}", shown.display())).held();
}
