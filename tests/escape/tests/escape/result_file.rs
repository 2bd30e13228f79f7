//! `--json FILE` names a path that an agent may have prepared: the caller's own `stockade` writes there.

use std::time::Duration;

use stockade_escape_tests::{SECRET, Sandbox, scaled};

fn run(sandbox: &Sandbox, command: &[&str]) -> stockade_escape_tests::Running {
    let workspace = sandbox.workspace().display().to_string();
    let mut words = vec!["run", "--workspace", &workspace, "--json", "./out.json", "--"];
    words.extend(command);
    sandbox.start_cli(&words)
}

#[test]
fn a_symlink_that_an_agent_left() {
    let sandbox = Sandbox::new();
    sandbox.attack(&format!("symlink {} ./out.json", sandbox.secret().display())).won();
    let ran = run(&sandbox, &["true"]).finish();
    let now = std::fs::read_to_string(sandbox.secret()).expect("the secret");
    assert_eq!(now, SECRET, "stockade wrote through the agent's symlink: {ran}");
    // Without care a program follows it.
    std::fs::write(sandbox.workspace().join("out.json"), "through").expect("a write that follows");
    assert_eq!(std::fs::read_to_string(sandbox.secret()).expect("the secret"), "through");
}

#[test]
fn a_symlink_that_is_made_meanwhile() {
    let sandbox = Sandbox::new();
    let script = format!("rm -f out.json; ln -s {} out.json", sandbox.secret().display());
    let ran = run(&sandbox, &["sh", "-c", &script]).finish();
    let now = std::fs::read_to_string(sandbox.secret()).expect("the secret");
    assert_eq!(now, SECRET, "stockade wrote through the agent's symlink: {ran}");
}

#[test]
fn a_fifo_does_not_hang_the_caller() {
    let sandbox = Sandbox::new();
    let made = std::process::Command::new("mkfifo").arg(sandbox.workspace().join("out.json")).status();
    assert!(made.expect("mkfifo runs").success());
    let running = run(&sandbox, &["true"]);
    // A refusal or a fault is as good as a result; waiting for a reader is not.
    assert!(
        running.ends_within(scaled(Duration::from_secs(10))),
        "still waiting for somebody to read the FIFO"
    );
}
