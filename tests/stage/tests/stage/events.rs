//! STAGE-3: `events/subscribe`. A subscriber hears what happens; one that does not keep up is cut, and says so last.

use serde_json::{Value, json};
use stockade_line_tests::World;
use stockade_proto::door::{error, method};
use stockade_stage_tests::{Service, Wire, code, field};

fn start(wire: &mut Wire, world: &World, text: &str) -> Value {
    wire.ok(method::START, &json!({ "workspace": world.work(), "shell": text }))["id"].clone()
}

#[test]
fn a_subscriber_hears_of_starts_and_ends_until_it_unsubscribes() {
    let world = World::new();
    let service = Service::start(&world);
    let (mut wire, mut listener) = (service.connect(), service.connect_counted());
    let number = listener.ok(method::SUBSCRIBE, &json!({}))["subscription"].clone();
    let id = start(&mut wire, &world, "exit 4");
    let started = listener.note();
    assert_eq!((&started["method"], &started["params"]["event"]), (&json!(method::EVENT), &json!("started")));
    let ended = listener.note()["params"].clone();
    assert_eq!(
        (&ended["event"], &ended["execution"], &ended["exit_code"]),
        (&json!("ended"), &id, &json!(4))
    );
    assert_eq!((&ended["outcome"], &ended["subscription"]), (&json!("exited"), &number));
    listener.ok(method::UNSUBSCRIBE, &json!({ "subscription": number }));
    let id = start(&mut wire, &world, "true");
    wire.ok(method::WAIT, &json!({ "id": id }));
    listener.is_well();
    assert!(listener.notes.is_empty());
    let again = listener.error(method::UNSUBSCRIBE, &json!({ "subscription": number }));
    assert_eq!(field(&again), "subscription");
}

#[test]
fn a_connection_has_a_few_subscriptions() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    for _ in 0..4 {
        wire.ok(method::SUBSCRIBE, &json!({}));
    }
    assert_eq!(code(&wire.error(method::SUBSCRIBE, &json!({}))), error::BUSY);
    wire.ok(method::UNSUBSCRIBE, &json!({ "subscription": 2 }));
    wire.ok(method::SUBSCRIBE, &json!({}));
}

/// More than the service holds for one reader.
const EVENTS: usize = 160;

#[test]
fn a_slow_subscriber_is_cut_and_nobody_waits_for_it() {
    let world = World::new();
    let service = Service::start(&world);
    let (mut wire, mut slow) = (service.connect(), service.connect());
    let long = start(&mut wire, &world, &format!("true # {}", "x".repeat(100_000)));
    wire.ok(method::WAIT, &json!({ "id": long }));
    slow.ok(method::SUBSCRIBE, &json!({}));
    // It asks for more than its connection holds, and takes none of it.
    let asked: Vec<u64> = (0..60).map(|_| slow.ask(method::GET, &json!({ "id": long }))).collect();
    // These end while it sleeps.
    let ids: Vec<Value> = (0..EVENTS).map(|_| start(&mut wire, &world, "true")).collect();
    for id in ids {
        assert_eq!(wire.ok(method::WAIT, &json!({ "id": id }))["state"], "ended");
    }
    let mut last = slow.note();
    let mut heard = 0;
    while last["method"] == method::EVENT {
        heard += 1;
        last = slow.note();
    }
    assert_eq!(last["method"], method::CUT, "{last}");
    assert!(last["params"]["reason"].as_str().expect("a reason").contains("too slow"), "{last}");
    assert!((1..2 * EVENTS).contains(&heard), "{heard}");
    for id in asked {
        slow.answer(id).expect("what it asked for");
    }
    // It may subscribe again.
    slow.ok(method::SUBSCRIBE, &json!({}));
    start(&mut wire, &world, "true");
    assert_eq!(slow.note()["method"], method::EVENT);
}
