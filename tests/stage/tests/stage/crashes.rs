//! STAGE-6: SIGKILL of the executor or the daemon with stages in flight. Each is on record as failed, callers are told,
//! and nothing is left.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_line_tests::{World, cgroup_directories, find_marked, kill, settle, unique_sleep, until};
use stockade_proto::door::{error, method};
use stockade_stage_tests::{Service, Wire, code};

const STAGES: usize = 3;

fn stage(world: &World, name: &str, sleep: &str) -> Value {
    let text = format!("echo partly; (setsid sleep {sleep} &); sleep {sleep}");
    json!({ "workspace_path": world.work(), "shell": text, "stage_id": name })
}

/// Stages that all sleep, and the cgroups that they are in.
fn in_flight(wire: &mut Wire, world: &World, sleep: &str) -> (Vec<u64>, Vec<PathBuf>) {
    let ids = (0..STAGES).map(|at| wire.ask(method::START_STAGE, &stage(world, &format!("s{at}"), sleep)));
    let ids = ids.collect();
    let line = format!("sleep {sleep}");
    let sleepers = until("all sleepers", || {
        let found: Vec<u32> = find_marked(&line)
            .into_iter()
            .filter(|pid| stockade_line_tests::command_line(*pid).starts_with(&line))
            .collect();
        (found.len() == 2 * STAGES).then_some(found)
    });
    told(wire, STAGES);
    let mut groups: Vec<PathBuf> = sleepers.into_iter().flat_map(cgroup_directories).collect();
    groups.retain(|path| path.display().to_string().contains("stockade-x-"));
    groups.sort();
    groups.dedup();
    (ids, groups)
}

/// Until as many stages' words are kept: the executor may die next.
fn told(wire: &mut Wire, stages: usize) {
    let mut told = 0;
    while told < stages {
        told += usize::from(wire.note()["params"]["text"] == "partly\n");
    }
}

#[track_caller]
fn lost(error: &Value) {
    assert_eq!(code(error), error::EXECUTOR_LOST, "{error}");
    assert_eq!(error["data"]["code"], "UZ-EXEC-003", "{error}");
    assert_eq!(error["data"]["class"], "executor_crash", "{error}");
    assert_eq!(error["data"]["content"], "partly\n", "{error}");
}

#[track_caller]
fn nothing_left(wire: &mut Wire, world: &World, sleep: &str, groups: &[PathBuf]) {
    let left = settle(sleep);
    assert!(left.is_empty(), "left behind: {left:?}");
    // The next one works, and sweeps.
    let params = json!({ "workspace_path": world.work(), "shell": "echo again" });
    let next = until("an executor that works", || wire.call(method::START_STAGE, &params).ok());
    assert_eq!(next["content"], "again\n");
    until("no cgroup", || groups.iter().all(|group| !group.exists()).then_some(()));
    for state in ["queued", "running"] {
        assert_eq!(wire.ok(method::LIST, &json!({ "state": state }))["executions"], json!([]));
    }
}

#[track_caller]
fn on_record(wire: &mut Wire, name: &str) {
    let row = wire.ok(method::GET, &json!({ "id": name }));
    assert_eq!((&row["state"], &row["code"]), (&json!("ended"), &json!("UZ-EXEC-003")), "{row}");
    assert_eq!(row["class"], "executor_crash", "{row}");
}

#[test]
fn an_executor_that_is_killed_is_uz_exec_003_to_all_who_wait() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let (ids, groups) = in_flight(&mut wire, &world, &sleep);
    kill(service.executor(), Signal::KILL);
    for id in ids {
        lost(&wire.answer(id).expect_err("it was lost"));
    }
    for at in 0..STAGES {
        on_record(&mut wire, &format!("s{at}"));
    }
    nothing_left(&mut wire, &world, &sleep, &groups);
    until("health", || (wire.ok(method::HEALTH, &json!({}))["status"] == "ok").then_some(()));
}

#[test]
fn a_service_that_is_killed_says_uz_exec_003_when_it_is_back() {
    let world = World::new();
    let mut service = Service::start(&world);
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let (_, groups) = in_flight(&mut wire, &world, &sleep);
    service.kill();
    while wire.heard().is_some() {}
    let service = Service::start(&world);
    let mut wire = service.connect();
    for at in 0..STAGES {
        let name = format!("s{at}");
        on_record(&mut wire, &name);
        // A caller that asks for the same stage again gets that answer, not another run.
        lost(&wire.error(method::START_STAGE, &stage(&world, &name, &sleep)));
    }
    nothing_left(&mut wire, &world, &sleep, &groups);
}

#[test]
fn executors_are_killed_again_and_again() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let sleep = unique_sleep();
    for round in 0..3 {
        let id = wire.ask(method::START_STAGE, &stage(&world, &format!("r{round}"), &sleep));
        told(&mut wire, 1);
        kill(service.executor(), Signal::KILL);
        lost(&wire.answer(id).expect_err("it was lost"));
        assert!(settle(&sleep).is_empty());
    }
    nothing_left(&mut wire, &world, &sleep, &[]);
}
