//! STAGE-4 and the health promise of STAGE-3: everything is served while stages run.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_line_tests::{World, find_marked, settle, slowness, unique_sleep, until};
use stockade_proto::door::{error, method};
use stockade_stage_tests::{Service, Settings, Wire, code};

/// STAGE-3, on a machine of ordinary speed.
const HEALTH: Duration = Duration::from_millis(100);

fn stage(world: &World, name: &str, text: &str) -> Value {
    json!({ "workspace_path": world.work(), "shell": text, "stage_id": name })
}

#[test]
fn one_connection_runs_many_stages_and_serves_the_rest_meanwhile() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let name = |at: usize| format!("s{at}");
    let ids: Vec<u64> = (0..8)
        .map(|at| wire.ask(method::START_STAGE, &stage(&world, &name(at), &format!("sleep {sleep}"))))
        .collect();
    until("all of them", || (find_marked(&format!("sleep {sleep}")).len() >= 8).then_some(()));
    let health = wire.ok(method::HEALTH, &json!({}));
    assert_eq!((&health["running"], &health["waiting"]), (&json!(8), &json!(0)), "{health}");
    // Another execution starts and ends.
    let id = wire.ok(method::START, &json!({ "workspace": world.work(), "shell": "echo hi" }))["id"].clone();
    assert_eq!(wire.ok(method::WAIT, &json!({ "id": id }))["ending"]["result"]["exit_code"], 0);
    // In any order, from here and from another connection.
    let mut other = service.connect_counted();
    for (at, id) in ids.iter().enumerate().rev() {
        let by: &mut Wire = if at % 2 == 0 { &mut wire } else { &mut other };
        assert_eq!(by.ok(method::CANCEL_STAGE, &json!({ "id": name(at) }))["cancelled"], true);
        assert_eq!(wire.answer(*id).expect("a result")["outcome"]["kind"], "cancelled");
    }
    assert!(settle(&sleep).is_empty());
}

fn p99(wire: &mut Wire) -> Duration {
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let asked = Instant::now();
            wire.is_well();
            asked.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[test]
fn health_answers_within_its_time_under_load() {
    let world = World::new();
    let service = Service::start(&world);
    let mut busy = service.connect();
    for at in 0..8 {
        let text = "while :; do head -c 100000 /dev/zero; done";
        let mut payload = stage(&world, &format!("busy{at}"), text);
        payload["limits"] = json!({ "timeout_ms": 60000 });
        busy.ask(method::START_STAGE, &payload);
    }
    let mut wire = service.connect();
    until("the load", || (wire.ok(method::HEALTH, &json!({}))["running"] == 8).then_some(()));
    // The machine may have other things to do: one quiet moment out of a few is enough.
    let best = (0..5).map(|_| p99(&mut wire)).min().expect("five of them");
    assert!(best <= HEALTH * slowness(), "p99 {best:?}");
    for at in 0..8 {
        busy.ok(method::CANCEL_STAGE, &json!({ "id": format!("busy{at}") }));
    }
}

fn narrow(running: u32, waiting: u32) -> Settings {
    let tables = format!("[admission]\nrunning = {running}\nwaiting = {waiting}\nwait = \"60s\"\n");
    Settings { tables, ..Settings::default() }
}

#[test]
fn a_stage_that_waits_for_a_place_can_be_cancelled() {
    let world = World::new();
    let service = Service::with(&world, &narrow(1, 4));
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let runs = wire.ask(method::START_STAGE, &stage(&world, "runs", &format!("sleep {sleep}")));
    until("the first", || (!find_marked(&format!("sleep {sleep}")).is_empty()).then_some(()));
    let waits = wire.ask(method::START_STAGE, &stage(&world, "waits", "echo never > ran"));
    until("the second", || (wire.ok(method::HEALTH, &json!({}))["waiting"] == 1).then_some(()));
    let cancelled = wire.ok(method::CANCEL_STAGE, &json!({ "stage_id": "waits" }));
    assert_eq!((&cancelled["cancelled"], &cancelled["execution"]), (&json!(true), &Value::Null));
    let result = wire.answer(waits).expect("a result");
    assert_eq!((&result["outcome"]["kind"], &result["execution"]), (&json!("cancelled"), &Value::Null));
    wire.ok(method::CANCEL_STAGE, &json!({ "stage_id": "runs" }));
    assert_eq!(wire.answer(runs).expect("a result")["outcome"]["kind"], "cancelled");
    until("an empty service", || {
        let health = wire.ok(method::HEALTH, &json!({}));
        (health["running"] == 0 && health["waiting"] == 0).then_some(())
    });
}

#[test]
fn one_too_many_is_told_when_to_come_back() {
    let world = World::new();
    let service = Service::with(&world, &narrow(1, 1));
    let mut wire = service.connect();
    let sleep = unique_sleep();
    wire.ask(method::START_STAGE, &stage(&world, "runs", &format!("sleep {sleep}")));
    until("the first", || (wire.ok(method::HEALTH, &json!({}))["running"] == 1).then_some(()));
    wire.ask(method::START_STAGE, &stage(&world, "waits", "true"));
    until("the second", || (wire.ok(method::HEALTH, &json!({}))["waiting"] == 1).then_some(()));
    let busy = wire.error(method::START_STAGE, &stage(&world, "more", "true"));
    assert_eq!((code(&busy), &busy["data"]["code"]), (error::BUSY, &json!("UZ-EXEC-003")), "{busy}");
    assert!(busy["data"]["retry_after_ms"].as_u64().is_some_and(|time| time > 0), "{busy}");
    assert_eq!(busy["data"]["reason"], "SK-R055");
    let busy = wire.error(method::START, &json!({ "workspace": world.work(), "shell": "true" }));
    assert_eq!((code(&busy), &busy["data"]["code"]), (error::BUSY, &json!("SK-R055")));
    wire.is_well();
}

#[test]
fn a_connection_that_runs_all_it_may_still_serves_what_is_urgent() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let id = wire.ok(method::START, &json!({ "workspace": world.work(), "shell": format!("sleep {sleep}") }));
    let id = id["id"].clone();
    for _ in 0..256 {
        wire.ask(method::WAIT, &json!({ "id": id }));
    }
    let full = wire.error(method::GET, &json!({ "id": id }));
    assert_eq!(code(&full), error::BUSY, "{full}");
    wire.is_well();
    assert_eq!(wire.ok(method::CANCEL_STAGE, &json!({ "id": id }))["cancelled"], true);
    assert!(settle(&sleep).is_empty());
}
