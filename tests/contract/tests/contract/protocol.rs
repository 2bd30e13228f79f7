//! HTTP itself, by clients that get it wrong or use what few use.

use std::io::{Read as _, Write as _};

use stockade_contract_tests::{Answer, Service};

fn chunked(body: &str) -> String {
    format!("POST /execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

#[test]
fn what_is_broken_is_refused_and_the_connection_closed() {
    let service = Service::plain();
    let long = "x".repeat(40_000);
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET /health HTTP/1.1\r\nno colon\r\n\r\n".into(), 400),
        ("GET /health HTTP/1.1\r\nA: \u{0}\r\n\r\n".into(), 400),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
        (format!("GET /health HTTP/1.1\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET /health HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(101)), 431),
        (chunked("zz\r\n"), 400),
        (chunked("4\r\nnullmore\r\n0\r\n\r\n"), 400),
        (chunked("-4\r\nnull\r\n"), 400),
        (chunked("fffffffffffffffff\r\n"), 400),
        ("POST /execute HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".into(), 400),
        (
            "POST /execute HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nnull".into(),
            400,
        ),
        (chunked("4\r\nnull\r\n0\r\n\r\n").replace("Host", "Content-Length: 4\r\nHost"), 400),
        ("POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n".into(), 413),
    ] {
        let answer = Answer::only(&service.raw(&request));
        assert_eq!(answer.status, status, "{request:.100}: {}", answer.text());
    }
    service.get("/health").is(200, r#"{"status":"ok"}"#);
}

#[test]
fn what_few_use_works() {
    let service = Service::plain();
    // HTTP/1.0 closes.
    Answer::only(&service.raw("GET /health HTTP/1.0\r\n\r\n")).is(200, r#"{"status":"ok"}"#);
    // Pipelining answers in order.
    let body = r#"{"command":"echo first"}"#;
    let first =
        format!("POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let bytes = service.raw(first + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /x HTTP/1.0\r\n\r\n");
    let (first, rest) = Answer::first(&bytes);
    let (second, rest) = Answer::first(rest);
    assert_eq!((first.status, first.json()["stdout"].as_str()), (200, Some("first")));
    second.is(200, r#"{"status":"ok"}"#);
    Answer::only(rest).is(404, r#"{"error":"Not found"}"#);
    // Chunks, with an extension and a trailer.
    let body = "7;x=y\r\n{\"comma\r\n12\r\nnd\":\"echo chunks\"}\r\n0\r\nTrailer: x\r\n\r\n";
    let bytes = service.raw(chunked(body) + "GET /health HTTP/1.0\r\n\r\n");
    let (answer, _) = Answer::first(&bytes);
    assert_eq!(answer.json()["stdout"], "chunks", "{}", answer.text());
    // The whole address in the request line, as proxies write it.
    let absolute = "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    Answer::only(&service.raw(absolute)).is(200, r#"{"status":"ok"}"#);
    // HEAD is a method that there is not, and has no body in any case.
    let head = String::from_utf8(service.raw("HEAD /health HTTP/1.0\r\n\r\n")).expect("a head is text");
    assert!(head.starts_with("HTTP/1.0 404 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn a_body_is_asked_for_only_when_it_is_wanted() {
    let service = Service::plain();
    let mut stream = service.connect();
    let head = |length: usize| {
        format!(
            "POST /execute HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let body = r#"{"command":"echo continued"}"#;
    stream.write_all(head(body.len()).as_bytes()).expect("as this test needs it");
    let mut word = [0; 25];
    stream.read_exact(&mut word).expect("as this test needs it");
    assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).expect("as this test needs it");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("as this test needs it");
    assert_eq!(Answer::only(&rest).json()["stdout"], "continued");
    Answer::only(&service.raw(head(1_048_577))).is(413, r#"{"error":"Request body too large"}"#);
}

#[test]
fn a_body_over_the_limit_is_413_even_to_those_who_write_first() {
    let service = Service::plain();
    let body = vec![b'x'; 5 << 20];
    let request = service.request("POST /execute", &[], &body);
    Answer::only(&service.raw(request)).is(413, r#"{"error":"Request body too large"}"#);
    let mut stream = service.connect();
    stream.write_all(chunked("").as_bytes()).expect("as this test needs it");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..64 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("as this test needs it");
    Answer::only(&rest).is(413, r#"{"error":"Request body too large"}"#);
    let exactly = format!(r#"{{"command":"true","x":"{}"}}"#, "x".repeat(1_048_576 - 25));
    assert_eq!(exactly.len(), 1_048_576);
    assert_eq!(service.execute(exactly).status, 200);
}

#[test]
fn methods_and_kinds_of_v1() {
    let service = Service::plain();
    let wrong = service.ask("PATCH /v1/executions", &[], "");
    wrong.is_problem(405, "SK-R072");
    assert_eq!(wrong.field("allow"), Some("POST, GET"));
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        let field = format!("Content-Type: {kind}");
        service.ask("POST /v1/executions", &[&field], r#"{"shell":"true"}"#).is_problem(415, "SK-R075");
    }
    service.ask("POST /v1/executions", &[], r#"{"shell":"true"}"#).is_problem(415, "SK-R075");
    service.get("/v1/unknown").is_problem(404, "SK-R071");
    let document = service.get("/v1/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let metrics = service.get("/metrics");
    assert!(metrics.text().contains("# TYPE stockade_spawn_seconds histogram"), "{}", metrics.text());
}

#[test]
fn web_pages_on_this_machine_get_nothing() {
    let service = Service::plain();
    let body = r#"{"command":"touch pwned"}"#;
    for fields in ["Host: localhost\r\nOrigin: https://evil.example", "Host: rebound.example:3001"] {
        let length = body.len();
        let head =
            format!("POST /execute HTTP/1.1\r\n{fields}\r\nConnection: close\r\nContent-Length: {length}");
        let answer = Answer::only(&service.raw(format!("{head}\r\n\r\n{body}")));
        answer.is(403, r#"{"error":"Requests of web pages need the secret"}"#);
    }
    assert!(!service.path("work").join("pwned").exists());
}
