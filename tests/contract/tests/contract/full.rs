//! OPS-4 through a door: a full disk refuses, damages nothing, and is over when it is over.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};
use stockade_contract_tests::{Options, Service, programs, skip, until};

/// Every byte that is left.
fn fill(service: &Service) {
    let mut file = File::create(service.path("state/filler")).expect("a file");
    for step in [1 << 20, 4096, 1] {
        while file.write_all(&vec![0; step]).is_ok() {}
    }
}

/// Executions whose entry was opened, and those whose entry was closed.
fn entries(service: &Service) -> [BTreeSet<String>; 2] {
    let log = fs::read_to_string(service.path("state/audit/000001.log")).expect("it is there");
    ["opened", "closed"].map(|kind| {
        let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a whole line"));
        let of = entries.filter(|entry| entry["kind"] == kind);
        of.map(|entry| entry["execution"].as_str().expect("an id").to_owned()).collect()
    })
}

#[test]
fn a_full_disk_refuses_and_is_over_without_a_restart() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can mount a small disk");
    }
    let mut service = Service::start(Options { small_disk: true, ..Options::default() });
    let run = || service.start_execution(&json!({ "shell": "echo kept" }));
    let ended = |id: &str| service.get(&format!("/v1/executions/{id}/wait")).json();
    let before = run().json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(ended(&before)["ending"]["result"]["exit_code"], 0);
    // One that runs when the disk is full, and ends then.
    let word = service.path("work").join("go");
    let waits = json!({ "shell": "until [ -e go ]; do sleep 0.05; done" });
    let running = service.start_execution(&waits).json()["id"].as_str().expect("an id").to_owned();
    until("it to run", || {
        let row = service.get(&format!("/v1/executions/{running}")).json();
        (row["state"] == "running").then_some(())
    });
    fill(&service);
    // What is left in pages that are begun is used up first.
    let mut taken = vec![before.clone(), running.clone()];
    let refused = (0..500).find_map(|_| {
        let answer = run();
        match answer.status {
            201 => taken.push(answer.json()["id"].as_str().expect("an id").to_owned()),
            _ => return Some(answer),
        }
        None
    });
    refused.expect("the disk is full").is_problem(503, "SK-F011");
    assert_eq!(service.get("/v1/doctor").json()["status"], "no-records");
    service.get("/health").is(200, r#"{"status":"ok"}"#);
    fs::write(word, "").expect("another disk");
    // What is on record can be read meanwhile.
    let output = service.get(&format!("/v1/executions/{before}/output")).json();
    assert_eq!(output["chunks"][0]["bytes"], "kept\n", "{output}");
    assert_eq!(run().status, 503);

    fs::remove_file(service.path("state/filler")).expect("ours");
    until("it to notice", || (service.get("/v1/doctor").json()["status"] == "ok").then_some(()));
    for id in &taken {
        let row = until("its end", || Some(ended(id)).filter(|row| row["state"] == "ended"));
        assert!(row["ending"].is_object(), "{row}");
    }
    let after = run();
    assert_eq!(after.status, 201, "{}", after.text());
    let after = after.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(ended(&after)["ending"]["result"]["exit_code"], 0);
    for state in ["queued", "running"] {
        let page = service.get(&format!("/v1/executions?state={state}")).json();
        assert_eq!(page["executions"], json!([]), "nothing is half on record");
    }
    let [opened, closed] = entries(&service);
    assert_eq!(opened, closed);
    assert!(taken.iter().chain([&after]).all(|id| opened.contains(id)), "{taken:?} {opened:?}");
    let mut verify = Command::new(programs().join("stockade"));
    let verified = verify.args(["audit", "verify", "--state"]).arg(service.path("state")).output();
    assert!(verified.expect("stockade starts").status.success());
    service.stop();
}
