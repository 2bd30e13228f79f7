//! Every field, with everything that it is not. Nothing here may be a 5xx, and the service must live on.

use serde_json::{Value, json};
use stockade_contract_tests::Service;

/// As JSON text, since not all of it is a value.
fn anything() -> Vec<String> {
    let mut values: Vec<String> = [
        "null",
        "true",
        "false",
        "0",
        "-1",
        "-0",
        "1.5",
        "1e3",
        "-1e308",
        "1e999",
        "99999999999999999999",
        "NaN",
        "Infinity",
        "\"\"",
        "\"\\u0000\"",
        "\"a\\u0000b\"",
        "\"\\ud800\"",
        "\"\\r\\n\"",
        "\"../../..\"",
        "[]",
        "[[]]",
        "[null]",
        "[\"\"]",
        "{}",
        "{\"hex\":\"zz\"}",
        "{\"hex\":\"00\"}",
        "{\"a\":{}}",
        "'x'",
        "undefined",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push(format!("\"{}\"", "x".repeat(300_000)));
    values.push(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    values.push(format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000)));
    values
}

/// Bodies in which `field` is each of them, alone and beside a member that is right.
fn bodies(field: &str, right: &str) -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for value in anything() {
        bodies.push(format!(r#"{{"{field}":{value}}}"#).into_bytes());
        bodies.push(format!(r#"{{{right},"{field}":{value}}}"#).into_bytes());
        bodies.push(format!(r#"{{"{field}":{value},"{field}":{value}}}"#).into_bytes());
    }
    bodies.push(format!("{{\"{field}\":\"\u{0}\"}}").into_bytes());
    bodies.push([b"{\"", field.as_bytes(), b"\":\"\xff\xfe\"}"].concat());
    bodies.push([b"{\"", field.as_bytes(), b"\":\"\xed\xa0\x80\"}"].concat());
    bodies
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned()
}

#[test]
fn of_execute() {
    let service = Service::plain();
    for field in ["command", "cwd", "timeout"] {
        for body in bodies(field, r#""command":"true""#) {
            let answer = service.execute(&body);
            assert!(answer.status < 500, "{}: {} {}", shown(&body), answer.status, answer.text());
            let value = answer.json();
            match answer.status {
                200 => assert!(value["exitCode"].is_u64(), "{}: {value}", shown(&body)),
                _ => assert!(value["error"].is_string(), "{}: {value}", shown(&body)),
            }
        }
    }
    service.get("/health").is(200, r#"{"status":"ok"}"#);
}

#[test]
fn of_a_start() {
    let service = Service::plain();
    let fields = [
        "command",
        "shell",
        "profile",
        "workspace",
        "cwd",
        "env",
        "timeout_ms",
        "stdin",
        "idempotency_key",
        "unknown",
    ];
    for field in fields {
        for body in bodies(field, r#""shell":"true""#) {
            let answer = service.ask("POST /v1/executions", &["Content-Type: application/json"], &body);
            assert!(answer.status < 500, "{}: {} {}", shown(&body), answer.status, answer.text());
            if answer.status >= 400 {
                answer.is_problem(
                    answer.status,
                    answer.json()["code"].as_str().expect("as this test needs it"),
                );
            }
            if field == "unknown" {
                assert_eq!(answer.status, 400, "{}", shown(&body));
            }
        }
    }
    service.get("/health").is(200, r#"{"status":"ok"}"#);
}

#[test]
fn of_a_start_by_name() {
    let service = Service::plain();
    let start = |body: Value| service.start_execution(&body);
    for (body, status, code) in [
        (json!({}), 400, "SK-R050"),
        (json!({ "command": ["true"], "shell": "true" }), 400, "SK-R050"),
        (json!({ "shell": "true", "unknown": 1 }), 400, "SK-R050"),
        (json!({ "shell": "true", "timeout_ms": -1 }), 400, "SK-R050"),
        (json!({ "shell": "true", "stdin": null }), 400, "SK-R050"),
        (json!({ "shell": "true", "env": { "A": 5 } }), 400, "SK-R050"),
        (json!({ "shell": "true", "workspace": "/etc" }), 403, "SK-R052"),
        (json!({ "shell": "true", "workspace": "relative" }), 403, "SK-R052"),
        (json!({ "shell": "true", "workspace": "/nowhere" }), 400, "SK-R010"),
        (json!({ "shell": "true", "idempotency_key": "" }), 400, "SK-R050"),
        (json!({ "shell": "true", "idempotency_key": "k".repeat(256) }), 400, "SK-R050"),
        (json!({ "shell": "true", "profile": "p".repeat(5000) }), 400, "SK-R050"),
    ] {
        let answer = start(body.clone());
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        answer.is_problem(status, code);
    }
    // What only the planner knows is in the record of an execution that never ran.
    for (body, code) in [
        (json!({ "shell": "a\u{0}b" }), "SK-R002"),
        (json!({ "command": [] }), "SK-R001"),
        (json!({ "command": [""] }), "SK-R001"),
        (json!({ "shell": "true", "profile": "nothing" }), "SK-R020"),
        (json!({ "shell": "true", "cwd": "/nowhere" }), "SK-R013"),
        (json!({ "shell": "true", "timeout_ms": 0 }), "SK-R023"),
        (json!({ "shell": "true", "env": { "LD_PRELOAD": "x" } }), "SK-R005"),
    ] {
        let started = start(body.clone());
        assert_eq!(started.status, 201, "{body}: {}", started.text());
        let id = started.json()["id"].as_str().expect("as this test needs it").to_owned();
        let ended = service.get(&format!("/v1/executions/{id}/wait")).json();
        assert_eq!(ended["ending"]["not-run"]["refusal"]["code"], code, "{body}: {ended}");
    }
}

#[test]
fn of_queries_and_paths() {
    let service = Service::plain();
    let id = service.start_execution(&json!({ "shell": "true" })).json()["id"]
        .as_str()
        .expect("as this test needs it")
        .to_owned();
    for path in [
        "/v1/executions?limit=0",
        "/v1/executions?limit=501",
        "/v1/executions?limit=-1",
        "/v1/executions?limit=NaN",
        "/v1/executions?limit=1&limit=1",
        "/v1/executions?limit=%31",
        "/v1/executions?state=dead",
        "/v1/executions?after=x",
        "/v1/executions?unknown=1",
        "/v1/executions/ID/output?after=-1",
        "/v1/executions/ID/output?after=99999999999999999999",
        "/v1/executions/ID/output?limit=99999999",
        "/v1/executions/ID/output?wait_ms=60001",
        "/v1/executions/ID/wait?within_ms=1.5",
        "/v1/executions/ID/events?after=a",
        "/v1/executions/ID?x",
    ] {
        service.get(&path.replace("ID", &id)).is_problem(400, "SK-R050");
    }
    for which in ["x", "%00", "../../etc", "00000000-0000-0000-0000-000000000000", &id.to_uppercase(), "."] {
        let answer = service.get(&format!("/v1/executions/{which}"));
        assert_eq!(answer.status, 404, "{which}: {}", answer.text());
    }
    let huge = service.get(&format!("/v1/executions/{id}/output?after=18446744073709551615")).json();
    assert_eq!(huge["chunks"], json!([]));
    for last in ["x", "-1", "", "1 2", "99999999999999999999999"] {
        let field = format!("Last-Event-ID: {last}");
        service.ask(&format!("GET /v1/executions/{id}/events"), &[&field], "").is_problem(400, "SK-R050");
    }
}
