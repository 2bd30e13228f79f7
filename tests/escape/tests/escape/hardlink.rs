//! A hard link to an outside file: the path in the workspace would be clean, the file would not.

use stockade_escape_tests::{SECRET, Sandbox, wall, wall_of};
use stockade_proto::Layer;

#[test]
fn link_and_read() {
    let sandbox = Sandbox::new();
    wall(&sandbox, &format!("try unlink ./l , link {} ./l , read ./l", sandbox.secret().display()));
}

#[test]
fn link_by_descriptor() {
    let sandbox = Sandbox::new();
    wall(&sandbox, &format!("try unlink ./l , link-fd {} ./l , read ./l", sandbox.secret().display()));
}

#[test]
fn from_a_readable_path_into_the_workspace() {
    // Visible read-only; a link inside the writable mount would make it writable.
    let sandbox = Sandbox::new();
    let shown = sandbox.plant("shown/file", SECRET);
    let sandbox = sandbox.profile_with(|base| format!("readable = [\"{}\"]", base.join("shown").display()));
    wall(&sandbox, &format!("try unlink ./l , link {} ./l", shown.display()));
    sandbox.attack(&format!("link-fd {} ./m", shown.display())).held();
}

#[test]
fn mounts_and_landlock_are_what_stops_it() {
    wall_of(
        &[Layer::Filesystem, Layer::Landlock],
        || Sandbox::new().given_away(),
        |sandbox| format!("link {} ./l , read ./l", sandbox.secret().display()),
    );
}
