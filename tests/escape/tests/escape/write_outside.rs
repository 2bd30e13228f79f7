//! Writing, creating and removing outside the workspace.

use stockade_escape_tests::{SECRET, Sandbox, wall, wall_of};
use stockade_proto::Layer;

/// The attack works on the host; in the sandbox it fails, and the host's file is what it was.
#[track_caller]
fn held_and_unchanged(attack: &str) {
    let steps = |sandbox: &Sandbox| attack.replace("OUT", &sandbox.outside().display().to_string());
    let open = Sandbox::new();
    open.bare(&steps(&open)).won();
    let closed = Sandbox::new();
    closed.attack(&steps(&closed)).held();
    assert_eq!(std::fs::read_to_string(closed.secret()).expect("the secret"), SECRET);
    let names: Vec<_> = std::fs::read_dir(closed.outside()).expect("outside").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn append() {
    held_and_unchanged("write OUT/secret");
}

#[test]
fn truncate() {
    held_and_unchanged("truncate OUT/secret");
}

#[test]
fn create() {
    held_and_unchanged("create OUT/new");
}

#[test]
fn unlink() {
    held_and_unchanged("unlink OUT/secret");
}

#[test]
fn mkdir() {
    held_and_unchanged("mkdir OUT/new");
}

#[test]
fn shared_mapping() {
    held_and_unchanged("mmap-write OUT/secret");
}

#[test]
fn the_workspace_itself_can_t_be_removed_or_moved() {
    let sandbox = Sandbox::new();
    sandbox
        .attack(&format!("rename {} {}/moved", sandbox.workspace().display(), sandbox.base().display()))
        .held();
    assert!(sandbox.workspace().exists());
}

#[test]
fn read_only_reopened_for_writing() {
    let sandbox = Sandbox::new();
    let shown = sandbox.plant("shown/file", SECRET);
    let sandbox = sandbox.profile_with(|base| format!("readable = [\"{}\"]", base.join("shown").display()));
    let attack = format!("reopen-write {}", shown.display());
    sandbox.attack(&attack).held();
    assert_eq!(std::fs::read_to_string(&shown).expect("the file"), SECRET);
    sandbox.bare(&attack).won();
}

#[test]
fn a_read_only_workspace_is_read_only() {
    let sandbox = Sandbox::new();
    let file = sandbox.plant("work/file", SECRET);
    let sandbox = sandbox.profile("fs = \"workspace-readonly\"");
    wall(&sandbox, "create ./new-file");
    std::fs::remove_file(sandbox.workspace().join("new-file")).expect("the bare half made it");
    sandbox.attack("write ./file").held();
    sandbox.attack("unlink ./file").held();
    sandbox.attack("chmod ./file 600").held();
    sandbox.attack("utimes ./file").held();
    assert_eq!(std::fs::read_to_string(file).expect("the file"), SECRET);
}

#[test]
fn mounts_and_landlock_are_what_stops_it() {
    wall_of(&[Layer::Filesystem, Layer::Landlock], Sandbox::new, |sandbox| {
        format!("write {}", sandbox.secret().display())
    });
}
