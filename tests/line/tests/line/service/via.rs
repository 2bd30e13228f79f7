//! `stockade run --via`: the same words, codes and bytes as without a service.

use std::time::Duration;

use rustix::process::Signal;
use stockade_line_tests::{said_no, settle, unique_sleep};
use stockade_proto::{Cancel, Code, Outcome};

use super::Ground;

/// Every byte value, and no two places alike.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(length)
    .collect()
}

#[test]
fn codes_streams_and_the_result_are_those_of_a_local_run() {
    let ground = Ground::new();
    let script = "echo out; echo err >&2; exit 7";
    let ran = ground.sh(script).go().ends_with(7);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("out\n", "err\n"), "{ran}");
    let (result, local) = (ran.result(), ground.world.sh(script).go().result());
    assert_eq!(result.execution, ground.last(), "{ran}");
    assert_eq!((result.outcome, result.command), (local.outcome, local.command), "{ran}");
    assert_eq!((result.stdout, result.stderr), (local.stdout, local.stderr), "{ran}");
    assert_eq!(result.enforcement.len(), local.enforcement.len(), "{ran}");
    for (script, code) in [("true", 0), ("kill -TERM $$", 143), ("exit 255", 255)] {
        ground.sh(script).go().ends_with(code);
    }
    ground.world.line(&["/nowhere/program"]).flag("--via").go().ends_with(127);
    let late = ground.sh("sleep 100").timeout("300ms").profile("hasty").go().ends_with(124);
    assert!(late.err().contains("timed out after"), "{late}");
}

#[test]
fn the_words_of_the_command_line_arrive() {
    let ground = Ground::new();
    std::fs::create_dir(ground.world.work().join("sub")).expect("a directory");
    let line = ground
        .sh("pwd; echo $ONE $MINE")
        .option("--cwd", "sub")
        .option("--env", "ONE=1 =")
        .option("--env", "MINE")
        .caller_env("MINE", "copied");
    let ran = line.go().ends_with(0);
    assert_eq!(ran.out(), format!("{}\n1 = copied\n", ground.world.work().join("sub").display()), "{ran}");
    // A string for the shell, the current directory as the workspace, and files for the streams.
    let (out, err) = (ground.world.base().join("out"), ground.world.base().join("err"));
    let line = ground
        .world
        .line(&["pwd; echo x >&2 | cat"])
        .no_workspace()
        .flag("--shell")
        .option("--stdout", &out)
        .option("--stderr", &err)
        .option("--via", stockade_line_tests::Service::socket(&ground.world))
        .caller_env("STOCKADE_SOCKET", "/nowhere");
    let ran = line.go().ends_with(0);
    assert!(ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran}");
    assert_eq!(ground.world.read("out"), format!("{}\n", ground.world.work().display()));
    assert_eq!(ground.world.read("err"), "x\n");
    // A relative workspace is the caller's.
    let ran = ground.sh("pwd").workspace("sub").go().ends_with(0);
    assert_eq!(ran.out(), format!("{}\n", ground.world.work().join("sub").display()), "{ran}");
}

#[test]
fn much_output_is_byte_exact_on_both_streams() {
    let ground = Ground::new();
    let bytes = noise(9_000_000);
    ground.world.plant("work/noise", &bytes);
    let ran = ground.sh("cat noise & cat noise >&2; wait").go().ends_with(0);
    assert!(ran.stdout == bytes, "stdout differs: {} bytes", ran.stdout.len());
    assert!(ran.stderr == bytes, "stderr differs: {} bytes", ran.stderr.len());
    let again = ground.cli(&["logs", "--last", "--stream", "stdout"]).go().ends_with(0);
    assert!(again.stdout == bytes, "logs differ: {} bytes", again.stdout.len());
}

#[test]
fn stdin_is_closed_unless_asked_for_and_byte_exact_then() {
    let ground = Ground::new();
    let ran = ground.sh("cat; echo end").input("nobody reads this").go().ends_with(0);
    assert_eq!(ran.out(), "end\n", "{ran}");
    let bytes = noise(3_000_000);
    let ran = ground.sh("cat").flag("-i").input(bytes.clone()).go().ends_with(0);
    assert!(ran.stdout == bytes, "{} bytes came back", ran.stdout.len());
    // A command that does not want all of it.
    let ran = ground.sh("head -c 5").flag("-i").input(bytes).go().ends_with(0);
    assert_eq!(ran.stdout.len(), 5, "{ran}");
    // Line by line, and an answer to each.
    let mut running = ground.sh("while read word; do echo got $word; done").flag("-i").input_open().start();
    for word in ["one", "two"] {
        running.write(format!("{word}\n").as_bytes());
        running.wait_out(&format!("got {word}\n"));
    }
    running.close_stdin();
    running.finish().ends_with(0);
}

#[test]
fn output_is_shown_while_the_command_runs() {
    let ground = Ground::new();
    let mut running = ground.sh("printf 'prompt> '; read word; echo end").flag("-i").input_open().start();
    running.wait_out("prompt> ");
    running.write(b"x\n");
    running.finish().ends_with(0);
}

#[test]
fn a_signal_to_us_is_an_order_to_stop() {
    let ground = Ground::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let sleep = unique_sleep();
        let script = format!("trap 'echo asked; exit 9' TERM; echo ready; sleep {sleep} & wait");
        let running = ground.sh(&script).profile("patient").start();
        running.wait_out("ready\n");
        running.signal(signal);
        let ran = running.finish().ends_with(143);
        assert_eq!(ran.out(), "ready\nasked\n", "{ran}");
        assert_eq!(ran.result().outcome, Outcome::Cancelled { by: Cancel::Terminate }, "{ran}");
        assert!(settle(&sleep).is_empty());
    }
}

#[test]
fn a_second_signal_leaves_it_to_the_service() {
    let (ground, sleep) = (Ground::new(), unique_sleep());
    let script = format!("trap 'echo ignored' TERM; echo ready; sleep {sleep} & while :; do wait; done");
    let running = ground.sh(&script).profile("patient").start();
    running.wait_out("ready\n");
    running.signal(Signal::INT);
    running.wait_out("ignored\n");
    running.signal(Signal::INT);
    assert!(running.ends_within(Duration::from_secs(10)));
    let ran = running.finish().ends_with(121);
    assert_eq!(ran.fault().code, Code::ServiceLost, "{ran}");
    assert!(ran.err().contains(&format!("stockade show {}", ground.last())), "{ran}");
    assert_eq!(ground.listed(&[]).len(), 1, "the grace is long");
}

#[test]
fn the_death_of_its_parent_ends_it_unless_that_is_meant() {
    for orphan in [false, true] {
        let (ground, sleep) = (Ground::new(), unique_sleep());
        let mut line = ground.sh(&format!("echo ready; sleep {sleep}")).profile("hasty");
        if orphan {
            line = line.flag("--allow-orphan");
        }
        let running = line.before(&["/bin/sh", "-c", "\"$@\"; exit", "sh"]).start();
        running.wait_out("ready\n");
        let id = ground.last();
        running.signal(Signal::KILL);
        let waited = ground.cli(&["wait", &id, "--timeout", if orphan { "500ms" } else { "60s" }]).go();
        waited.ends_with(if orphan { 124 } else { 143 });
        ground.cli(&["stop", &id]).go().ends_with(0);
        ground.cli(&["wait", &id]).go().ends_with(143);
        assert!(settle(&sleep).is_empty());
        stockade_line_tests::kill_marked(&sleep);
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let (ground, marker) = (Ground::new(), stockade_line_tests::unique("marked-"));
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let script = format!("echo first; yes {marker}");
    let running = ground.sh(&script).profile("hasty").stdout_to(write).start();
    let mut first = [0; 6];
    rustix::io::read(&read, &mut first).expect("the first line");
    drop(read);
    let ran = running.finish().ends_with(143);
    assert!(ran.stderr.is_empty(), "{ran}");
    assert!(settle(&marker).is_empty());
}

#[test]
fn what_means_nothing_to_a_service_is_refused() {
    let ground = Ground::new();
    for (option, value) in
        [("--secret-env", "PATH"), ("--secret-file", "/x"), ("--publish", "80"), ("--events", "fd:2")]
    {
        let refusal = ground.sh("true").option(option, value).go().refused(Code::OptionInvalid);
        assert!(refusal.message.starts_with(option), "{refusal:?}");
    }
    for flag in ["--explain", "--dangerously-without-walls"] {
        ground.sh("true").flag(flag).go().refused(Code::OptionInvalid);
    }
    assert!(ground.listed(&["--all"]).is_empty());
}

#[test]
fn the_services_refusals_are_ours() {
    let ground = Ground::new();
    ground.sh("true").profile("no-such").go().refused(Code::ProfileUnknown);
    ground.sh("true").workspace("/usr").go().refused(Code::WorkspaceNotAllowed);
    ground.sh("true").workspace(ground.world.work().join("nowhere")).go().refused(Code::WorkspaceMissing);
    ground.sh("true").option("--env", "LD_PRELOAD=x").go().refused(Code::EnvironmentRefused);
    ground.world.line::<&str>(&[]).flag("--via").go().refused(Code::CommandEmpty);
    let ran = ground.sh("true").no_json().profile("no-such").go().ends_with(125);
    said_no(&ran, "SK-R020");
}

#[test]
fn what_was_blocked_is_told_with_what_would_allow_it() {
    let ground = Ground::new();
    let script = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0nobody\")'";
    if !stockade_line_tests::have(&["python3"]) {
        return;
    }
    let ran = ground.sh(script).go().ends_with(1);
    assert!(ran.err().contains("blocked connect @nobody") && ran.err().contains("to allow it"), "{ran}");
    let shown = ground.cli(&["show", "--last"]).go().ends_with(0);
    assert!(shown.out().contains("blocked     connect @nobody"), "{shown}");
    let events = ground.cli(&["logs", "--last", "--stream", "event"]).go().ends_with(0);
    let event: serde_json::Value =
        serde_json::from_str(events.out().lines().next().expect("an event")).expect("JSON");
    assert_eq!(event["type"], "unix_socket_op", "{events}");
}

#[test]
fn twenty_at_once_keep_their_own() {
    let ground = Ground::new();
    let running: Vec<_> = (0..20)
        .map(|number| {
            ground
                .sh(&format!("echo {number}; cat; exit {number}"))
                .flag("-i")
                .input(format!("in {number}"))
                .start()
        })
        .collect();
    for (number, running) in (0..).zip(running) {
        let ran = running.finish().ends_with(number);
        assert_eq!(ran.out(), format!("{number}\nin {number}"), "{ran}");
    }
    assert!(ground.listed(&[]).is_empty());
}
