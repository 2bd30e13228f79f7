//! RUN-1, RUN-8: `--json` writes one object where it is told to, for results, refusals and faults.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;

use serde_json::Value;
use stockade_line_tests::World;
use stockade_proto::{Code, Layer, Outcome, State};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default()
}

#[test]
fn every_field_is_there_and_true() {
    let world = World::new();
    let ran = world.sh("printf abc; printf de >&2; exit 7").go().ends_with(7);
    let value = ran.value();
    let mut names = keys(&value);
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "blocked",
            "cleanup_faults",
            "command",
            "enforcement",
            "execution",
            "exit_code",
            "leaked_descendants",
            "limits_hit",
            "outcome",
            "profile",
            "published",
            "stderr",
            "stdout",
            "traffic",
            "truncated",
            "unreached",
            "usage",
        ]
    );
    let result = ran.result();
    assert!(result.execution.len() > 20, "{ran}");
    assert_eq!(result.profile, "default");
    assert_eq!(value["command"], serde_json::json!(["sh", "-c", "printf abc; printf de >&2; exit 7"]));
    assert_eq!(value["outcome"], serde_json::json!({"kind": "exited", "code": 7}));
    assert_eq!(result.outcome, Outcome::Exited { code: 7 });
    assert_eq!(result.exit_code, 7);
    assert_eq!(value["stdout"], serde_json::json!({"bytes": 3, "dropped": 0, "redactions": 0}));
    assert_eq!(value["stderr"], serde_json::json!({"bytes": 2, "dropped": 0, "redactions": 0}));
    assert_eq!(keys(&value["usage"]).len(), 4, "{ran}");
    assert!(!result.truncated && result.leaked_descendants == 0, "{ran}");
    assert!(result.limits_hit.is_empty() && result.cleanup_faults.is_empty(), "{ran}");
    let layers: Vec<Layer> = result.enforcement.iter().map(|one| one.layer).collect();
    assert_eq!(layers, Layer::ALL);
    for one in &result.enforcement {
        assert_eq!(one.state, State::Enforced, "{one:?}");
        assert!(!one.detail.is_empty(), "{one:?}");
    }
    // One line, one object.
    let text = ran.json.as_deref().unwrap_or_default();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(text.last(), Some(&b'\n'));
}

#[test]
fn executions_have_names_of_their_own_that_sort_by_time() {
    let world = World::new();
    let names: Vec<String> =
        (0..3).map(|_| world.line(&["true"]).go().ends_with(0).result().execution).collect();
    assert!(names.is_sorted() && names[0] != names[1] && names[1] != names[2], "{names:?}");
}

#[test]
fn to_an_open_descriptor() {
    let world = World::new();
    let file = world.base().join("three");
    let ran = world
        .sh("echo mine; ls /proc/self/fd; echo also mine >&3")
        .no_json()
        .option("--json", "fd:3")
        .before(&["/bin/sh", "-c", "f=$1; shift; exec \"$@\" 3>>\"$f\"", "sh", &file.display().to_string()])
        .go();
    assert!(ran.out().starts_with("mine\n"), "{ran}");
    // ls has 0, 1, 2 and the directory it reads; descriptor 3 is the directory, not the caller's.
    assert_eq!(ran.out().lines().skip(1).collect::<Vec<_>>(), ["0", "1", "2", "3"], "{ran}");
    let value: Value = serde_json::from_str(&world.read("three")).expect("one object and nothing else");
    assert_eq!(value["outcome"]["kind"], "exited");
    assert_ne!(value["exit_code"], 0, "the command could write to descriptor 3: {ran}");
}

#[test]
fn to_a_pipe_and_to_a_socket() {
    let world = World::new();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    // The pipe is stdin of the shell, which makes it descriptor 3.
    world
        .line(&["true"])
        .no_json()
        .option("--json", "fd:3")
        .before(&["/bin/sh", "-c", "exec \"$@\" 3>&0 0</dev/null", "sh"])
        .input_from(writer)
        .go()
        .ends_with(0);
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).expect("the pipe");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("one object")["exit_code"], 0);

    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
    world
        .line(&["true"])
        .no_json()
        .option("--json", "fd:3")
        .before(&["/bin/sh", "-c", "exec \"$@\" 3>&0 0</dev/null", "sh"])
        .input_from(theirs)
        .go()
        .ends_with(0);
    let mut text = String::new();
    ours.read_to_string(&mut text).expect("the socket");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("one object")["exit_code"], 0);
}

#[test]
fn a_target_that_can_t_be_written_is_refused_before_anything_runs() {
    let world = World::new();
    for target in ["fd:77", "fd:x", "fd:-1", "fd:", "/no/such/directory/file", "/proc/self/nothing", ""] {
        let ran = world.line(&["touch", "ran"]).no_json().option("--json", target).go().ends_with(125);
        assert!(ran.err().contains("SK-R041"), "{target}: {ran}");
        assert!(!ran.err().contains("panicked"), "{target}: {ran}");
        assert!(!world.work().join("ran").exists(), "{target}: it ran");
    }
}

#[test]
fn a_report_that_can_t_be_written_later_is_a_fault() {
    let world = World::new();
    if !std::path::Path::new("/dev/full").exists() {
        return stockade_line_tests::skip("no /dev/full");
    }
    let ran = world.sh("echo out").no_json().option("--json", "/dev/full").go().ends_with(122);
    assert_eq!(ran.out(), "out\n", "{ran}");
    stockade_line_tests::said_no(&ran, "SK-F005");
}

#[test]
fn a_refusal_is_json_too() {
    let world = World::new();
    let ran = world.line(&["true"]).profile("no-such-profile").go();
    ran.refused(Code::ProfileUnknown);
    let value = ran.value();
    assert_eq!(keys(&value), ["refusal"]);
    let mut names = keys(&value["refusal"]);
    names.sort_unstable();
    assert_eq!(names, ["code", "message", "origin", "remedy"]);
    assert_eq!(value["refusal"]["code"], "SK-R020");
}

#[test]
fn bytes_that_are_no_text_are_hex() {
    let world = World::new();
    let odd = OsString::from_vec(vec![b'a', 0xff, b'b']);
    let ran = world.line(&[OsString::from("printf"), OsString::from("%s"), odd]).go().ends_with(0);
    assert_eq!(ran.stdout, [b'a', 0xff, b'b'], "{ran}");
    assert_eq!(ran.value()["command"], serde_json::json!(["printf", "%s", {"hex": "61ff62"}]));
    assert_eq!(ran.result().command[2].as_slice(), [b'a', 0xff, b'b']);
}

#[test]
fn the_result_replaces_an_older_one() {
    let world = World::new();
    let file = world.plant("result", "x".repeat(100_000));
    world.line(&["true"]).no_json().option("--json", &file).go().ends_with(0);
    let value: Value = serde_json::from_str(&world.read("result")).expect("one object and nothing else");
    assert_eq!(value["exit_code"], 0);
}
