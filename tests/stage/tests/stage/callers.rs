//! Callers that vanish, or never read: their stage is ended, and nobody else notices. STAGE-5's lease.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_line_tests::{World, await_process, settle, unique_sleep, until};
use stockade_proto::door::{error, method};
use stockade_stage_tests::{Service, Settings, code};

fn stage(world: &World, name: &str, text: &str) -> Value {
    json!({ "workspace_path": world.work(), "shell": text, "stage_id": name })
}

#[test]
fn a_stage_whose_caller_vanishes_is_ended() {
    let world = World::new();
    let service = Service::start(&world);
    let sleep = unique_sleep();
    let mut gone = service.connect();
    gone.ask(method::START_STAGE, &stage(&world, "left", &format!("echo partly; sleep {sleep}")));
    // The sleep itself: the shell before it has the same words, and nothing written yet.
    await_process(&format!("sleep {sleep}"));
    drop(gone);
    assert!(settle(&sleep).is_empty());
    let mut wire = service.connect();
    let ended = wire.ok(method::WAIT, &json!({ "id": "left" }));
    assert_eq!(
        ended["ending"]["result"]["outcome"],
        json!({ "kind": "cancelled", "by": "hangup" }),
        "{ended}"
    );
    assert_eq!(
        (&ended["code"], &ended["class"]),
        (&json!("UZ-EXEC-014"), &json!("lease_expired")),
        "{ended}"
    );
    let expired = wire.error(method::START_STAGE, &stage(&world, "left", "true"));
    assert_eq!((code(&expired), &expired["data"]["code"]), (error::STAGE_FAILED, &json!("UZ-EXEC-014")));
    assert_eq!(
        (&expired["data"]["class"], &expired["data"]["content"]),
        (&json!("lease_expired"), &json!("partly\n"))
    );
}

#[test]
fn an_execution_whose_caller_vanishes_goes_on() {
    let world = World::new();
    let service = Service::start(&world);
    let mut gone = service.connect();
    let params =
        json!({ "workspace": world.work(), "command": ["cat"], "stdin": true, "idempotency_key": "k" });
    let id = gone.ok(method::START, &params)["id"].clone();
    gone.ask(method::WAIT, &json!({ "id": id }));
    drop(gone);
    let mut wire = service.connect();
    wire.ok(method::WRITE, &json!({ "id": id, "bytes": "still here", "end": true }));
    assert_eq!(wire.ok(method::WAIT, &json!({ "id": id }))["ending"]["result"]["exit_code"], 0);
}

#[test]
fn callers_that_vanish_at_any_moment_leave_nothing() {
    let world = World::new();
    let settings = Settings { tables: "[admission]\nrunning = 4\n".to_owned(), ..Settings::default() };
    let service = Service::with(&world, &settings);
    let sleep = unique_sleep();
    for round in 0..24_u64 {
        let mut wire = service.connect();
        wire.ask(method::START_STAGE, &stage(&world, &format!("v{round}"), &format!("sleep {sleep}")));
        // From at once to well after the start.
        std::thread::sleep(Duration::from_millis(round * 7));
    }
    let mut wire = service.connect();
    until("an empty service", || {
        let health = wire.ok(method::HEALTH, &json!({}));
        (health["running"] == 0 && health["waiting"] == 0).then_some(())
    });
    assert!(settle(&sleep).is_empty());
    for state in ["queued", "running"] {
        let left = wire.ok(method::LIST, &json!({ "state": state }));
        assert_eq!(left["executions"], json!([]), "{left}");
    }
}

#[test]
fn a_caller_that_reads_nothing_does_not_slow_its_stage() {
    let world = World::new();
    let service = Service::start(&world);
    let text = "i=0; while [ $i -lt 300 ]; do head -c 100000 /dev/zero; i=$((i+1)); done; echo > done";
    let mut wire = service.connect();
    let began = Instant::now();
    let id = wire.ask(method::START_STAGE, &stage(&world, "loud", text));
    until("the stage's end", || world.work().join("done").exists().then_some(()));
    let took = began.elapsed();
    let answered = wire.answer(id);
    assert!(answered.is_ok() || took > Duration::from_secs(20), "{took:?}");
}

#[test]
fn half_a_connection_has_a_moment_for_its_answer() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let id = wire.ask(method::START_STAGE, &stage(&world, "quick", "echo hi"));
    wire.end_writing();
    assert_eq!(wire.answer(id).expect("a result")["content"], "hi\n");
    assert!(wire.heard().is_none());
}
