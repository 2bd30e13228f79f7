//! Spans of executions, as a collector gets them; and collectors that are down, silent or out of their mind, which no
//! execution notices.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use stockade_contract_tests::{Options, Service, deadline, slowness, until};

/// Longer than any export may take: what waits for one is behind it.
const FAR: Duration = Duration::from_secs(5);

/// Takes what is posted to it and answers it so; gives the heads and the bodies.
fn collector(answer: &'static [u8]) -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (taken, given) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Some(message) = take(&stream) else { continue };
            // An error: it has seen enough, or the test has.
            drop((&stream).write_all(answer));
            if taken.send(message).is_err() {
                return;
            }
        }
    });
    (address, given)
}

fn take(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut reader, mut head, mut length) = (BufReader::new(stream), String::new(), 0);
    loop {
        let from = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if let Some(value) = head[from..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if &head[from..] == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";

fn sending_to(address: SocketAddr, more: &str) -> Service {
    let config = format!("[telemetry]\notlp = \"http://{address}\"\n{more}");
    Service::start(Options { config, env: theirs().into(), ..Options::default() })
}

/// What the environment says to programs that ask it.
fn theirs() -> [(String, String); 6] {
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-word=walrus-7717"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_SERVICE_NAME", "walrus-7718"),
        ("OTEL_RESOURCE_ATTRIBUTES", "word=walrus-7719"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

#[track_caller]
fn started(service: &Service, request: &serde_json::Value) -> String {
    let answer = service.start_execution(request);
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn said(pairs: &[KeyValue], key: &str) -> String {
    let pair = pairs.iter().find(|pair| pair.key == key);
    text(pair.unwrap_or_else(|| panic!("no {key}: {pairs:?}")).value.as_ref())
}

/// The spans of one execution, from however many messages.
#[track_caller]
fn trace(given: &Receiver<(String, Vec<u8>)>, id: &str) -> Vec<Span> {
    let wanted = id.replace('-', "");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    loop {
        let (head, body) = given.recv_timeout(deadline()).expect("a message");
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let everything = head + &String::from_utf8_lossy(&body);
        assert!(!everything.contains("walrus"), "{everything}");
        let message = ExportTraceServiceRequest::decode(body.as_slice()).expect("a message of the protocol");
        let resource = message.resource_spans[0].resource.as_ref().expect("a resource");
        assert_eq!(said(&resource.attributes, "service.name"), "builds");
        let spans = message.resource_spans.into_iter().flat_map(|spans| spans.scope_spans);
        let spans = spans.flat_map(|scope| scope.spans).filter(|span| hex(&span.trace_id) == wanted);
        let spans: Vec<Span> = spans.collect();
        if !spans.is_empty() {
            return spans;
        }
    }
}

#[test]
fn an_execution_is_a_span_without_its_command() {
    let (address, given) = collector(TAKEN);
    let service = sending_to(address, "service_name = \"builds\"\n");
    let request = json!({ "shell": "echo walrus-7715; exit 3", "env": { "WORD": "walrus-7716" } });
    let id = started(&service, &request);
    let spans = trace(&given, &id);
    let (root, parts) = spans.split_last().expect("spans");
    assert_eq!(root.name, "execution");
    assert!(root.parent_span_id.is_empty(), "{root:?}");
    for (key, value) in [
        ("stockade.execution.id", id.as_str()),
        ("stockade.door", "v1"),
        ("stockade.profile", "default"),
        ("stockade.outcome", "exited"),
        ("process.exit.code", "3"),
        ("stockade.stdout_bytes", "12"),
        ("stockade.stderr_bytes", "0"),
    ] {
        assert_eq!(said(&root.attributes, key), value, "{key}");
    }
    for key in
        ["principal", "queue_ms", "spawn_ms", "wall_ms", "cpu_user_ms", "cpu_system_ms", "memory_peak_bytes"]
    {
        assert!(!said(&root.attributes, &format!("stockade.{key}")).is_empty(), "{key}");
    }
    let failed = |span: &Span| span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
    assert!(!failed(root), "a command's own code is no failure: {root:?}");
    assert_eq!(parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["queue", "spawn", "run"]);
    for part in parts {
        assert_eq!(part.parent_span_id, root.span_id);
        let within = root.start_time_unix_nano..=root.end_time_unix_nano;
        assert!(within.contains(&part.start_time_unix_nano) && within.contains(&part.end_time_unix_nano));
        assert!(part.start_time_unix_nano <= part.end_time_unix_nano);
    }
    assert!(!format!("{spans:?}").contains("walrus"), "{spans:?}");

    let request = json!({ "shell": "sleep 1000", "timeout_ms": 1000 });
    let id = started(&service, &request);
    let spans = trace(&given, &id);
    let root = spans.last().expect("spans");
    assert!(failed(root), "{root:?}");
    assert_eq!(said(&root.attributes, "stockade.outcome"), "timed-out");
    assert_eq!(said(&root.attributes, "stockade.failure.code"), "UZ-EXEC-008");
    assert_eq!(said(&root.attributes, "stockade.failure.class"), "timeout_kill");
}

#[test]
fn what_is_left_is_sent_when_the_service_stops() {
    let (address, given) = collector(TAKEN);
    let mut service = sending_to(address, "service_name = \"builds\"\n");
    let id = started(&service, &json!({ "command": ["true"] }));
    service.get(&format!("/v1/executions/{id}/wait"));
    service.stop();
    assert_eq!(trace(&given, &id).len(), 4);
}

#[test]
fn a_reload_sends_spans_elsewhere_or_nowhere() {
    let (first, given) = collector(TAKEN);
    let (second, given_later) = collector(TAKEN);
    let name = "service_name = \"builds\"\n";
    let service = sending_to(first, name);
    let file = service.path("config.toml");
    let written = std::fs::read_to_string(&file).expect("it is ours");
    let reload = |text: &str, times: usize| {
        std::fs::write(&file, text).expect("it is ours");
        let pid = i32::try_from(service.pid()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::HUP).expect("it is our child");
        until("the reload", || (service.said().matches("\"reloaded\"").count() == times).then_some(()));
    };
    reload(&written.replace(&first.to_string(), &second.to_string()), 1);
    let id = started(&service, &json!({ "command": ["true"] }));
    assert_eq!(trace(&given_later, &id).len(), 4);
    let (before, _) = written.split_once("[telemetry]").expect("the section is there");
    reload(before, 2);
    let id = started(&service, &json!({ "command": ["true"] }));
    service.get(&format!("/v1/executions/{id}/wait"));
    drop(service);
    assert!(given.try_recv().is_err() && given_later.try_recv().is_err(), "nobody is sent to any more");
}

/// As many as one connection after the other brings; none waits for a collector.
#[track_caller]
fn goes_on(service: &Service) {
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed() < Duration::from_millis(1500) {
        let asked = Instant::now();
        assert_eq!(service.execute(r#"{"command":"true"}"#).status, 200);
        times.push(asked.elapsed());
    }
    let slowest = times.iter().max().expect("there was time for one");
    assert!(*slowest < FAR * slowness(), "one of {} took {slowest:?}", times.len());
}

fn dropped(service: &Service) -> u64 {
    let text = service.get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix("stockade_spans_dropped_total "));
    line.unwrap_or_else(|| panic!("{text}")).parse().expect("a number")
}

#[test]
fn a_collector_that_is_down_is_counted_and_told_once() {
    // Nobody listens on port 1.
    let mut service = sending_to(SocketAddr::from(([127, 0, 0, 1], 1)), "");
    goes_on(&service);
    until("two messages to be given up", || (dropped(&service) > 4 * 64).then_some(()));
    goes_on(&service);
    let said = service.said();
    assert_eq!(said.matches("the collector took no spans").count(), 1, "{said}");
    service.stop();
}

#[test]
fn a_collector_that_never_answers_stops_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut service = sending_to(silent.local_addr().expect("it is bound"), "");
    goes_on(&service);
    let (taken, _) = silent.accept().expect("spans come");
    goes_on(&service);
    until("a message to be given up", || (dropped(&service) > 0).then_some(()));
    // The rest has its moment, and no more.
    service.stop();
    assert!(service.said().contains("the last spans are not sent"), "{}", service.said());
    drop(taken);
}

#[test]
fn a_collector_that_answers_nonsense_stops_nothing() {
    for answer in [
        b"\x00\xff\xfe nonsense\r\n\r\n".as_slice(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
        b"HTTP/1.1 429 No\r\nRetry-After: 1000\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\nx",
    ] {
        let (address, given) = collector(answer);
        let mut service = sending_to(address, "");
        goes_on(&service);
        given.recv_timeout(deadline()).expect("spans come all the same");
        goes_on(&service);
        service.stop();
    }
}
