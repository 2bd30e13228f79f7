//! RUN-1, RUN-8: the command's own code and signal come through; ours are told apart from them.

use stockade_line_tests::World;
use stockade_proto::{Outcome, exit};

#[test]
fn the_commands_code_is_ours() {
    let world = World::new();
    for code in [0, 1, 2, 3, 42, 64, 100, 121, 122, 123, 124, 125, 126, 127, 128, 130, 137, 143, 254, 255] {
        let ran = world.sh(&format!("exit {code}")).go().ends_with(i32::from(code));
        let result = ran.result();
        assert_eq!(result.outcome, Outcome::Exited { code }, "{ran}");
        assert_eq!(result.exit_code, code, "{ran}");
        assert_eq!(ran.err(), "", "a command that ends by itself needs no comment: {ran}");
    }
}

#[test]
fn a_signal_is_128_and_its_number() {
    let world = World::new();
    for signal in [1u8, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 34, 64] {
        let ran = world.sh(&format!("kill -{signal} $$")).go().ends_with(128 + i32::from(signal));
        assert_eq!(ran.result().outcome, Outcome::Signaled { signal }, "{ran}");
    }
}

#[test]
fn sigxcpu_from_anybody_is_not_the_cpu_limit() {
    // The kernel counts CPU time: a signal that a command sends to itself is no limit that was hit.
    let world = World::new();
    let ran = world.sh("kill -XCPU $$").go();
    assert_eq!(ran.result().outcome, Outcome::Signaled { signal: 24 }, "{ran}");
    assert_eq!(ran.code(), 128 + 24, "{ran}");
}

#[test]
fn a_shells_child_that_dies_is_the_shells_to_tell() {
    let world = World::new();
    let ran = world.sh("sh -c 'kill -9 $$'; echo $?").go().ends_with(0);
    assert_eq!(ran.out(), "137\n", "{ran}");
}

#[test]
fn not_found_is_127() {
    let world = World::new();
    let ran = world.line(&["no-such-program-anywhere"]).go().ends_with(i32::from(exit::NOT_FOUND));
    assert!(ran.err().contains("no-such-program-anywhere: command not found on the sandbox's PATH"), "{ran}");
    let Outcome::LaunchFailed { stage, errno, message } = ran.result().outcome else { panic!("{ran}") };
    assert_eq!((stage.as_str(), errno), ("exec", 2));
    assert!(ran.err().contains(&message), "{ran}");
    for path in ["./nothing", "/no/such/file"] {
        let ran = world.line(&[path]).go().ends_with(127);
        assert!(ran.err().contains(&format!("{path}: no such file inside the sandbox")), "{ran}");
    }
}

#[test]
fn a_missing_interpreter_is_127_and_says_so() {
    let world = World::new();
    world.executable("work/odd", "#!/no/such/interpreter\n");
    let ran = world.line(&["./odd"]).go().ends_with(127);
    assert!(ran.err().contains("interpreter"), "{ran}");
}

#[test]
fn not_executable_is_126() {
    let world = World::new();
    world.plant("work/plain", "#!/bin/sh\necho no\n");
    let ran = world.line(&["./plain"]).go().ends_with(i32::from(exit::NOT_EXECUTABLE));
    assert!(ran.err().contains("./plain: not an executable file"), "{ran}");
    assert!(ran.stdout.is_empty(), "{ran}");
}

#[test]
fn an_option_that_does_not_exist_is_a_refusal() {
    let world = World::new();
    for words in [&["run", "--no-such-option", "--", "true"][..], &["no-such-verb"], &["run", "true"], &[""]]
    {
        let ran = world.cli(words).go().ends_with(i32::from(exit::REFUSED));
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{ran}");
    }
    for words in [&["--help"][..], &["run", "--help"], &["--version"], &["codes"]] {
        let ran = world.cli(words).go().ends_with(0);
        assert!(!ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran}");
    }
}

#[test]
fn the_table_of_codes_is_printed() {
    let world = World::new();
    let ran = world.cli(&["codes"]).go().ends_with(0);
    for row in stockade_proto::Code::TABLE {
        let line = ran.out().lines().find(|line| line.starts_with(row.id)).map(str::to_owned);
        let line = line.unwrap_or_else(|| panic!("no {}: {ran}", row.id));
        assert!(line.contains(row.meaning) && line.contains(&row.exit.to_string()), "{line}");
    }
}
