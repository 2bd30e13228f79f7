//! The caller's environment and arguments: not in the command's environment, not on its stack, not
//! anywhere in `/proc`.

use stockade_escape_tests::{Sandbox, reversed};

const MARK: &str = "walrus";

#[test]
fn environment() {
    let sandbox = Sandbox::new().caller_env("CALLER_SECRET", MARK).caller_env("AWS_SECRET_ACCESS_KEY", MARK);
    let mark = reversed(MARK);
    for attack in ["own-env", "own-auxv", "scan-proc"] {
        sandbox.bare(&format!("{attack} {mark}")).won();
        sandbox.attack(&format!("{attack} {mark}")).held();
    }
}

#[test]
fn arguments() {
    // Our own arguments name the workspace, the profile and the result file; a caller may have put more
    // there. None of it belongs to the command.
    let sandbox = Sandbox::new();
    // Whoever looks without walls sees them: of this one, which goes on.
    let running = sandbox.start_attack("hold walrus-arguments");
    running.wait_line("READY");
    for word in ["result.json", "--profile"] {
        sandbox.attack(&format!("scan-proc {}", reversed(word))).held();
        sandbox.bare(&format!("scan-proc {}", reversed(word))).won();
    }
}

#[test]
fn loader_variables_are_not_passed() {
    let sandbox = Sandbox::new()
        .caller_env("LD_PRELOAD", "/nonexistent/evil.so")
        .caller_env("BASH_ENV", "/nonexistent/evil")
        .caller_env("LD_LIBRARY_PATH", "/nonexistent");
    let shown = sandbox.run(&["env"]).stdout_text();
    for name in ["LD_PRELOAD", "BASH_ENV", "LD_LIBRARY_PATH", "XDG_CONFIG_HOME"] {
        assert!(!shown.contains(name), "{shown}");
    }
    // Without the wall a child inherits them all.
    let bare = sandbox.run_bare(&format!("own-env {}", reversed("/nonexistent/evil")));
    assert!(bare.stdout_text().contains("VERDICT won"), "{bare}");
}

#[test]
fn loader_variables_can_t_be_asked_for() {
    for name in ["LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "NODE_OPTIONS", "PYTHONSTARTUP"] {
        let sandbox = Sandbox::new().option("--env", &format!("{name}=/nonexistent/evil"));
        let ran = sandbox.run(&["env"]);
        assert!(!ran.stdout_text().contains(name), "{name}: {ran}");
    }
}
