//! The in-sandbox PID 1: visible, but nothing of the caller may be read from it, and it can't be traced
//! or killed.

use stockade_escape_tests::{Sandbox, Victim, reversed, stockade_program, wall};
use stockade_proto::Outcome;

#[test]
fn it_can_t_be_looked_into() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    // Without the wall: a process of the same user is an open book.
    let open = sandbox.bare(&format!("init-secrets {}", victim.pid())).won();
    assert!(open.contains("environ") && open.contains("mem"), "{open}");
    sandbox.attack("init-secrets 1").held();
}

#[test]
fn its_environment_and_arguments_hold_nothing() {
    // A word of this test's own: others run beside it, and their arguments are on the host's `/proc` too.
    let secret = format!("narwhal{}", std::process::id());
    let sandbox = Sandbox::new().caller_env("CALLER_SECRET", &secret);
    let bare = sandbox.bare(&format!("scan-proc {}", reversed(&secret))).won();
    assert!(bare.contains("environ"), "{bare}");
    sandbox.attack(&format!("scan-proc {}", reversed(&secret))).held();
    let environ = sandbox.run(&["cat", "/proc/1/environ"]);
    assert!(environ.stdout.is_empty(), "{environ}");
}

#[test]
fn its_command_line_tells_no_host_path() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["cat", "/proc/1/cmdline"]);
    assert_eq!(ran.stdout_text(), "stockade-init\0", "its name and nothing else");
}

#[test]
fn it_can_t_be_killed_from_inside() {
    let sandbox = Sandbox::new();
    for signal in [9, 15, 19, 2, 1, 11, 6] {
        let ran = sandbox.run_attack(&format!("try kill 1 {signal} , read ./attack"));
        let result = ran.result();
        assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "signal {signal}: {ran}");
    }
}

#[test]
fn memory_and_descriptors_by_system_call() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    for (attack, words) in [
        ("trace", String::new()),
        ("seize", String::new()),
        ("kcmp", String::new()),
        ("pidfd-getfd", format!(" {}", victim.fd)),
    ] {
        sandbox.bare(&format!("{attack} {}{words}", victim.pid())).won();
        sandbox.attack(&format!("{attack} 1{}", if words.is_empty() { "" } else { " 0" })).held();
    }
    for fd in 0..8 {
        sandbox.attack(&format!("pidfd-getfd 1 {fd}")).held();
    }
}

#[test]
fn its_limits_can_t_be_changed() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    sandbox.bare(&format!("prlimit {}", victim.pid())).won();
    sandbox.attack("prlimit 1").held();
    wall(&sandbox, &format!("prlimit {}", victim.pid()));
}

#[test]
fn its_program_can_t_be_overwritten() {
    // A process that runs a host binary inside a container once let the container replace that binary.
    let init = stockade_program().with_file_name("stockade-init");
    let before = std::fs::read(&init).expect("stockade-init is beside stockade");
    let sandbox = Sandbox::new();
    for path in ["/proc/1/exe", "/proc/1/map_files", "/proc/1/root/proc/1/exe"] {
        sandbox.attack(&format!("open-write {path}")).held();
        sandbox.attack(&format!("write {path}")).held();
        sandbox.attack(&format!("read {path}")).held();
    }
    assert!(std::fs::read(&init).expect("stockade-init") == before);
    let victim = Victim::start(&sandbox);
    sandbox.bare(&format!("read /proc/{}/exe", victim.pid())).won();
}
