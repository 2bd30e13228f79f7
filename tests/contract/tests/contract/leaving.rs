//! Clients that go away take their command with them; those that never read cost nothing.

use std::io::Write as _;
use std::net::Shutdown;

use stockade_contract_tests::{Service, runs, unique_sleep, until};

/// Starts a command with a grandchild and waits until that runs.
fn ask(service: &Service, sleep: &str) -> std::net::TcpStream {
    let body = format!(r#"{{"command":"(sleep {sleep} & wait) ; echo never","timeout":300000}}"#);
    let mut stream = service.connect();
    stream.write_all(&service.request("POST /execute", &[], body.as_bytes())).expect("as this test needs it");
    until("the grandchild", || runs(sleep).then_some(()));
    stream
}

#[track_caller]
fn ends(service: &Service, sleep: &str) {
    until("the grandchild to end", || (!runs(sleep)).then_some(()));
    let page = until("the record", || {
        let page = service.get("/v1/executions?limit=1").json();
        (page["executions"][0]["state"] == "ended").then_some(page)
    });
    let id = page["executions"][0]["id"].as_str().expect("as this test needs it").to_owned();
    let ended = service.get(&format!("/v1/executions/{id}")).json();
    assert_eq!(ended["ending"]["result"]["outcome"]["kind"], "cancelled", "{ended}");
}

#[test]
fn a_client_that_closes_cancels_its_command() {
    let service = Service::plain();
    let sleep = unique_sleep();
    drop(ask(&service, &sleep));
    ends(&service, &sleep);
}

#[test]
fn a_client_that_is_reset_cancels_its_command() {
    let service = Service::plain();
    let sleep = unique_sleep();
    let stream = ask(&service, &sleep);
    rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO))
        .expect("as this test needs it");
    drop(stream);
    ends(&service, &sleep);
}

#[test]
fn a_client_that_sends_no_more_is_gone() {
    let service = Service::plain();
    let sleep = unique_sleep();
    let stream = ask(&service, &sleep);
    stream.shutdown(Shutdown::Write).expect("as this test needs it");
    ends(&service, &sleep);
}

#[test]
fn an_execution_of_v1_outlives_its_client() {
    let service = Service::plain();
    let sleep = unique_sleep();
    let started = service.start_execution(&serde_json::json!({ "shell": format!("exec sleep {sleep}") }));
    until("the command", || runs(&sleep).then_some(()));
    let id = started.json()["id"].as_str().expect("as this test needs it").to_owned();
    let running = service.get(&format!("/v1/executions/{id}/wait?within_ms=300")).json();
    assert_eq!(running["state"], "running");
    assert_eq!(service.ask(&format!("POST /v1/executions/{id}/stop"), &[], "").status, 200);
    ends(&service, &sleep);
}

#[test]
fn one_that_is_stopped_at_once_does_not_run_on() {
    let service = Service::plain();
    for _ in 0..20 {
        let sleep = unique_sleep();
        let started = service.start_execution(&serde_json::json!({ "shell": format!("exec sleep {sleep}") }));
        let id = started.json()["id"].as_str().expect("as this test needs it").to_owned();
        assert_eq!(service.ask(&format!("POST /v1/executions/{id}/stop"), &[], "").status, 200);
        let ended = service.get(&format!("/v1/executions/{id}/wait?within_ms=30000")).json();
        assert_eq!(ended["state"], "ended", "{ended}");
        assert!(!runs(&sleep));
    }
}

#[test]
fn clients_that_leave_at_any_moment_leave_nothing_behind() {
    let service = Service::plain();
    let sleep = unique_sleep();
    let body = format!(r#"{{"command":"sleep {sleep}","timeout":300000}}"#);
    let request = service.request("POST /execute", &[], body.as_bytes());
    for round in 0..60u64 {
        let mut stream = service.connect();
        stream.write_all(&request).expect("as this test needs it");
        // Every moment between the queue and the command.
        std::thread::sleep(std::time::Duration::from_micros(round * 250));
    }
    until("all of them to end", || {
        let page = service.get("/v1/executions?limit=500").json();
        let ended = |row: &serde_json::Value| row["state"] == "ended";
        page["executions"].as_array().expect("as this test needs it").iter().all(ended).then_some(())
    });
    assert!(!runs(&sleep));
}
