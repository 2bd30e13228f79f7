//! `GET /health` and `POST /execute`, one row per promise: what is sent, and the status and the bytes of the body that
//! come back. A row with a reason is a deliberate difference from the compatible server.

use stockade_contract_tests::{Options, Service, pattern};

struct Row {
    line: &'static str,
    body: &'static str,
    status: u16,
    /// With `<ms>` and `<id>` for what differs from run to run.
    reply: &'static str,
    /// Why it is not as there.
    differs: Option<&'static str>,
}

const fn same(line: &'static str, body: &'static str, status: u16, reply: &'static str) -> Row {
    Row { line, body, status, reply, differs: None }
}

const fn differs(body: &'static str, status: u16, reply: &'static str, why: &'static str) -> Row {
    Row { line: "POST /execute", body, status, reply, differs: Some(why) }
}

const fn ran(body: &'static str, reply: &'static str) -> Row {
    same("POST /execute", body, 200, reply)
}

const NOT_FOUND: &str = r#"{"error":"Not found"}"#;
const COMMAND: &str = r#"{"error":"Missing or invalid command"}"#;
const TIMEOUT: &str = r#"{"error":"timeout must be an integer between 1000 and 300000 ms"}"#;
const JSON_BODY: &str = r#"{"error":"Invalid JSON body"}"#;

/// `outcome` and `execution` stand behind the six members of the compatible server in every reply of a command
/// that ran: clients that don't know them ignore them (HTTP-4).
const ROWS: &[Row] = &[
    same("GET /health", "", 200, r#"{"status":"ok"}"#),
    same("GET /", "", 404, NOT_FOUND),
    same("POST /health", "", 404, NOT_FOUND),
    same("GET /execute", "", 404, NOT_FOUND),
    same("PUT /execute", r#"{"command":"true"}"#, 404, NOT_FOUND),
    same("DELETE /nothing", "", 404, NOT_FOUND),
    same("POST /execute", "", 400, JSON_BODY),
    same("POST /execute", "{", 400, JSON_BODY),
    same("POST /execute", "null", 400, JSON_BODY),
    same("POST /execute", "[]", 400, COMMAND),
    same("POST /execute", "7", 400, COMMAND),
    same("POST /execute", "{}", 400, COMMAND),
    same("POST /execute", r#"{"command":""}"#, 400, COMMAND),
    same("POST /execute", r#"{"command":null}"#, 400, COMMAND),
    same("POST /execute", r#"{"command":["ls"]}"#, 400, COMMAND),
    same("POST /execute", r#"{"command":"true","timeout":null}"#, 400, TIMEOUT),
    same("POST /execute", r#"{"command":"true","timeout":0}"#, 400, TIMEOUT),
    same("POST /execute", r#"{"command":"true","timeout":999}"#, 400, TIMEOUT),
    same("POST /execute", r#"{"command":"true","timeout":300001}"#, 400, TIMEOUT),
    same("POST /execute", r#"{"command":"true","timeout":1000.5}"#, 400, TIMEOUT),
    same("POST /execute", r#"{"command":"true","timeout":"5000"}"#, 400, TIMEOUT),
    ran(
        r#"{"command":"echo hi"}"#,
        r#"{"stdout":"hi","stderr":"","exitCode":0,"success":true,"command":"echo hi","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    ran(
        r#"{"command":"echo \"a b\"; echo oops >&2; exit 3","timeout":5000}"#,
        r#"{"stdout":"a b","stderr":"oops","exitCode":3,"success":false,"command":"echo \"a b\"; echo oops >&2; exit 3","duration_ms":<ms>,"outcome":{"kind":"exited","code":3},"execution":"<id>"}"#,
    ),
    // Trimmed as JavaScript trims, and nothing in between is touched.
    ran(
        r#"{"command":"printf ' \\n\\t a\\r\\n b \\n\\n'"}"#,
        r#"{"stdout":"a\r\n b","stderr":"","exitCode":0,"success":true,"command":"printf ' \\n\\t a\\r\\n b \\n\\n'","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    // Bytes that are no UTF-8, control characters.
    ran(
        r#"{"command":"printf 'a\\377\\001\\033b'"}"#,
        r#"{"stdout":"a�\u0001\u001bb","stderr":"","exitCode":0,"success":true,"command":"printf 'a\\377\\001\\033b'","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    // It is bash.
    ran(
        r#"{"command":"[[ x == x ]] && echo ${BASH_VERSION:+bash}"}"#,
        r#"{"stdout":"bash","stderr":"","exitCode":0,"success":true,"command":"[[ x == x ]] && echo ${BASH_VERSION:+bash}","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    // The last of two members with one name, and members that nobody knows.
    ran(
        r#"{"command":"exit 1","command":"true","shell":"zsh","x":[{}]}"#,
        r#"{"stdout":"","stderr":"","exitCode":0,"success":true,"command":"true","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    // A whole number however it is written.
    ran(
        r#"{"command":"true","timeout":1e3}"#,
        r#"{"stdout":"","stderr":"","exitCode":0,"success":true,"command":"true","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    // A signal and the timeout are 1, and `outcome` says which (HTTP-4).
    ran(
        r#"{"command":"kill -9 $$"}"#,
        r#"{"stdout":"","stderr":"","exitCode":1,"success":false,"command":"kill -9 $$","duration_ms":<ms>,"outcome":{"kind":"signaled","signal":9},"execution":"<id>"}"#,
    ),
    ran(
        r#"{"command":"echo begun; sleep 60; echo never","timeout":1000}"#,
        r#"{"stdout":"begun","stderr":"","exitCode":1,"success":false,"command":"echo begun; sleep 60; echo never","duration_ms":<ms>,"outcome":{"kind":"timed-out"},"execution":"<id>"}"#,
    ),
    // Stdin is closed: nothing waits for it.
    ran(
        r#"{"command":"cat; echo over"}"#,
        r#"{"stdout":"over","stderr":"","exitCode":0,"success":true,"command":"cat; echo over","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    // An empty cwd is none.
    ran(
        r#"{"command":"basename \"$PWD\"","cwd":""}"#,
        r#"{"stdout":"work","stderr":"","exitCode":0,"success":true,"command":"basename \"$PWD\"","duration_ms":<ms>,"outcome":{"kind":"exited","code":0},"execution":"<id>"}"#,
    ),
    differs(
        r#"{"command":"true","cwd":5}"#,
        400,
        r#"{"error":"Missing or invalid cwd"}"#,
        "there it throws in the server; here it is the caller's mistake",
    ),
    differs(
        "{\"command\":\"a\\ud800\"}",
        400,
        JSON_BODY,
        "half of a surrogate pair is no text, and no argument of a program",
    ),
    differs(
        r#"{"command":"true","timeout":1e999}"#,
        400,
        JSON_BODY,
        "there it becomes Infinity, and is refused as a timeout",
    ),
];

#[test]
fn every_row_of_the_contract() {
    let service = Service::plain();
    let mut wrong = Vec::new();
    for row in ROWS {
        let answer = service.ask(row.line, &[], row.body);
        let reply = pattern(&answer.text());
        if (answer.status, reply.as_str()) != (row.status, row.reply) {
            let why = row.differs.unwrap_or("as there");
            wrong.push(format!(
                "{} {} ({why})\n  {} {reply}\n  not {} {}",
                row.line, row.body, answer.status, row.status, row.reply
            ));
        }
        assert_eq!(answer.field("content-type"), Some("application/json"), "{} {}", row.line, row.body);
        assert!(answer.fields.iter().all(|(name, _)| !name.starts_with("access-control")), "CORS is closed");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What we refuse to run is told with a code and a remedy: there it is a 200 with an odd `exitCode`, a crash, or
/// it runs (HTTP-5, SOCK-4).
#[test]
fn refusals_before_the_start_have_guidance() {
    let service = Service::plain();
    for (body, status, code) in [
        (r#"{"command":"a\u0000b"}"#, 400, "SK-R002"),
        (r#"{"command":"echo a\r\necho b"}"#, 400, "SK-R002"),
        (r#"{"command":" \n "}"#, 400, "SK-R001"),
        (r#"{"command":"true","cwd":"/nowhere"}"#, 400, "SK-R010"),
        (r#"{"command":"true","cwd":"/a\u0000b"}"#, 400, "SK-R010"),
        (r#"{"command":"true","cwd":"missing-below"}"#, 400, "SK-R013"),
        (r#"{"command":"true","cwd":".."}"#, 400, "SK-R013"),
        (r#"{"command":"true","cwd":"/etc"}"#, 403, "SK-R052"),
    ] {
        let answer = service.execute(body);
        assert!(answer.status == status, "{body}: {} {}", answer.status, answer.text());
        answer.is_problem(status, code);
    }
    let long = format!(r#"{{"command":"true {}"}}"#, "x".repeat(200_000));
    service.execute(long).is_problem(400, "SK-R003");
    let longer = format!(r#"{{"command":"true {}"}}"#, "x".repeat(1_048_000));
    assert_eq!(service.execute(longer).status, 400);
    assert_eq!(service.get("/health").status, 200);
}

#[test]
fn what_is_not_found_is_127() {
    let reply = Service::plain().execute(r#"{"command":"no-such-program-here"}"#);
    let value = reply.json();
    assert_eq!((reply.status, &value["exitCode"], &value["success"]), (200, &127.into(), &false.into()));
    assert!(
        value["stderr"].as_str().expect("as this test needs it").contains("command not found"),
        "{value}"
    );
}

#[test]
fn the_secret_is_wanted_and_is_nowhere_else() {
    let secret = "a-very-secret-word-7391";
    let service = Service::start(Options { secret: Some(secret.into()), ..Options::default() });
    assert!(service.said().contains("Auth: enabled"), "{}", service.said());
    let without = |fields: &str, body: &str| {
        let length = body.len();
        let head = format!("POST /execute HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        stockade_contract_tests::Answer::only(&service.raw(request))
    };
    for fields in
        ["", "X-Executor-Secret: wrong\r\n", "X-Executor-Secret:\r\n", "Authorization: Basic eDp5\r\n"]
    {
        // Before the body is looked at.
        without(fields, "{").is(401, r#"{"error":"Unauthorized"}"#);
    }
    // A wrong token is not overlooked for the right secret; another scheme is a proxy's own.
    let with = format!("X-Executor-Secret: {secret}\r\n");
    let body = r#"{"command":"true"}"#;
    for (more, status) in [
        ("", 200),
        ("Authorization: Basic eDp5\r\n", 200),
        ("Authorization: Bearer nothing\r\n", 401),
        (with.as_str(), 401),
    ] {
        assert_eq!(without(&format!("{with}{more}"), body).status, status, "{more}");
    }
    let reply =
        service.execute(r#"{"command":"env; cat /proc/self/environ; ls /proc/*/environ | xargs cat"}"#);
    assert_eq!(reply.status, 200);
    assert!(!reply.text().contains(secret), "{}", reply.text());
    assert!(!service.said().contains(secret), "{}", service.said());
}

#[test]
fn ten_megabytes_come_back_whole() {
    let service = Service::plain();
    let reply =
        service.execute(r#"{"command":"head -c 10000000 /dev/zero | tr '\\0' 'a'; echo; echo 'é\"'"}"#);
    let value = reply.json();
    let stdout = value["stdout"].as_str().expect("as this test needs it");
    assert_eq!((reply.status, stdout.len()), (200, 10_000_004));
    assert!(stdout.ends_with("a\né\"") && value.get("truncated").is_none());
}

#[test]
fn more_than_a_reply_holds_is_cut_and_said_so() {
    let service = Service::plain();
    let reply =
        service.execute(r#"{"command":"head -c 100000000 /dev/zero | tr '\\0' 'a'","timeout":60000}"#);
    let value = reply.json();
    assert_eq!((reply.status, &value["truncated"], &value["exitCode"]), (200, &true.into(), &0.into()));
    let length = value["stdout"].as_str().expect("as this test needs it").len();
    assert!((48 << 20..50 << 20).contains(&length), "{length}");
}
