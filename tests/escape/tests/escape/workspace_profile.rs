//! A profile inside the workspace can narrow the walls and never widen them.

use stockade_escape_tests::{Ran, Sandbox};
use stockade_proto::exit;

/// The same name as the user's own profile.
fn plant(sandbox: &Sandbox, body: &str) {
    sandbox.plant("work/.stockade/escape.toml", body);
}

#[track_caller]
fn refused(ran: &Ran, what: &str) {
    assert_eq!(ran.code(), i32::from(exit::REFUSED), "{what}: {ran}");
    assert!(!ran.stdout_text().contains("VERDICT"), "{what} ran: {ran}");
}

#[test]
fn widening_is_refused() {
    for body in [
        "mode = \"host\"",
        "fs = \"inherit\"",
        "network = \"inherit\"",
        "readable = [\"/\"]",
        "writable = [\"/etc\"]",
        "[layers]\nseccomp = \"off\"",
        "[layers]\nlandlock = \"prefer\"",
        "[layers]\nfilesystem = \"off\"",
        "[limits]\nmemory = \"64G\"",
        "[limits]\nmemory = \"none\"",
        "[limits]\nprocesses = 100000",
        "[env]\nallow = [\"CALLER_SECRET\"]",
        "extends = \"host\"",
    ] {
        let sandbox = Sandbox::new().caller_env("CALLER_SECRET", "walrus");
        plant(&sandbox, body);
        refused(&sandbox.run_attack("caps"), body);
    }
}

#[test]
fn deny_lists_only_grow() {
    let sandbox = Sandbox::new();
    sandbox.plant("work/.env", "walrus");
    plant(&sandbox, "deny = []\ndeny-write = []");
    let ran = sandbox.run_attack("read ./.env");
    assert!(!ran.stdout_text().contains("walrus"), "{ran}");
    let ran = sandbox.run_attack("create ./.stockade/evil.toml");
    assert!(!sandbox.workspace().join(".stockade/evil.toml").exists(), "{ran}");
}

#[test]
fn narrowing_is_obeyed() {
    let sandbox = Sandbox::new();
    sandbox.attack("create ./before").won();
    plant(&sandbox, "fs = \"workspace-readonly\"\n[limits]\nprocesses = 16");
    sandbox.attack("create ./after").held();
    let ran = sandbox.run_attack("forks 64");
    assert!(ran.stdout_text().contains("VERDICT held"), "{ran}");
}

#[test]
fn a_name_of_its_own_is_no_wider() {
    let sandbox = Sandbox::new();
    sandbox.plant("work/.stockade/free.toml", "mode = \"host\"\n");
    let workspace = sandbox.workspace().display().to_string();
    let attack = sandbox.workspace().join("attack").display().to_string();
    let ran = sandbox.cli(&["run", "--profile", "free", "--workspace", &workspace, "--", &attack, "caps"]);
    refused(&ran, "a host profile of the workspace's own");
}

#[test]
fn a_profile_that_is_a_symlink_out() {
    // Parsed or refused, the text of a file outside must not be shown to whoever reads the error.
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join(".stockade")).expect("the directory");
    let link = sandbox.workspace().join(".stockade/escape.toml");
    std::os::unix::fs::symlink(sandbox.secret(), link).expect("a symlink");
    let ran = sandbox.run_attack("caps");
    assert!(!ran.stdout_text().contains("VERDICT won"), "{ran}");
}
