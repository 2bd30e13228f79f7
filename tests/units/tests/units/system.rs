//! The system's service.

use std::fs;
use std::process::Command;

use serde_json::json;
use stockade_units_tests::{Manager, Socket, Who, is_running, post, said, turn, unique_sleep, until};

fn execute(command: &str) -> serde_json::Value {
    let (status, answer) = post("/execute", &json!({ "command": command }));
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Nobody gets an HTTP door that was not asked for.
const HTTP: &str = "[http]\naddress = \"127.0.0.1:3001\"\n";

#[test]
fn it_starts_and_builds_the_walls_of_the_default_profile() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.tell(&["start", "stockade.service"]);
    assert!(manager.is_active(), "{}", manager.status());
    assert!(std::net::TcpStream::connect("127.0.0.1:3001").is_err(), "nobody asked for it");
    manager.tell(&["stop", "stockade.service"]);
    manager.configure(HTTP);
    manager.tell(&["start", "stockade.service"]);
    manager.until_journal("Auth: disabled");
    manager.until_journal("http: listening on 127.0.0.1:3001");

    let own = fs::metadata("/var/lib/stockade").unwrap();
    let mut socket = Socket::connect(&manager.socket());
    let id = socket.start("id -u; grep -c . /proc/self/status; cat /proc/self/cgroup; touch here", None);
    let record = socket.ended(&id);
    let result = &record["ending"]["result"];
    assert_eq!(result["exit_code"], 0, "{record}\n{}", manager.journal());
    // Every layer of the default profile is required, so a result says that they stood.
    for layer in result["enforcement"].as_array().unwrap() {
        assert_eq!(layer["state"], "enforced", "{layer}");
    }
    assert!(fs::metadata("/var/lib/stockade/workspaces/here").is_ok());
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&own) & 0o077, 0);

    assert_eq!(execute("echo walrus")["stdout"].as_str().unwrap().trim(), "walrus");
    manager.tell(&["stop", "stockade.socket", "stockade.service"]);
    assert_eq!(manager.property("Result"), "success");
    let (_, left) = said(Command::new("pgrep").args(["--uid", "stockade", "--list-full"]));
    assert!(left.trim().is_empty(), "{left}");
}

#[test]
fn an_execution_out_of_memory_ends_alone() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.configure("[limits]\nmemory = \"64M\"\n");
    manager.tell(&["start", "stockade.service"]);
    let pid = manager.main_pid();
    let mut socket = Socket::connect(&manager.socket());
    let id = socket.start("python3 -c 'x = bytearray(300 << 20)'", None);
    let record = socket.ended(&id);
    assert_eq!(record["ending"]["result"]["exit_code"], 137, "{record}");
    assert!(manager.is_active(), "{}", manager.status());
    assert_eq!(manager.main_pid(), pid);
}

#[test]
fn the_socket_starts_it_and_outlives_it() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.tell(&["start", "stockade.socket"]);
    assert!(!manager.is_active());
    for _ in 0..2 {
        let mut socket = Socket::connect(&manager.socket());
        let health = socket.result("healthCheck", &json!({}));
        assert!(!health.is_null());
        assert!(manager.is_active(), "{}", manager.status());
        manager.tell(&["stop", "stockade.service"]);
        assert!(manager.socket().exists(), "the socket's file is the socket unit's");
    }
}

#[test]
fn a_reload_with_something_broken_changes_nothing() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.configure(&format!("{HTTP}[limits]\nmemory = \"128M\"\n"));
    manager.tell(&["start", "stockade.service"]);
    let pid = manager.main_pid();

    manager.configure("[limits]\nmemmory = \"1G\"\n");
    manager.tell(&["reload", "stockade.service"]);
    manager.until_journal("did you mean `memory`?");
    manager.until_journal("the configuration in force stays");

    manager.configure(HTTP);
    let profiles = manager.settings().join("profiles");
    fs::create_dir_all(&profiles).unwrap();
    fs::write(profiles.join("broken.toml"), "netwrk = \"deny\"\n").unwrap();
    manager.tell(&["reload", "stockade.service"]);
    manager.until_journal("broken.toml:1:1");
    assert_eq!(execute("echo still here")["stdout"].as_str().unwrap().trim(), "still here");
    assert!(manager.property("StatusText").contains("the last reload failed"));

    fs::write(profiles.join("broken.toml"), "extends = \"default\"\nnetwork = \"deny\"\n").unwrap();
    manager.tell(&["reload", "stockade.service"]);
    until("a reload that works", || (manager.property("StatusText") == "serving").then_some(()));
    assert_eq!(manager.main_pid(), pid, "a reload is no restart");
}

#[test]
fn a_restart_lets_what_runs_end_and_ends_the_rest() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.configure("drain = \"20s\"\n");
    manager.tell(&["start", "stockade.service"]);
    let sleep = unique_sleep();
    let mut socket = Socket::connect(&manager.socket());
    let short = socket.start("sleep 3; echo done", None);
    let long = socket.start(&format!("exec sleep {sleep}"), None);
    until("both to run", || is_running(&sleep).then_some(()));
    manager.tell(&["restart", "stockade.service"]);
    assert!(!is_running(&sleep));
    let mut socket = Socket::connect(&manager.socket());
    let record = socket.ended(&short);
    assert_eq!(record["ending"]["result"]["exit_code"], 0, "{record}");
    let record = socket.ended(&long);
    assert!(!record["ending"].is_null(), "{record}");
    assert_ne!(record["ending"]["result"]["exit_code"], 0, "{record}");
}

#[test]
fn killed_it_comes_back_and_knows_what_was_lost() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.tell(&["start", "stockade.service"]);
    let sleep = unique_sleep();
    let mut socket = Socket::connect(&manager.socket());
    let id = socket.start(&format!("exec sleep {sleep}"), None);
    until("it to run", || is_running(&sleep).then_some(()));
    let pid = manager.main_pid();
    manager.tell(&["kill", "--signal=KILL", "--kill-who=main", "stockade.service"]);
    until("another main process", || {
        (manager.is_active() && ![0, pid].contains(&manager.main_pid())).then_some(())
    });
    let mut socket = Socket::connect(&manager.socket());
    let record = socket.ended(&id);
    assert_eq!(record["code"], "UZ-EXEC-003", "{record}");
    until("nothing of it", || (!is_running(&sleep)).then_some(()));
}

#[test]
fn one_that_hangs_is_replaced() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.override_with("[Service]\nWatchdogSec=15\n");
    manager.tell(&["start", "stockade.service"]);
    let pid = manager.main_pid();
    manager.tell(&["kill", "--signal=STOP", "--kill-who=main", "stockade.service"]);
    until("another main process", || {
        (manager.is_active() && ![0, pid].contains(&manager.main_pid())).then_some(())
    });
    assert_eq!(manager.property("NRestarts"), "1");
}

#[test]
fn a_configuration_that_cant_be_used_is_not_tried_again() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    manager.configure("[http]\naddress = \"0.0.0.0:3001\"\n");
    let (well, _) = said(Command::new("systemctl").args(["start", "stockade.service"]));
    assert!(!well);
    manager.until_journal("without a secret the HTTP door opens on loopback only");
    assert_eq!(manager.property("ExecMainStatus"), "125");
    assert_eq!(manager.property("NRestarts"), "0");
}

#[test]
fn what_systemd_says_of_its_walls() {
    let Some(_turn) = turn(Who::Root) else { return };
    let manager = Manager::install(Who::Root);
    let (_, verified) =
        said(Command::new("systemd-analyze").args(["verify", "stockade.service", "stockade.socket"]));
    assert!(!verified.contains("stockade."), "{verified}");
    let (_, table) =
        said(Command::new("systemd-analyze").args(["security", "--no-pager", "stockade.service"]));
    let verdict = table
        .lines()
        .find(|line| line.contains("Overall exposure level"))
        .unwrap_or_else(|| panic!("{table}"));
    println!("{verdict}");
    let score = verdict
        .split(": ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|score| score.parse::<f32>().ok());
    assert!(score.is_some_and(|score| score < 4.5), "{verdict}");
    drop(manager);
}
