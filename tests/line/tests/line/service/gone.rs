//! A service that goes away: its callers are told, soon, and hear what became of it when it is back. STAGE-6.

use std::time::Duration;

use stockade_line_tests::{Service, await_process, said_no, settle, unique_sleep, until};
use stockade_proto::Code;

use super::Ground;

#[test]
fn a_run_whose_service_is_gone_is_lost() {
    let (mut ground, sleep) = (Ground::new(), unique_sleep());
    let running = ground.sh(&format!("echo begun; sleep {sleep}")).start();
    running.wait_out("begun\n");
    await_process(&format!("sleep {sleep}"));
    let id = ground.last();
    let waiter = ground.cli(&["wait", &id]).start();
    until("the waiter's connection", || (waiter.sockets() > 0).then_some(()));
    let follower = ground.cli(&["logs", "-f", &id]).start();
    follower.wait_out("begun\n");
    ground.service.take().expect("it is there").kill();
    assert!(running.ends_within(Duration::from_secs(30)), "it waits for nobody");
    let ran = running.finish().ends_with(121);
    assert_eq!(ran.fault().code, Code::ServiceLost, "{ran}");
    said_no(&ran, "SK-F021");
    for other in [follower, waiter] {
        said_no(&other.finish().ends_with(121), "SK-F021");
    }
    assert!(settle(&sleep).is_empty(), "the executor ends with its daemon");

    ground.service = Some(Service::start_again(&ground.world));
    let shown = ground.cli(&["show", &id]).go().ends_with(0);
    assert!(shown.out().contains("code        UZ-EXEC-003, executor_crash\n"), "{shown}");
    let waited = ground.cli(&["wait", &id]).go().ends_with(121);
    assert!(waited.err().contains("UZ-EXEC-003"), "{waited}");
    assert_eq!(ground.cli(&["logs", &id]).go().ends_with(0).out(), "begun\n");
}

#[test]
fn a_run_hears_from_the_next_service_what_became_of_it() {
    let (mut ground, sleep) = (Ground::new(), unique_sleep());
    let running = ground.sh(&format!("echo begun; sleep {sleep}")).start();
    running.wait_out("begun\n");
    ground.service.take().expect("it is there").kill();
    ground.service = Some(Service::start_again(&ground.world));
    let ran = running.finish().ends_with(121);
    assert!(ran.err().contains("UZ-EXEC-003"), "{ran}");
    assert_eq!(ran.out(), "begun\n", "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn what_was_recorded_is_read_after_a_restart() {
    let mut ground = Ground::new();
    ground.sh("echo kept; exit 5").go().ends_with(5);
    let id = ground.last();
    drop(ground.service.take());
    ground.service = Some(Service::start_again(&ground.world));
    ground.cli(&["wait", &id]).go().ends_with(5);
    assert_eq!(ground.cli(&["logs", "-f", &id]).go().ends_with(0).out(), "kept\n");
}

#[test]
fn the_audit_log_of_a_service_verifies_and_names_who_asked() {
    let mut ground = Ground::new();
    ground.sh("true").go().ends_with(0);
    let id = ground.last();
    let state = ground.world.base().join("state");
    // Beside a running service.
    ground.cli(&["audit", "verify"]).option("--state", &state).go().ends_with(0);
    drop(ground.service.take());
    let verified = ground.cli(&["audit", "verify", "--json"]).option("--state", &state).go().ends_with(0);
    let value: serde_json::Value = serde_json::from_str(&verified.out()).expect("JSON");
    assert!(value["entries"].as_u64() >= Some(2) && value["anchored"] == value["entries"], "{verified}");
    let tail = ground.cli(&["audit", "tail"]).option("--state", &state).go().ends_with(0);
    let own = format!("uid:{}", rustix::process::geteuid().as_raw());
    for kind in ["opened", "closed"] {
        assert!(
            tail.out().lines().any(|line| line.contains(kind) && line.contains(&id) && line.contains(&own)),
            "{tail}"
        );
    }
}

/// The log has one writer: the service while it runs, and whoever makes a change otherwise.
#[test]
fn changes_at_the_command_line_are_in_the_audit_log() {
    let mut ground = Ground::new();
    let state = ground.world.base().join("state");
    let change = |ground: &Ground, round: &str| {
        let token = ["token", "create", round, "--scope", "read"];
        ground.cli(&token).option("--state", &state).go().ends_with(0);
        ground.cli(&["token", "revoke", round]).option("--state", &state).go().ends_with(0);
        let set = ground.cli(&["secret", "set", "API_KEY"]).option("--state", &state);
        set.input("value-that-is-kept").go().ends_with(0);
        ground.cli(&["secret", "rm", "API_KEY"]).option("--state", &state).go().ends_with(0);
        // What changes nothing is no change.
        ground.cli(&["secret", "rm", "API_KEY"]).option("--state", &state).go().ends_with(125);
    };
    let changes = |ground: &Ground| -> Vec<(String, String)> {
        let tail = ground.cli(&["audit", "tail", "--json", "-n", "100"]).option("--state", &state).go();
        let entries: Vec<serde_json::Value> =
            tail.ends_with(0).out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let own = format!("uid:{}", rustix::process::geteuid().as_raw());
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let ours = entries.iter().filter(|entry| entry["principal"] == own.as_str());
        ours.map(|entry| (word(&entry["body"]["event"]), word(&entry["body"]["name"]))).collect()
    };
    let expected = |round: &str| {
        [
            ("create token", round),
            ("revoke token", round),
            ("set secret", "API_KEY"),
            ("remove secret", "API_KEY"),
        ]
        .map(|(event, name)| (event.to_owned(), name.to_owned()))
    };
    change(&ground, "beside");
    stockade_line_tests::until("the service to write them", || {
        (changes(&ground) == expected("beside")).then_some(())
    });
    drop(ground.service.take());
    change(&ground, "without");
    assert_eq!(changes(&ground), [expected("beside"), expected("without")].concat(), "at once");
    ground.cli(&["audit", "verify"]).option("--state", &state).go().ends_with(0);
    ground.service = Some(Service::start_again(&ground.world));
    assert_eq!(changes(&ground).len(), 8, "and once");
}
