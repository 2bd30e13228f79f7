//! STAGE-3: our own methods, `execution/…`.

use serde_json::{Value, json};
use stockade_line_tests::{World, settle, unique_sleep};
use stockade_proto::door::{error, method};
use stockade_stage_tests::{Service, Wire, code};

#[track_caller]
fn start(wire: &mut Wire, world: &World, more: Value) -> String {
    let mut params = json!({ "workspace": world.work() });
    params.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    wire.ok(method::START, &params)["id"].as_str().expect("an id").to_owned()
}

fn text(piece: &Value, stream: &str) -> String {
    let chunks = piece["chunks"].as_array().expect("chunks").iter();
    let own = chunks.filter(|chunk| chunk["stream"] == stream);
    own.map(|chunk| chunk["bytes"].as_str().expect("text")).collect()
}

#[test]
fn an_execution_is_started_fed_read_waited_for_and_kept() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let id = start(&mut wire, &world, json!({ "command": ["cat"], "stdin": true }));
    wire.ok(method::WRITE, &json!({ "id": id, "bytes": "hello " }));
    let first = wire.ok(method::READ, &json!({ "id": id, "wait_ms": 60000 }));
    assert_eq!(text(&first, "stdout"), "hello ");
    wire.ok(method::WRITE, &json!({ "id": id, "bytes": { "hex": "776f726c6400" }, "end": true }));
    let ended = wire.ok(method::WAIT, &json!({ "id": id }));
    assert_eq!((&ended["state"], &ended["principal"]), (&json!("ended"), &json!(principal())));
    assert_eq!(ended["ending"]["result"]["exit_code"], 0, "{ended}");
    let rest = wire.ok(method::READ, &json!({ "id": id, "after": first["next"] }));
    assert_eq!((text(&rest, "stdout").as_str(), &rest["rest"]), ("world\0", &json!("ended")));
    let whole = service.connect().ok(method::READ, &json!({ "id": id }));
    assert_eq!(text(&whole, "stdout"), "hello world\0");
    assert_eq!(wire.ok(method::GET, &json!({ "id": id }))["id"], json!(id));
    let late = wire.error(method::WRITE, &json!({ "id": id, "bytes": "x" }));
    assert_eq!((code(&late), &late["data"]["code"]), (error::ENDED, &json!("SK-R054")));
}

fn principal() -> String {
    format!("uid:{}", rustix::process::geteuid().as_raw())
}

#[test]
fn a_stop_ends_it_and_is_no_error_twice() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let id = start(&mut wire, &world, json!({ "shell": format!("sleep {sleep}") }));
    let still = wire.ok(method::WAIT, &json!({ "id": id, "within_ms": 1 }));
    assert_ne!(still["state"], "ended");
    assert_eq!(wire.ok(method::STOP, &json!({ "id": id }))["stopped"], true);
    let ended = wire.ok(method::WAIT, &json!({ "id": id }));
    assert_eq!(ended["ending"]["result"]["outcome"]["kind"], "cancelled", "{ended}");
    assert!(settle(&sleep).is_empty());
    assert_eq!(wire.ok(method::STOP, &json!({ "id": id }))["stopped"], false);
}

#[test]
fn a_key_means_one_execution() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let more = json!({ "shell": "echo ran >> count", "idempotency_key": "k" });
    let first = start(&mut wire, &world, more.clone());
    wire.ok(method::WAIT, &json!({ "id": first }));
    assert_eq!(start(&mut wire, &world, more), first);
    assert_eq!(world.read("work/count"), "ran\n");
}

#[test]
fn lists_are_paged_newest_first() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let mut ids: Vec<String> =
        (0..5).map(|_| start(&mut wire, &world, json!({ "command": ["true"] }))).collect();
    for id in &ids {
        wire.ok(method::WAIT, &json!({ "id": id }));
    }
    ids.reverse();
    let (mut seen, mut after) = (Vec::new(), Value::Null);
    loop {
        let page = wire.ok(method::LIST, &json!({ "limit": 2, "after": after, "state": "ended" }));
        let executions = page["executions"].as_array().expect("executions");
        seen.extend(executions.iter().map(|one| one["id"].as_str().expect("an id").to_owned()));
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!(seen, ids);
    assert_eq!(wire.ok(method::LIST, &json!({ "state": "running" }))["executions"], json!([]));
}

#[test]
fn an_id_that_is_not_there_is_unknown_to_every_method() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    for id in ["0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", "../../etc/passwd", "x"] {
        for method in
            [method::GET, method::READ, method::WRITE, method::STOP, method::WAIT, method::CANCEL_STAGE]
        {
            let error = wire.error(method, &json!({ "id": id }));
            assert_eq!(code(&error), error::UNKNOWN, "{method} {id}: {error}");
            assert_eq!(error["data"]["code"], "SK-R053");
        }
    }
}

#[test]
fn a_read_waits_for_output_and_no_longer() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let id = start(&mut wire, &world, json!({ "command": ["cat"], "stdin": true }));
    let nothing = wire.ok(method::READ, &json!({ "id": id, "wait_ms": 50 }));
    assert_eq!((&nothing["chunks"], &nothing["rest"]), (&json!([]), &json!("open")));
    let waits = wire.ask(method::READ, &json!({ "id": id, "wait_ms": 60000 }));
    wire.ok(method::WRITE, &json!({ "id": id, "bytes": "now", "end": true }));
    let piece = wire.answer(waits).expect("a piece");
    assert_eq!(text(&piece, "stdout"), "now");
}
