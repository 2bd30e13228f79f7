//! What a caller with a right credential still can't get: a workspace other than the one that was checked, the
//! service's own files, a profile without its limits.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use stockade_contract_tests::{Answer, Options, Service, until};

fn text(path: &Path) -> String {
    path.to_str().expect("made of text").to_owned()
}

/// A symlink takes the workspace's place and gives it back, again and again, between the check and the use.
#[test]
fn a_workspace_that_is_swapped_is_the_one_that_was_checked_or_none() {
    let service = Service::plain();
    let (inside, link) = (service.path("work").join("a"), service.path("work").join("link"));
    std::fs::create_dir(&inside).expect("a directory");
    let outside = service.path("home").join("precious");
    std::fs::create_dir(&outside).expect("a directory");
    symlink(&outside, &link).expect("a symlink");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Of every length: some hit between the check and the use, and some leave a request alone.
            for turn in 0_u64.. {
                if over.load(Ordering::Relaxed) && turn % 2 == 0 {
                    break;
                }
                renameat_with(CWD, &inside, CWD, &link, RenameFlags::EXCHANGE).expect("both are there");
                std::thread::sleep(Duration::from_micros(turn * 397 % 9000));
            }
        });
        let mut ran = 0;
        for _ in 0..120 {
            let body = json!({ "shell": "echo x > got-in", "workspace": text(&inside) });
            let started =
                service.ask("POST /v1/executions", &["Content-Type: application/json"], body.to_string());
            if started.status != 201 {
                continue;
            }
            let id = started.json()["id"].as_str().expect("an id").to_owned();
            let ended = service.get(&format!("/v1/executions/{id}/wait?within_ms=30000")).json();
            ran += usize::from(ended["ending"]["result"]["exit_code"] == 0);
        }
        over.store(true, Ordering::Relaxed);
        assert!(ran > 0, "the honest moments are served");
    });
    let found: Vec<_> = std::fs::read_dir(&outside).expect("it is there").collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn what_holds_the_services_own_files_is_no_workspace() {
    let service = Service::plain();
    // The directory of the configuration, of the state, and of both.
    for own in [service.path("state"), service.path(".")] {
        let body = json!({ "shell": "true", "workspace": text(&own) });
        let refused =
            service.ask("POST /v1/executions", &["Content-Type: application/json"], body.to_string());
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert_eq!(refused.json()["code"], "SK-R052", "{}", refused.text());
    }
}

#[test]
fn limits_of_the_service_hold_for_whatever_profile_is_named() {
    let config = "[limits]\nmemory = \"64M\"\n".to_owned();
    let service = Service::start(Options { config, ..Options::default() });
    for profile in ["default", "build", "readonly"] {
        let body = json!({ "shell": "true", "profile": profile });
        let refused =
            service.ask("POST /v1/executions", &["Content-Type: application/json"], body.to_string());
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("SK-R051")), "{}", refused.text());
    }
    assert_eq!(service.execute(r#"{"command":"true"}"#).json()["exitCode"], 0);
}

#[test]
fn a_start_that_is_refused_leaves_no_file() {
    let service = Service::plain();
    let body = json!({ "shell": "true", "profile": "p".repeat(5000) });
    for _ in 0..10 {
        let refused =
            service.ask("POST /v1/executions", &["Content-Type: application/json"], body.to_string());
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    let mut kept = 0;
    for shard in std::fs::read_dir(service.path("state").join("output")).expect("it is there") {
        kept += std::fs::read_dir(shard.expect("it is there").path()).expect("a shard").count();
    }
    assert_eq!(kept, 0);
}

/// A file that came into the directory of profiles after the start, from wherever: a workspace that held it, a
/// careless copy. It is no profile until somebody who may says so.
#[test]
fn a_profile_that_was_planted_is_not_there() {
    let service = Service::plain();
    let profiles = service.path("home").join("stockade/profiles");
    std::fs::create_dir_all(&profiles).expect("a directory");
    let open = format!("extends = \"default\"\n[filesystem]\nreadable = [{:?}]\n", service.path("state"));
    std::fs::write(profiles.join("open.toml"), open).expect("a file");
    let body = json!({ "shell": "true", "profile": "open" });
    let refused = service.ask("POST /v1/executions", &["Content-Type: application/json"], body.to_string());
    let id = refused.json()["id"].as_str().expect("an id").to_owned();
    let ended = service.get(&format!("/v1/executions/{id}/wait?within_ms=30000"));
    assert!(ended.text().contains("SK-R020"), "{}", ended.text());
}

/// The request's own time is the shorter one.
#[test]
fn a_request_asks_for_less_time_than_its_profile_has() {
    let service = Service::start(Options {
        profiles: vec![("quick", "extends = \"default\"\n[limits]\nwall = \"1s\"\n")],
        ..Options::default()
    });
    let body = json!({ "shell": "sleep 30", "profile": "quick", "timeout_ms": 60_000 });
    let started = service.ask("POST /v1/executions", &["Content-Type: application/json"], body.to_string());
    let id = started.json()["id"].as_str().expect("an id").to_owned();
    let ended = service.get(&format!("/v1/executions/{id}/wait?within_ms=20000")).json();
    assert_eq!(ended["ending"]["result"]["outcome"]["kind"], "timed-out", "{ended}");
}

/// Who is refused at a door is on record, and a flood of that is no way to fill the disk.
#[test]
fn refusals_are_in_the_audit_log_and_a_flood_is_a_few_lines() {
    let service = Service::start(Options { secret: Some("right-word-71".into()), ..Options::default() });
    let refused = |reason: &str| {
        let log = std::fs::read_to_string(service.path("state/audit/000001.log")).expect("it is there");
        let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        entries
            .filter(|entry| entry["body"]["event"] == "refused" && entry["body"]["code"] == reason)
            .map(|entry| (entry["principal"].clone(), entry["body"]["door"].clone()))
            .collect::<Vec<_>>()
    };
    let wrong = "GET /v1/executions HTTP/1.1\r\nHost: localhost\r\nX-Executor-Secret: wrong-word-72\r\n\
                 Connection: close\r\n\r\n";
    for _ in 0..200 {
        assert_eq!(Answer::only(&service.raw(wrong)).status, 401);
    }
    let body = json!({ "shell": "true", "workspace": text(&service.path("state")) });
    assert_eq!(service.start_execution(&body).status, 403);
    let json = json!({ "command": "true", "cwd": text(&service.path("state")) });
    assert_eq!(service.execute(json.to_string()).status, 403);
    service.get("/v1/audit").is_problem(403, "SK-R051");
    let by_secret = |door: &str| (json!("http:secret"), json!(door));
    until("both workspaces", || (refused("SK-R052") == [by_secret("v1"), by_secret("http")]).then_some(()));
    until("the scope", || (refused("SK-R051") == [by_secret("v1")]).then_some(()));
    let anyone = refused("SK-R070");
    assert!((16..20).contains(&anyone.len()), "{anyone:?}");
    let log = std::fs::read_to_string(service.path("state/audit/000001.log")).expect("it is there");
    assert!(!log.contains("wrong-word-72"), "{log}");
}
