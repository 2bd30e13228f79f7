//! `/v1` from start to end: start, feed, follow, resume, stop, read again.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};
use stockade_contract_tests::{Answer, Options, Service, events, until};

#[track_caller]
fn start(service: &Service, body: &Value) -> String {
    let started = service.start_execution(body);
    assert_eq!(started.status, 201, "{}", started.text());
    let id = started.json()["id"].as_str().expect("as this test needs it").to_owned();
    assert_eq!(started.field("location"), Some(format!("/v1/executions/{id}").as_str()));
    id
}

#[test]
fn stdin_goes_in_and_output_comes_out_by_cursor() {
    let service = Service::plain();
    let id = start(
        &service,
        &json!({ "shell": "while read -r x; do echo \"got $x\"; done; echo bye >&2", "stdin": true }),
    );
    let stdin = |query: &str, body: &[u8]| {
        service.ask(
            &format!("POST /v1/executions/{id}/stdin{query}"),
            &["Content-Type: application/octet-stream"],
            body,
        )
    };
    assert_eq!(stdin("", b"one\n").status, 204);
    let read =
        |after: u64| service.get(&format!("/v1/executions/{id}/output?after={after}&wait_ms=20000")).json();
    let first = read(0);
    assert_eq!((&first["chunks"][0]["bytes"], &first["rest"]), (&json!("got one\n"), &json!("open")));
    assert_eq!(stdin("?end=true", b"two\n").status, 204);
    let ended = service.get(&format!("/v1/executions/{id}/wait")).json();
    assert_eq!((&ended["state"], &ended["ending"]["result"]["exit_code"]), (&json!("ended"), &json!(0)));
    let rest = read(first["next"].as_u64().expect("as this test needs it"));
    let text: Vec<&str> = rest["chunks"]
        .as_array()
        .expect("as this test needs it")
        .iter()
        .filter_map(|it| it["bytes"].as_str())
        .collect();
    assert_eq!((text.concat().as_str(), &rest["rest"]), ("got two\nbye\n", &json!("ended")));
    stdin("", b"late").is_problem(409, "SK-R054");
}

#[test]
fn a_large_stdin_arrives_whole() {
    let service = Service::plain();
    let id = start(&service, &json!({ "command": ["sha256sum"], "stdin": true }));
    let body: Vec<u8> =
        (0..1_048_576u32).map(|at| u8::try_from(at * 7 % 256).expect("as this test needs it")).collect();
    let path = format!("POST /v1/executions/{id}/stdin?end=true");
    assert_eq!(service.ask(&path, &["Content-Type: application/octet-stream"], &body).status, 204);
    service.get(&format!("/v1/executions/{id}/wait"));
    let local = service.path("work").join("same");
    std::fs::write(&local, &body).expect("as this test needs it");
    let sum = std::process::Command::new("sha256sum")
        .stdin(std::fs::File::open(&local).expect("as this test needs it"))
        .output()
        .expect("as this test needs it");
    let output = service.get(&format!("/v1/executions/{id}/output")).json();
    assert_eq!(output["chunks"][0]["bytes"], String::from_utf8(sum.stdout).expect("as this test needs it"));
}

#[test]
fn events_can_be_followed_left_and_taken_up_again() {
    let service = Service::plain();
    let id = start(
        &service,
        &json!({ "shell": "for i in 1 2 3 4 5 6; do echo $i; echo e$i >&2; sleep 0.2; done" }),
    );
    // Leaves after the first event.
    let mut stream = service.connect();
    stream
        .write_all(&service.request(&format!("GET /v1/executions/{id}/events"), &[], b""))
        .expect("as this test needs it");
    let mut bytes = Vec::new();
    let seen = until("an event", || {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).expect("as this test needs it");
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())?;
        // Chunk sizes are lines of their own, and no fields.
        let seen = events(&body.replace('\r', ""));
        (!seen.is_empty()).then_some(seen)
    });
    drop(stream);
    let last = seen.last().expect("as this test needs it").id.expect("as this test needs it");
    let answer =
        service.ask(&format!("GET /v1/executions/{id}/events"), &[&format!("Last-Event-ID: {last}")], "");
    assert_eq!(answer.field("content-type"), Some("text/event-stream"));
    let rest = events(&answer.text());
    let all: Vec<_> = seen.iter().chain(&rest).collect();
    let text = |stream: &str| -> String {
        all.iter()
            .filter(|event| event.name == stream)
            .filter_map(|event| event.value["bytes"].as_str())
            .collect()
    };
    assert_eq!(
        (text("stdout").as_str(), text("stderr").as_str()),
        ("1\n2\n3\n4\n5\n6\n", "e1\ne2\ne3\ne4\ne5\ne6\n")
    );
    let ids: Vec<u64> = all.iter().filter_map(|event| event.id).collect();
    assert!(ids.windows(2).all(|two| two[0] < two[1]), "{ids:?}");
    let ended = all.last().expect("as this test needs it");
    assert_eq!((ended.name.as_str(), &ended.value["state"]), ("ended", &json!("ended")));
    // After the end: everything again, or only the end.
    let again = events(&service.get(&format!("/v1/executions/{id}/events")).text());
    assert_eq!(
        again.iter().filter(|event| event.name == "stdout").count(),
        all.iter().filter(|event| event.name == "stdout").count()
    );
    let none = events(
        &service
            .get(&format!("/v1/executions/{id}/events?after={}", ids.last().expect("as this test needs it")))
            .text(),
    );
    assert_eq!(none.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["ended"]);
}

#[test]
fn a_follower_that_never_reads_slows_nothing() {
    let service = Service::plain();
    let id = start(&service, &json!({ "shell": "head -c 30000000 /dev/zero | tr '\\0' 'x'; echo done" }));
    let mut stream = service.connect();
    stream
        .write_all(&service.request(&format!("GET /v1/executions/{id}/events"), &[], b""))
        .expect("as this test needs it");
    let ended = service.get(&format!("/v1/executions/{id}/wait?within_ms=60000")).json();
    assert_eq!(ended["state"], "ended", "{ended}");
    // And has lost nothing when it reads at last.
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("as this test needs it");
    let text = Answer::only(&bytes).text();
    let length: usize =
        events(&text).iter().filter_map(|event| event.value["bytes"].as_str()).map(str::len).sum();
    assert_eq!(length, 30_000_005);
}

#[test]
fn the_same_key_is_the_same_execution() {
    let service = Service::plain();
    let ask = |key: &str| {
        let fields = ["Content-Type: application/json", &format!("Idempotency-Key: {key}")];
        service.ask("POST /v1/executions", &fields, r#"{"shell":"echo x >> count"}"#)
    };
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..16).map(|_| scope.spawn(|| ask("k"))).collect();
        asking.into_iter().map(|one| one.join().expect("as this test needs it")).collect()
    });
    let ids: std::collections::BTreeSet<String> = answers
        .iter()
        .map(|answer| answer.json()["id"].as_str().expect("as this test needs it").to_owned())
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    let id = ids.first().expect("as this test needs it");
    service.get(&format!("/v1/executions/{id}/wait"));
    assert_eq!(
        std::fs::read_to_string(service.path("work").join("count")).expect("as this test needs it"),
        "x\n"
    );
}

#[test]
fn load_beyond_the_cap_waits_or_is_turned_away_with_a_time() {
    let config = "[admission]\nrunning = 2\nwaiting = 2\n";
    let service = Service::start(Options { config: config.into(), ..Options::default() });
    let statuses: Vec<Answer> = std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..12).map(|_| scope.spawn(|| service.execute(r#"{"command":"sleep 1"}"#))).collect();
        asking.into_iter().map(|one| one.join().expect("as this test needs it")).collect()
    });
    let (ran, turned_away): (Vec<_>, Vec<_>) = statuses.iter().partition(|answer| answer.status == 200);
    assert!(ran.len() >= 4, "{statuses:?}");
    assert!(!turned_away.is_empty());
    for answer in turned_away {
        answer.is_problem(503, "SK-R055");
        assert!(answer.field("retry-after").is_some_and(|wait| wait.parse::<u32>().is_ok()));
    }
}

#[test]
fn the_bodies_match_the_document() {
    let service = Service::plain();
    let document = service.get("/v1/openapi.json").json();
    let id = start(&service, &json!({ "shell": "echo hi; echo no >&2; exit 4" }));
    service.get(&format!("/v1/executions/{id}/wait"));
    for (path, schema) in [
        (format!("/v1/executions/{id}"), "Execution"),
        (format!("/v1/executions/{id}/output"), "Output"),
        ("/v1/executions".to_owned(), "Page"),
        ("/v1/doctor".to_owned(), "Health"),
        ("/v1/executions/none".to_owned(), "Problem"),
    ] {
        let body = service.get(&path).json();
        let schema = &document["components"]["schemas"][schema];
        for name in schema["required"].as_array().expect("as this test needs it") {
            assert!(
                body.get(name.as_str().expect("as this test needs it")).is_some(),
                "{path}: {name} is not in {body}"
            );
        }
        for name in body.as_object().expect("as this test needs it").keys() {
            assert!(schema["properties"].get(name).is_some(), "{path}: {name} is not in the document");
        }
    }
}
