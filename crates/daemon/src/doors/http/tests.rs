//! The door over real sockets, with a real store and no executor: everything up to the pipeline, and what callers
//! hear when nothing can run. With an executor: `tests/contract`.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use stockade_store::executions::{Keep, NewExecution};
use tokio::sync::{Semaphore, watch};

use super::{bind, serve};
use crate::admission::{Admission, Capacity};
use crate::config::{Config, HttpDoor, Seen, Workspaces};
use crate::core::Core;
use crate::dispatch::{Dispatch, Link};
use crate::events::Events;
use crate::execution::InHand;
use crate::metrics::Metrics;
use crate::record::Record;
use crate::refusals::Refusals;
use crate::telemetry::Telemetry;

struct Served {
    address: SocketAddr,
    core: Arc<Core>,
    stop: watch::Sender<bool>,
    /// As if one were being started.
    _links: watch::Sender<Option<Link>>,
    serving: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
}

impl Served {
    fn new(secret: Option<&str>, capacity: Capacity) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let work = directory.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let http =
            HttpDoor { address: "127.0.0.1:0".parse().unwrap(), secret: secret.map(SecretString::from) };
        let listening = bind(&http).unwrap();
        let address = listening.address();
        let state = directory.path().join("state");
        let (record, _) = Record::open_store(&state).unwrap();
        let config = Config {
            secrets_key: None,
            state: state.clone(),
            socket: None,
            http: Some(http),
            capacity,
            workspaces: Workspaces {
                roots: vec![work.clone()],
                default: work,
                state,
                closed: Vec::new(),
                home: None,
                seen: Seen::default(),
            },
            profile: "default".into(),
            only_own: false,
            service: stockade_proto::link::Terms::default(),
            stage_timeout: None,
            keep: Keep { age: Duration::from_secs(3600), bytes: 1 << 30 },
            drain: Duration::from_secs(1),
            telemetry: None,
        };
        let (links, link) = watch::channel(None);
        let core = Arc::new(Core {
            telemetry: Telemetry::default(),
            admission: Admission::new(capacity),
            dispatch: Dispatch::new(link),
            record,
            in_hand: InHand::default(),
            begun: Arc::default(),
            plans: Arc::new(Semaphore::new(8)),
            events: Events::default(),
            metrics: Metrics::default(),
            refusals: Refusals::default(),
            redactor: stockade_redact::Redactor::new(&[], true).unwrap(),
            current: crate::core::Current::new(config),
        });
        let (stop, stopped) = watch::channel(false);
        let serving = Some(runtime.spawn(serve(Arc::clone(&core), listening, stopped)));
        Self { address, core, stop, _links: links, serving, runtime, directory }
    }

    fn plain() -> Self {
        Self::new(None, Capacity::default())
    }

    fn token(&self, name: &str, scope: &str) -> String {
        let created = self.core.record.store().tokens.create(name, &[scope]).unwrap();
        created.text.expose_secret().to_owned()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends these bytes and reads until the other side closes.
    fn raw(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_ref()).unwrap();
        rest(stream)
    }

    fn ask(&self, head: &str, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let length = body.len();
        let head =
            format!("{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        Answer::read(&self.raw(request))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1"), "")
    }

    fn execute(&self, body: impl AsRef<[u8]>) -> Answer {
        self.ask("POST /execute HTTP/1.1", body)
    }
}

fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no reply: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    #[track_caller]
    fn is(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, body), "{}", self.head);
    }

    #[track_caller]
    fn problem(&self, status: u16, code: &str) {
        let value: Value = serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!((self.status, value["code"].as_str()), (status, Some(code)), "{self:?}");
        assert!(value["error"].is_string() && value["remedy"].is_string(), "{self:?}");
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[test]
fn routes_come_before_credentials_and_credentials_before_bodies() {
    let served = Served::new(Some("s3cret"), Capacity::default());
    served.get("/health").is(200, r#"{"status":"ok"}"#);
    served.get("/health?x=1").is(200, r#"{"status":"ok"}"#);
    for head in ["GET /", "GET /execute", "POST /health", "PUT /execute", "OPTIONS /execute", "GET /executes"]
    {
        served.ask(&format!("{head} HTTP/1.1"), "").is(404, r#"{"error":"Not found"}"#);
    }
    let large = vec![b'x'; 1_048_577];
    served.execute("{").is(401, r#"{"error":"Unauthorized"}"#);
    served.execute(&large).is(401, r#"{"error":"Unauthorized"}"#);
    for wrong in ["", "S3cret", "s3cret2", "s3cre"] {
        let head = format!("POST /execute HTTP/1.1\r\nX-Executor-Secret: {wrong}");
        served.ask(&head, "{}").is(401, r#"{"error":"Unauthorized"}"#);
    }
    let right = "POST /execute HTTP/1.1\r\nX-EXECUTOR-SECRET: s3cret";
    served.ask(right, &large).is(413, r#"{"error":"Request body too large"}"#);
    served.ask(right, "nope").is(400, r#"{"error":"Invalid JSON body"}"#);
    let exact = format!("\"{}\"", "x".repeat(1_048_574));
    served.ask(right, exact).is(400, r#"{"error":"Missing or invalid command"}"#);
    served.get("/v1/executions").problem(401, "SK-R070");
    served.get("/v1/nothing").problem(404, "SK-R071");
    served.get("/metrics").problem(401, "SK-R070");
    assert_eq!(served.get("/v1/openapi.json").status, 200);
}

#[test]
fn web_pages_are_not_whoever_is_on_this_machine() {
    let served = Served::plain();
    let page = |field: &str| {
        let request = format!("GET /v1/executions HTTP/1.1\r\n{field}\r\nConnection: close\r\n\r\n");
        Answer::read(&served.raw(request))
    };
    page("Host: rebound.example").problem(403, "SK-R051");
    page("Host: localhost\r\nOrigin: https://evil.example").problem(403, "SK-R051");
    assert_eq!(page("Host: 127.0.0.1:9").status, 200);
    let preflight = "OPTIONS /execute HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\
        Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
    let answer = Answer::read(&served.raw(preflight));
    answer.is(404, r#"{"error":"Not found"}"#);
    assert!(!answer.head.contains("access-control"));
}

#[test]
fn scopes_are_kept_to() {
    let served = Served::new(Some("s"), Capacity::default());
    let (read, execute, admin) =
        (served.token("r", "read"), served.token("e", "execute"), served.token("a", "admin"));
    let ask = |line: &str, token: &str| {
        served.ask(&format!("{line} HTTP/1.1\r\nAuthorization: Bearer {token}"), "").status
    };
    for (line, allowed) in [
        ("GET /v1/executions", [200, 200, 200]),
        ("GET /v1/doctor", [200, 200, 200]),
        ("GET /metrics", [200, 200, 200]),
        ("GET /v1/audit", [403, 403, 200]),
        ("GET /v1/secrets", [403, 403, 200]),
        ("DELETE /v1/secrets/NONE", [403, 403, 404]),
        ("POST /v1/executions/0190a6e4-0000-7000-8000-000000000000/stop", [403, 404, 404]),
        ("POST /v1/executions", [403, 415, 415]),
        ("POST /execute", [403, 400, 400]),
    ] {
        assert_eq!([&read, &execute, &admin].map(|token| ask(line, token)), allowed, "{line}");
    }
    assert_eq!(ask("GET /v1/executions", "stk_wrong"), 401);
    let both =
        format!("GET /v1/executions HTTP/1.1\r\nX-Executor-Secret: wrong\r\nAuthorization: Bearer {admin}");
    served.ask(&both, "").problem(401, "SK-R070");
}

#[test]
fn v1_refuses_in_its_own_words() {
    let served = Served::plain();
    let answer = served.ask("DELETE /v1/executions HTTP/1.1", "");
    answer.problem(405, "SK-R072");
    assert!(answer.head.contains("\r\nallow: post, get"), "{answer:?}");
    let start = |kind: &str, body: &str| {
        served.ask(&format!("POST /v1/executions HTTP/1.1\r\nContent-Type: {kind}"), body)
    };
    start("text/plain", "{}").problem(415, "SK-R075");
    start("application/json\r\nContent-Encoding: gzip", "{}").problem(415, "SK-R075");
    start("application/json", "{}").problem(400, "SK-R050");
    start("Application/JSON; charset=utf-8", r#"{"shell":"a","command":["a"]}"#).problem(400, "SK-R050");
    start("application/json", r#"{"shell":"a","surprise":1}"#).problem(400, "SK-R050");
    start("application/json", r#"{"shell":"a","workspace":"/etc"}"#).problem(403, "SK-R052");
    start("application/json", r#"{"shell":"a","workspace":"relative"}"#).problem(403, "SK-R052");
    start("application/json\r\nIdempotency-Key: a", r#"{"shell":"a","idempotency_key":"b"}"#)
        .problem(400, "SK-R050");
    start("application/json\r\nIdempotency-Key: a\r\nIdempotency-Key: a", r#"{"shell":"a"}"#)
        .problem(400, "SK-R050");
    served.get("/v1/executions?limit=0").problem(400, "SK-R050");
    served.get("/v1/executions?secret=hunter2").problem(400, "SK-R050");
    served.get("/v1/executions/nonsense").problem(404, "SK-R053");
    served.ask("GET /v1/doctor HTTP/1.1", "body").problem(400, "SK-R050");
    served.ask("POST /v1/executions/x/stop HTTP/1.1", "{}").problem(400, "SK-R050");
    served.ask("PUT /v1/secrets/A HTTP/1.1\r\nContent-Type: application/json", "{}").problem(403, "SK-R051");
}

#[test]
fn secrets_go_in_and_only_names_come_out() {
    let served = Served::plain();
    let token = served.token("a", "admin");
    let ask = |line: &str, body: &[u8]| {
        served.ask(&format!("{line} HTTP/1.1\r\nAuthorization: Bearer {token}"), body)
    };
    assert_eq!(ask("PUT /v1/secrets/API_KEY", b"\x00hunter2\xff").status, 204);
    let names = ask("GET /v1/secrets", b"");
    assert_eq!(names.json()["secrets"][0]["name"], "API_KEY");
    assert!(!names.body.contains("hunter2"));
    ask("PUT /v1/secrets/1X", b"a value of it").problem(400, "SK-R050");
    ask("PUT /v1/secrets/X", b"").problem(400, "SK-R040");
    ask("PUT /v1/secrets/X", &vec![b'x'; 65_537]).problem(400, "SK-R040");
    ask("PUT /v1/secrets/X", &vec![b'x'; 65_538]).problem(413, "SK-R074");
    ask("GET /v1/secrets/API_KEY", b"").problem(405, "SK-R072");
    assert_eq!(ask("DELETE /v1/secrets/API_KEY", b"").status, 204);
    ask("DELETE /v1/secrets/API_KEY", b"").problem(404, "SK-R076");
    let audit = ask("GET /v1/audit?limit=500", b"");
    assert!(audit.body.contains("set secret") && !audit.body.contains("hunter2"), "{}", audit.body);
    assert!(audit.json()["entries"].as_array().unwrap().iter().all(|entry| entry["seq"].is_u64()));
}

#[test]
fn without_an_executor_callers_hear_503_and_the_record_says_why() {
    let served = Served::plain();
    let answer = served.execute(r#"{"command":"true"}"#);
    answer.problem(503, "SK-F010");
    assert!(answer.head.contains("\r\nretry-after: 1\r\n"), "{answer:?}");
    let id = answer.json()["execution"].as_str().unwrap().to_owned();
    let record = served.get(&format!("/v1/executions/{id}")).json();
    assert_eq!((record["state"].as_str(), record["code"].as_str()), (Some("ended"), Some("UZ-EXEC-003")));
    let events = served.get(&format!("/v1/executions/{id}/events"));
    assert!(events.head.contains("content-type: text/event-stream"), "{events:?}");
    assert!(events.body.contains("event: ended\ndata: {"), "{events:?}");
    let output = served.get(&format!("/v1/executions/{id}/output")).json();
    assert_eq!((output["rest"].as_str(), output["chunks"].as_array().unwrap().len()), (Some("ended"), 0));
    assert_eq!(served.get(&format!("/v1/executions/{id}/wait")).json()["state"], "ended");
    served.ask(&format!("POST /v1/executions/{id}/stdin HTTP/1.1"), "x").problem(409, "SK-R054");
    assert_eq!(served.ask(&format!("POST /v1/executions/{id}/stop HTTP/1.1"), "").status, 200);
    let head = format!("GET /v1/executions/{id}/events HTTP/1.1\r\nLast-Event-ID: x");
    served.ask(&head, "").problem(400, "SK-R050");
    assert_eq!(served.get("/v1/doctor").json()["status"], "no-executor");
    assert!(served.get("/metrics").body.contains("stockade_executions_total{outcome=\"lost\"} 1"));
}

#[test]
fn a_key_names_one_execution() {
    let served = Served::plain();
    let start = |key: &str| {
        let head = format!(
            "POST /v1/executions HTTP/1.1\r\nContent-Type: application/json\r\nIdempotency-Key: {key}"
        );
        served.ask(&head, r#"{"command":["true"]}"#)
    };
    let first = start("k");
    assert_eq!(first.status, 201);
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert!(first.head.contains(&format!("\r\nlocation: /v1/executions/{id}\r\n")), "{first:?}");
    let again = start("k");
    assert_eq!((again.status, again.json()["id"].as_str()), (200, Some(id.as_str())));
    assert_eq!(start("other").status, 201);
    start(&"k".repeat(256)).problem(400, "SK-R050");
    let page = served.get("/v1/executions?limit=1").json();
    let next = page["next"].as_str().unwrap();
    let page = served.get(&format!("/v1/executions?limit=1&after={next}")).json();
    assert_eq!(page["executions"][0]["id"], id.as_str());
}

#[test]
fn the_queue_ends_with_503_and_those_who_leave_it_are_gone() {
    let capacity = Capacity { running: 1, each_principal: 1, waiting: 1, wait: Duration::from_secs(60) };
    let served = Served::new(None, capacity);
    let body = r#"{"command":"true"}"#;
    let request =
        format!("POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let load = || served.core.admission.load();
    let until = |what: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(30);
        while !what() {
            assert!(Instant::now() < end, "{:?}", load());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let (mut first, mut second) = (served.connect(), served.connect());
    first.write_all(request.as_bytes()).unwrap();
    until(&|| load().running == 1);
    second.write_all(request.as_bytes()).unwrap();
    until(&|| load().waiting == 1);
    let refused = served.execute(body);
    refused.problem(503, "SK-R055");
    assert!(refused.head.contains("\r\nretry-after: 1"), "{refused:?}");
    drop(second);
    until(&|| served.core.in_hand.all().len() == 1);
    // Its place in the queue is free for the next one at once.
    let mut third = served.connect();
    third.write_all(request.as_bytes()).unwrap();
    third.shutdown(Shutdown::Write).unwrap();
    drop(third);
    until(&|| load().running == 0);
    assert_eq!(served.get("/v1/executions").json()["executions"].as_array().unwrap().len(), 1);
}

#[test]
fn the_protocol_holds() {
    let served = Served::plain();
    let ok = |request: &str, replies: usize| {
        let text = served.raw(request);
        assert_eq!(text.matches("HTTP/1.").count(), replies, "{request:?}: {text}");
        assert!(text.contains(" 200 OK\r\n"), "{request:?}: {text}");
        text
    };
    ok("GET /health HTTP/1.0\r\n\r\n", 1);
    ok(
        "GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        2,
    );
    ok("GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 1);
    let expect = "POST /execute HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\
        Connection: close\r\n\r\nnull";
    let text = served.raw(expect);
    assert!(text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 "), "{text}");
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET /health HTTP/1.1\r\nHost : a\r\n\r\n".into(), 400),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(40_000)), 431),
        (format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(40_000)), 431),
        (format!("GET /health HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(200)), 431),
        (chunked("zz\r\nnull\r\n"), 400),
        (chunked("4\r\nnullnull\r\n0\r\n\r\n"), 400),
        (chunked("ffffffffffffffffff\r\n"), 400),
        ("POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".into(), 400),
        ("POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nnull".into(), 400),
        (
            "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
             4\r\nnull\r\n0\r\n\r\n"
                .into(),
            400,
        ),
        ("POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n".into(), 413),
    ] {
        let answer = Answer::read(&served.raw(&request));
        assert_eq!(answer.status, status, "{:.200}: {answer:?}", request);
    }
    Answer::read(&served.raw(chunked("4\r\nnull\r\n0\r\n\r\n") + "GET /health HTTP/1.0\r\n\r\n"));
}

fn chunked(body: &str) -> String {
    format!("POST /execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

#[test]
fn a_body_without_an_end_is_refused_at_the_limit() {
    let served = Served::plain();
    let mut stream = served.connect();
    stream.write_all(chunked("").as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..64 {
        // A client that only writes at first must still get to read the answer.
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    Answer::read(&rest(stream)).is(413, r#"{"error":"Request body too large"}"#);
}

#[test]
fn slow_heads_and_bodies_are_408() {
    let served = Served::plain();
    let (mut silent, mut head, mut body) = (served.connect(), served.connect(), served.connect());
    let began = Instant::now();
    head.write_all(b"GET /health HTTP/1.1\r\nHo").unwrap();
    body.write_all(b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{").unwrap();
    silent.flush().unwrap();
    for stream in [head, silent] {
        Answer::read(&rest(stream)).is(408, r#"{"error":"Request timeout"}"#);
        assert!((9..15).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
    Answer::read(&rest(body)).is(408, r#"{"error":"Request timeout"}"#);
    assert!((29..36).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[test]
fn draining_answers_what_is_asked_and_takes_no_more() {
    let mut served = Served::plain();
    let body = r#"{"command":"true"}"#;
    let mut asked = served.connect();
    let request =
        format!("POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    asked.write_all(request.as_bytes()).unwrap();
    let mut idle = served.connect();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut buffer = [0; 512];
    assert!(idle.read(&mut buffer).unwrap() > 0);
    while served.core.in_hand.is_empty() {
        std::thread::sleep(Duration::from_millis(2));
    }
    served.stop.send_replace(true);
    assert_eq!(idle.read(&mut buffer).unwrap(), 0, "an idle connection is closed");
    let answer = Answer::read(&rest(asked));
    answer.problem(503, "SK-F010");
    let serving = served.serving.take().unwrap();
    served.runtime.block_on(serving).unwrap().unwrap();
    assert!(TcpStream::connect(served.address).is_err(), "nobody listens");
    assert!(served.directory.path().exists());
}

/// Lists that nobody reads are memory, too: beyond their bound others wait for one to go.
#[test]
fn lists_take_their_room_and_give_it_back() {
    let served = Served::plain();
    let store = served.core.record.store();
    for _ in 0..500 {
        let [principal, door, profile, workspace] = ["http:local", "v1", "default", "/"].map(str::to_owned);
        // Longer than what the kernel holds of a reply that is not read.
        let command = "\u{1f600}".repeat(4096);
        let id = stockade_store::ExecutionId::new();
        let new = NewExecution { id, principal, door, profile, command, workspace, key: None };
        store.executions.start(new).unwrap();
    }
    let ask = || {
        let mut stream = TcpStream::connect(served.address).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
        stream.write_all(b"GET /v1/executions?limit=500 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let begins = |stream: &mut TcpStream| stream.read(&mut [0; 12]).is_ok_and(|count| count > 0);
    // 500 records of 32 KiB are 16 of 128 pieces.
    let mut held: Vec<TcpStream> = (0..8).map(|_| ask()).collect();
    assert!(held.iter_mut().all(begins));
    let mut next = ask();
    next.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(!begins(&mut next), "there is no room");
    assert_eq!(served.get("/health").status, 200, "small replies need none");
    held.pop();
    next.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(begins(&mut next));
}
