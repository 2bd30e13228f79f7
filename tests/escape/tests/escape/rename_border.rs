//! Moving files across the border of the workspace, either way.

use stockade_escape_tests::{SECRET, Sandbox, wall};

#[test]
fn out_of_the_workspace() {
    let sandbox = Sandbox::new();
    sandbox.plant("work/loot", "mine");
    sandbox.attack(&format!("rename ./loot {}/loot", sandbox.outside().display())).held();
    assert!(!sandbox.outside().join("loot").exists());
    sandbox.bare(&format!("rename ./loot {}/loot", sandbox.outside().display())).won();
}

#[test]
fn into_the_workspace() {
    let sandbox = Sandbox::new();
    let attack = format!("rename {} ./secret", sandbox.secret().display());
    sandbox.attack(&attack).held();
    assert_eq!(std::fs::read_to_string(sandbox.secret()).expect("the secret"), SECRET);
    sandbox.bare(&attack).won();
}

#[test]
fn exchange() {
    let sandbox = Sandbox::new();
    sandbox.plant("work/mine", "mine");
    wall(&sandbox, &format!("exchange ./mine {}", sandbox.secret().display()));
}

#[test]
fn from_a_writable_extra_path() {
    // Both ends are writable, but they are two mounts: a rename would carry a file past the rules of one.
    let sandbox = Sandbox::new();
    sandbox.plant("extra/file", "x");
    let sandbox = sandbox.profile_with(|base| format!("writable = [\"{}\"]", base.join("extra").display()));
    let extra = sandbox.base().join("extra");
    sandbox.attack(&format!("create {}/new", extra.display())).won();
    assert!(extra.join("new").exists());
    sandbox.attack(&format!("create {}/new", sandbox.outside().display())).held();
}
