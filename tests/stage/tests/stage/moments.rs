//! STAGE-6 and OPS-4 at named moments: SIGKILL before the spawn, while output comes, while the end is recorded. A process
//! that is stopped, or a lock that somebody holds, makes each moment last as long as the test needs it.

use std::fs;
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_line_tests::{World, find_marked, kill, settle, unique_sleep, until};
use stockade_proto::door::method;
use stockade_stage_tests::{Service, Wire};

fn start(wire: &mut Wire, world: &World, shell: &str) -> String {
    let started = wire.ok(method::START, &json!({ "workspace": world.work(), "shell": shell }));
    started["id"].as_str().expect("an id").to_owned()
}

/// Over, for good, as one that was lost.
#[track_caller]
fn lost(wire: &mut Wire, id: &str) {
    let row = until("its end", || {
        Some(wire.ok(method::GET, &json!({ "id": id }))).filter(|row| row["state"] == "ended")
    });
    assert_eq!((&row["code"], &row["class"]), (&json!("UZ-EXEC-003"), &json!("executor_crash")), "{row}");
}

/// Nothing runs, nothing is unfinished, and the next one works.
#[track_caller]
fn settled(wire: &mut Wire, world: &World, sleep: &str) {
    assert_eq!(settle(sleep), Vec::<u32>::new(), "left behind");
    until("an executor that works", || {
        let id = wire.call(method::START, &json!({ "workspace": world.work(), "shell": "true" })).ok()?;
        let ended = wire.ok(method::WAIT, &json!({ "id": id["id"] }));
        (ended["ending"]["result"]["exit_code"] == 0).then_some(())
    });
    for state in ["queued", "running"] {
        assert_eq!(wire.ok(method::LIST, &json!({ "state": state }))["executions"], json!([]));
    }
}

/// Entries of the audit log about this execution: kinds and events, in their order.
fn logged(world: &World, id: &str) -> Vec<String> {
    let log = fs::read_to_string(world.base().join("state/audit/000001.log")).expect("it is there");
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let word = |entry: &Value| entry["body"]["event"].as_str().map(str::to_owned);
    entries
        .filter(|entry| entry["execution"] == id)
        .map(|entry| word(&entry).unwrap_or_else(|| entry["kind"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

#[test]
fn the_executor_before_the_spawn() {
    let (world, sleep) = (World::new(), unique_sleep());
    let service = Service::start(&world);
    let mut wire = service.connect();
    let executor = service.executor();
    kill(executor, Signal::STOP);
    let ids: Vec<String> =
        (0..3).map(|_| start(&mut wire, &world, &format!("touch ran; sleep {sleep}"))).collect();
    kill(executor, Signal::KILL);
    ids.iter().for_each(|id| lost(&mut wire, id));
    settled(&mut wire, &world, &sleep);
    assert!(!world.work().join("ran").exists(), "it never began");
    for id in &ids {
        assert_eq!(logged(&world, id), ["opened", "closed"]);
    }
}

/// The first process of the sandbox: all others die with it, and that is how it ended.
#[test]
fn the_init_of_an_execution() {
    let (world, sleep) = (World::new(), unique_sleep());
    let service = Service::start(&world);
    let mut wire = service.connect();
    let id = start(&mut wire, &world, &format!("echo before; sleep {sleep} & sleep {sleep}"));
    let shell = until("its command", || find_marked(&format!("sleep {sleep} &")).first().copied());
    kill(parent(shell), Signal::KILL);
    let row = wire.ok(method::WAIT, &json!({ "id": id }));
    assert_eq!((&row["state"], &row["code"]), (&json!("ended"), &json!("UZ-EXEC-003")), "{row}");
    assert_eq!(row["ending"]["result"]["outcome"]["kind"], "lost", "{row}");
    let read = wire.ok(method::READ, &json!({ "id": id }));
    assert_eq!((&read["chunks"][0]["bytes"], &read["rest"]), (&json!("before\n"), &json!("ended")), "{read}");
    settled(&mut wire, &world, &sleep);
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("everybody has one");
    line.trim().parse().expect("a number")
}

/// Nothing runs without a record, and a database that somebody holds takes none.
#[test]
fn a_database_that_is_locked_when_one_starts() {
    let (world, sleep) = (World::new(), unique_sleep());
    let service = Service::start(&world);
    let mut wire = service.connect();
    let holder = Connection::open(world.base().join("state/stockade.db")).expect("the database");
    holder.busy_timeout(Duration::from_secs(30)).expect("a number");
    holder.execute_batch("BEGIN IMMEDIATE").expect("its lock");
    let refused = wire.error(method::START, &json!({ "workspace": world.work(), "shell": "touch ran" }));
    assert_eq!(refused["data"]["code"], "SK-F011", "{refused}");
    drop(holder);
    settled(&mut wire, &world, &sleep);
    assert!(!world.work().join("ran").exists(), "it was not on record");
}

/// It is not dead, and answers nothing: what it was given would have its seats for ever.
#[test]
fn an_executor_that_stands_still() {
    let (world, sleep) = (World::new(), unique_sleep());
    let service = Service::start(&world);
    let mut wire = service.connect();
    let id = start(&mut wire, &world, &format!("echo before; sleep {sleep}"));
    let read = wire.ok(method::READ, &json!({ "id": id, "wait_ms": 60_000 }));
    assert_eq!(read["chunks"][0]["bytes"], "before\n", "{read}");
    let executor = service.executor();
    kill(executor, Signal::STOP);
    lost(&mut wire, &id);
    settled(&mut wire, &world, &sleep);
    assert_ne!(service.executor(), executor);
    assert_eq!(wire.ok(method::HEALTH, &json!({}))["running"], 0);
}

#[test]
fn the_daemon_before_the_spawn() {
    let (world, sleep) = (World::new(), unique_sleep());
    let mut service = Service::start(&world);
    let mut wire = service.connect();
    let executor = service.executor();
    kill(executor, Signal::STOP);
    let ids: Vec<String> = (0..3).map(|_| start(&mut wire, &world, &format!("sleep {sleep}"))).collect();
    service.kill();
    // Whatever of the orders it finds on its link, it has nobody to work for.
    kill(executor, Signal::CONT);
    let service = Service::start(&world);
    let mut wire = service.connect();
    ids.iter().for_each(|id| lost(&mut wire, id));
    settled(&mut wire, &world, &sleep);
    for id in &ids {
        assert_eq!(logged(&world, id), ["opened", "lost"]);
    }
}

/// Output that came before is kept and has an end.
#[test]
fn both_while_output_comes() {
    let (world, sleep) = (World::new(), unique_sleep());
    let mut service = Service::start(&world);
    let streaming = format!("sleep {sleep} & while :; do echo line; done");
    for daemon in [false, true] {
        let mut wire = service.connect();
        let id = start(&mut wire, &world, &streaming);
        let read = json!({ "id": id, "wait_ms": 60_000 });
        let seen = wire.ok(method::READ, &read)["next"].as_u64().expect("a number");
        if daemon {
            service.kill();
            service = Service::start(&world);
            wire = service.connect();
        } else {
            kill(service.executor(), Signal::KILL);
        }
        lost(&mut wire, &id);
        let mut after = 0;
        let rest = loop {
            let output = wire.ok(method::READ, &json!({ "id": id, "after": after, "limit": 1 << 20 }));
            after = output["next"].as_u64().expect("a number");
            if output["rest"] != "more" {
                break output["rest"].clone();
            }
        };
        assert!(rest == "ended" && after >= seen, "{rest}: {after} of {seen}");
        settled(&mut wire, &world, &sleep);
    }
}

/// The moment between the log's end and the row's: the row can't be written while somebody holds the database.
#[test]
fn the_daemon_while_the_end_is_recorded() {
    let (world, sleep) = (World::new(), unique_sleep());
    let mut service = Service::start(&world);
    let mut wire = service.connect();
    let id = start(&mut wire, &world, "until [ -e go ]; do sleep 0.05; done; exit 7");
    let holder = Connection::open(world.base().join("state/stockade.db")).expect("the database");
    holder.busy_timeout(Duration::from_secs(30)).expect("a number");
    until("it to run", || (wire.ok(method::GET, &json!({ "id": id }))["state"] == "running").then_some(()));
    // What the start wrote down is written.
    holder.execute_batch("BEGIN IMMEDIATE").expect("its lock");
    fs::write(world.work().join("go"), "").expect("a file");
    until("the log's end", || logged(&world, &id).contains(&"closed".to_owned()).then_some(()));
    assert_ne!(wire.ok(method::GET, &json!({ "id": id }))["state"], "ended");
    service.kill();
    drop(holder);
    let service = Service::start(&world);
    let mut wire = service.connect();
    lost(&mut wire, &id);
    assert_eq!(logged(&world, &id), ["opened", "closed", "lost"], "the log knows the outcome");
    settled(&mut wire, &world, &sleep);
}

/// There is nothing to hold an executor by at its end: so it is killed around then, again and again. Whatever was said
/// to run ends on record, as what it did or as lost.
#[test]
fn the_executor_around_the_end() {
    let (world, sleep) = (World::new(), unique_sleep());
    let service = Service::start(&world);
    let mut wire = service.connect();
    let mut ids = Vec::new();
    for round in 0..12_u64 {
        let executor = service.executor();
        let id = start(&mut wire, &world, "echo it; exit 7");
        std::thread::sleep(Duration::from_millis(round * 4));
        kill(executor, Signal::KILL);
        ids.push(id);
        until("another one", || {
            (wire.ok(method::HEALTH, &json!({}))["status"] == "ok" && service.executor() != executor)
                .then_some(())
        });
    }
    for id in &ids {
        let row = until("its end", || {
            Some(wire.ok(method::GET, &json!({ "id": id }))).filter(|row| row["state"] == "ended")
        });
        let whole = row["ending"]["result"]["exit_code"] == 7;
        assert!(whole || row["code"] == "UZ-EXEC-003", "{row}");
        assert_eq!(logged(&world, id), ["opened", "closed"]);
    }
    settled(&mut wire, &world, &sleep);
}
