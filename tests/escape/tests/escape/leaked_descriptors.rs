//! Descriptors that the caller left open without close-on-exec.

use stockade_escape_tests::{SECRET, Sandbox};

#[test]
fn a_file_on_odd_numbers() {
    let sandbox = Sandbox::new();
    let stage = format!("with-fds {} 3,7,33,255,700", sandbox.secret().display());
    let sandbox = sandbox.staged(&stage);
    for fd in [3, 7, 33, 255, 700] {
        let attack = format!("fd-read {fd}");
        assert_eq!(sandbox.bare(&attack).won(), SECRET);
        sandbox.attack(&attack).held();
        sandbox.attack(&format!("read /proc/self/fd/{fd}")).held();
    }
}

#[test]
fn a_directory() {
    let sandbox = Sandbox::new();
    let stage = format!("with-fds {} 9", sandbox.outside().display());
    let sandbox = sandbox.staged(&stage);
    assert_eq!(sandbox.bare("fd-read-at 9 secret").won(), SECRET);
    sandbox.attack("fd-read-at 9 secret").held();
    sandbox.attack("read /proc/self/fd/9/secret").held();
    sandbox.attack("read /proc/1/fd/9/secret").held();
}

#[test]
fn nothing_but_stdio_is_open() {
    let sandbox = Sandbox::new();
    let stage = format!("with-fds {} 7,33", sandbox.secret().display());
    let sandbox = sandbox.staged(&stage);
    sandbox.bare("fd-extra").won();
    sandbox.attack("fd-extra").held();
}

#[test]
fn host_mode_closes_them_too() {
    let sandbox = Sandbox::new();
    let stage = format!("with-fds {} 7,33", sandbox.secret().display());
    let sandbox = sandbox.staged(&stage);
    let attack = sandbox.workspace().join("attack").display().to_string();
    let workspace = sandbox.workspace().display().to_string();
    let ran =
        sandbox.cli(&["run", "--profile", "host", "--workspace", &workspace, "--", &attack, "fd-extra"]);
    assert!(ran.stdout_text().contains("VERDICT held"), "{ran}");
}
