//! Callers that may call, and want all of it: what they hold is theirs, and others are served.

use std::time::Duration;

use serde_json::{Value, json};
use stockade_line_tests::{World, status_kib, until};
use stockade_proto::door::{error, method};
use stockade_stage_tests::{Service, Wire, code};

/// Far above what the service needs, far below what it would hold without a bound: 200 answers of 6 MiB.
const HELD_KIB: u64 = 160 << 10;

#[test]
fn answers_that_nobody_reads_are_not_made() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    // Bytes that are six times as long as JSON.
    let start = json!({ "workspace": world.work(), "shell": "head -c 4000000 /dev/zero" });
    let id = wire.ok(method::START, &start)["id"].clone();
    assert_eq!(wire.ok(method::WAIT, &json!({ "id": id }))["ending"]["result"]["exit_code"], 0);
    let mut greedy = service.connect();
    for _ in 0..200 {
        greedy.ask(method::READ, &json!({ "id": id, "limit": 1 << 20 }));
    }
    // The first answers fill the socket and the queue; what comes after would be in memory.
    std::thread::sleep(Duration::from_secs(1));
    let held = status_kib(service.pid(), "VmHWM").expect("it runs");
    assert!(held < HELD_KIB, "{held} KiB");
    wire.is_well();
}

/// An execution, and the place in its output before a frame that is too large for the kernel to take several answers with it.
fn large_frame(wire: &mut Wire, world: &World) -> (Value, u64) {
    // A whole read of the relay's, of bytes that are six times as long as JSON, or nearly.
    const LARGE: usize = 1_100_000;
    // How much there is to read when it is read is the machine's to say.
    for _ in 0..20 {
        let start = json!({ "workspace": world.work(), "shell": "head -c 4000000 /dev/zero" });
        let id = wire.ok(method::START, &start)["id"].clone();
        wire.ok(method::WAIT, &json!({ "id": id }));
        let mut after = 0;
        while after < 64 {
            let read = wire.ok(method::READ, &json!({ "id": id, "after": after, "limit": 1 }));
            let Some([piece, ..]) = read["chunks"].as_array().map(Vec::as_slice) else { break };
            if piece["bytes"].to_string().len() > LARGE {
                return (id, after);
            }
            after = piece["sequence"].as_u64().expect("a number");
        }
    }
    panic!("no frame was large");
}

/// Room is given back when an answer is taken, not when it is on its way: and a frame of output is one however little
/// of it is asked for.
#[test]
fn an_answer_takes_its_room_until_it_is_read() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let (id, after) = large_frame(&mut wire, &world);
    for (limit, fit) in [(1 << 20, 1), (1, 4)] {
        let mut slow = service.connect();
        let ask = json!({ "id": id, "after": after, "limit": limit });
        let asked: Vec<u64> = (0..12).map(|_| slow.ask(method::READ, &ask)).collect();
        // Longer than those which find no room wait for it.
        std::thread::sleep(Duration::from_secs(7));
        let answers: Vec<_> = asked.into_iter().map(|id| slow.answer(id)).collect();
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(refused.clone().all(|error| code(error) == error::BUSY), "{refused:?}");
        // One more may have come when the first was taken by the kernel whole.
        let taken = answers.len() - refused.count();
        assert!((fit..=fit + 1).contains(&taken), "{limit}: {taken} of 12");
    }
    wire.is_well();
}

/// What one user sends and never finishes is bounded over all of that user's connections.
#[test]
fn frames_that_are_never_finished_are_bounded_together() {
    let world = World::new();
    let service = Service::start(&world);
    let unfinished = [&b"{\"x\": \""[..], &vec![b'x'; 15 << 20]].concat();
    let mut greedy: Vec<_> = (0..12).map(|_| service.connect()).collect();
    for wire in &mut greedy {
        // An error: it was told why, and closed.
        drop(wire.write(&unfinished));
    }
    let mut told = 0;
    for wire in &mut greedy[4..] {
        let refused = wire.heard().expect("it is told why");
        assert_eq!(code(&refused["error"]), error::BUSY, "{refused}");
        told += usize::from(wire.heard().is_none());
    }
    assert_eq!(told, 8, "and closed");
    let held = status_kib(service.pid(), "VmHWM").expect("it runs");
    assert!(held < HELD_KIB, "{held} KiB");
    // Small calls are served meanwhile, and large ones when those have gone.
    service.connect().is_well();
    drop(greedy);
    let large = json!({ "id": "x".repeat(15 << 20) });
    until("room for a large frame", || {
        service.connect().call(method::GET, &large).err().filter(|error| code(error) != error::BUSY)
    });
}

/// Writes that wait for commands that never read take no room from the orders of others.
#[test]
fn writes_that_wait_hold_up_nobody_else() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let mut hoarding = Vec::new();
    for _ in 0..4 {
        let start = json!({ "workspace": world.work(), "command": ["sleep", "1000"], "stdin": true });
        let id = wire.ok(method::START, &start)["id"].clone();
        until("it to run", || {
            (wire.ok(method::GET, &json!({ "id": id }))["state"] == "running").then_some(())
        });
        let mut writer = service.connect();
        for _ in 0..32 {
            writer.ask(method::WRITE, &json!({ "id": id, "bytes": "x".repeat(560 << 10) }));
        }
        hoarding.push((writer, id));
    }
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..5 {
        let start = json!({ "workspace": world.work(), "shell": "echo hi" });
        let id = wire.ok(method::START, &start)["id"].clone();
        let ended = wire.ok(method::WAIT, &json!({ "id": id }));
        assert_eq!(ended["ending"]["result"]["exit_code"], 0, "{ended}");
    }
    for (_, id) in &hoarding {
        assert_eq!(wire.ok(method::STOP, &json!({ "id": id }))["stopped"], true);
    }
}

/// What was taken of a write is told, so that a caller can go on behind it.
#[test]
fn a_write_that_is_not_taken_whole_says_how_much_was() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let shell = "until [ -e go ]; do sleep 0.1; done; wc -c";
    let start = json!({ "workspace": world.work(), "shell": shell, "stdin": true });
    let id = wire.ok(method::START, &start)["id"].clone();
    until("it to run", || (wire.ok(method::GET, &json!({ "id": id }))["state"] == "running").then_some(()));
    let all = 300_000_usize;
    let busy = wire.error(method::WRITE, &json!({ "id": id, "bytes": "x".repeat(all) }));
    let taken = busy["data"]["written"].as_u64().and_then(|taken| usize::try_from(taken).ok());
    let taken = taken.unwrap_or_else(|| panic!("{busy}"));
    assert!(taken > 0 && taken < all, "{busy}");
    std::fs::write(world.work().join("go"), "").expect("a file");
    wire.ok(method::WRITE, &json!({ "id": id, "bytes": "x".repeat(all - taken), "end": true }));
    assert_eq!(wire.ok(method::WAIT, &json!({ "id": id }))["ending"]["result"]["exit_code"], 0);
    let output = wire.ok(method::READ, &json!({ "id": id }));
    assert_eq!(output["chunks"][0]["bytes"], format!("{all}\n"), "{output}");
}

/// The same by writers that leave at once: what the executor still holds of theirs is theirs.
#[test]
fn writers_that_leave_hold_up_nobody_else() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let mut ids = Vec::new();
    // What 36 executions can be made to hold is more than the link does.
    for _ in 0..36 {
        let start = json!({ "workspace": world.work(), "command": ["sleep", "1000"], "stdin": true });
        ids.push(wire.ok(method::START, &start)["id"].clone());
    }
    for id in &ids {
        until("it to run", || {
            (wire.ok(method::GET, &json!({ "id": id }))["state"] == "running").then_some(())
        });
    }
    for _ in 0..40 {
        let mut writer = service.connect();
        for id in &ids {
            writer.ask(method::WRITE, &json!({ "id": id, "bytes": "x".repeat(60_000) }));
        }
        // A frame that is none ends the connection, and the calls with it.
        drop(writer.write(b"}\n"));
        writer.end_writing();
    }
    for _ in 0..3 {
        let start = json!({ "workspace": world.work(), "shell": "echo hi" });
        let id = wire.ok(method::START, &start)["id"].clone();
        let ended = wire.ok(method::WAIT, &json!({ "id": id }));
        assert_eq!(ended["ending"]["result"]["exit_code"], 0, "{ended}");
    }
    for id in &ids {
        assert_eq!(wire.ok(method::STOP, &json!({ "id": id }))["stopped"], true);
    }
}

/// One thread serves all; what takes time is not done on it.
#[test]
fn a_command_of_many_megabytes_keeps_nobody_waiting() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let mut greedy = service.connect();
    let argv: Vec<String> = (0..110).map(|_| "x".repeat(130_000)).collect();
    let asked = greedy.ask(method::START, &json!({ "workspace": world.work(), "command": argv }));
    wire.is_well();
    let refused = greedy.answer(asked).expect_err("no kernel takes that");
    assert_eq!(refused["data"]["code"], "SK-R003", "{refused}");
}
