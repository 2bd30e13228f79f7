//! Opening files by handle: no path is walked, so no mount and no Landlock rule is asked.

use stockade_escape_tests::{Sandbox, wall};

#[test]
fn of_a_file() {
    let sandbox = Sandbox::new();
    wall(&sandbox, &format!("handle {}", sandbox.workspace().join("attack").display()));
}

#[test]
fn of_the_filesystems_root() {
    let sandbox = Sandbox::new();
    let attack = format!("handle-root {}", sandbox.workspace().display());
    let bare = sandbox.bare(&attack);
    if !bare.is_won() {
        stockade_escape_tests::skip(&format!("no ext4 below the workspace, or not root: {bare:?}"));
    }
    sandbox.attack(&attack).held();
    sandbox.attack("handle-root /usr").held();
    sandbox.attack("try become-root , handle-root .").held();
}
