//! `stockade` is started in a directory outside the workspace: it must not become a door.

use stockade_escape_tests::{SECRET, Sandbox};

#[test]
fn relative_paths_start_in_the_sandbox() {
    let sandbox = Sandbox::new();
    let sandbox = sandbox.from_directory(std::path::Path::new("/"));
    sandbox.attack("read ./etc/hostname").held();
}

#[test]
fn the_callers_directory_is_not_the_commands() {
    let sandbox = Sandbox::new();
    let outside = sandbox.outside();
    let sandbox = sandbox.from_directory(&outside);
    for attack in [
        "read ./secret",
        "read /proc/self/cwd/secret",
        "read /proc/1/cwd/secret",
        "open-dir . , read-at secret",
    ] {
        let ran = sandbox.run_attack(attack);
        // Refusing to start there at all is an answer too.
        assert!(!ran.stdout_text().contains(SECRET), "{attack}: {ran}");
        assert!(!ran.stdout_text().contains("VERDICT won"), "{attack}: {ran}");
    }
    // Without walls a relative path starts where the caller is.
    let open = Sandbox::new();
    assert_eq!(open.bare(&format!("chdir {} , read ./secret", open.outside().display())).won(), SECRET);
}
