//! The field's own tools, set on the service: curl, as a person uses it; schemathesis, which makes requests from the OpenAPI document and holds the
//! answers against it, and wrk, which has many connections. `cargo xtask setup` installs both; without them there is
//! no such test, and that is a failure.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::json;
use stockade_contract_tests::{Options, Service, deadline, slowness, until};

/// What is installed, by version.
const PINNED: &str = include_str!("../../schemathesis.txt");

/// Cases of one operation that are made up, beside those that its schema's corners are: half a minute together.
const EXAMPLES: &str = "200";
const SEED: &str = "1";

/// Where `cargo xtask setup` puts it.
#[track_caller]
fn schemathesis() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let pin = PINNED.lines().find(|line| !line.starts_with('#')).expect("it is pinned");
    let program =
        cache.expect("a home").join("stockade").join(pin.replace("==", "-")).join("bin/schemathesis");
    assert!(
        program.exists(),
        "{} is missing, and nothing else tries the document: run `cargo xtask setup`",
        program.display()
    );
    program
}

/// Runs to its end, or is ended.
#[track_caller]
fn run(command: &mut Command) -> Output {
    let program = command.get_program().to_owned();
    let mut bounded = Command::new("timeout");
    bounded.arg((deadline() * 3).as_secs().to_string()).arg(&program).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        bounded.current_dir(directory);
    }
    bounded.stdin(Stdio::null()).output().expect("coreutils are there")
}

/// Every place is free again: what ran has ended, and that is on record.
#[track_caller]
fn is_idle(service: &Service) {
    until("everything to end", || {
        let health = service.get("/v1/doctor").json();
        (health["running"] == 0 && health["waiting"] == 0).then_some(())
    });
    let page = service.get("/v1/executions?state=running").json();
    assert_eq!(page["executions"], json!([]));
}

/// As the compatible server's own documentation calls it, and `/v1` as ours does.
#[test]
fn curl_gets_what_the_documents_say() {
    let service = Service::start(Options { secret: Some("walrus-7".to_owned()), ..Options::default() });
    let base = format!("http://{}", service.address());
    let curl = |words: &[&str]| {
        let output = run(Command::new("curl").args(["-sS", "--max-time", "60"]).args(words));
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let secret = ["-H", "X-Executor-Secret: walrus-7"];
    let json = ["-H", "Content-Type: application/json"];
    assert_eq!(curl(&[&format!("{base}/health")]), r#"{"status":"ok"}"#);
    let execute = format!("{base}/execute");
    let body = r#"{"command":"echo hi; echo no >&2; exit 3","cwd":".","timeout":5000}"#;
    assert_eq!(curl(&["-w", "%{http_code}", &execute, "-d", body]), r#"{"error":"Unauthorized"}401"#);
    let answer = curl(&[&execute, secret[0], secret[1], json[0], json[1], "-d", body]);
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["stdout"], &answer["stderr"]), (&json!("hi"), &json!("no")), "{answer}");
    assert_eq!((&answer["exitCode"], &answer["success"]), (&json!(3), &json!(false)), "{answer}");
    let bad = curl(&["-w", "%{http_code}", &execute, secret[0], secret[1], "-d", "{"]);
    assert_eq!(bad, r#"{"error":"Invalid JSON body"}400"#);
    // Expect: 100-continue, which curl sends by itself for a body of this size, and a body in chunks.
    let long = format!(r#"{{"command":"true # {}"}}"#, "x".repeat(100_000));
    let file = service.path("long");
    fs::write(&file, long).expect("a file");
    let from = format!("@{}", file.display());
    for more in
        [&[][..], &["-H", "Transfer-Encoding: chunked"], &["-H", "Expect: 100-continue"], &["--http1.0"]]
    {
        let words = [&[execute.as_str(), secret[0], secret[1], "--data-binary", &from], more].concat();
        let answer: serde_json::Value = serde_json::from_str(&curl(&words)).expect("JSON");
        assert_eq!(answer["exitCode"], 0, "{more:?}: {answer}");
    }
    let started = curl(&[
        &format!("{base}/v1/executions"),
        secret[0],
        secret[1],
        json[0],
        json[1],
        "-d",
        r#"{"command":["sh","-c","echo one; echo two >&2"]}"#,
    ]);
    let started: serde_json::Value = serde_json::from_str(&started).expect("JSON");
    let id = started["id"].as_str().expect("an id");
    let events = curl(&["-N", &format!("{base}/v1/executions/{id}/events"), secret[0], secret[1]]);
    for line in ["event: stdout", "event: stderr", "event: ended"] {
        assert!(events.lines().any(|found| found == line), "{events}");
    }
}

/// What is counted, after executions and refusals that are known.
#[test]
fn metrics_count_what_happened() {
    let service = Service::plain();
    let python =
        "import socket\ntry: socket.socket(socket.AF_UNIX).connect('\\0nobody')\nexcept OSError: pass";
    let body = json!({ "command": format!("printf 0123456789; exec python3 -c \"{python}\"") });
    assert_eq!(service.execute(body.to_string()).json()["exitCode"], 0);
    let elsewhere = json!({ "shell": "true", "workspace": service.path("home") });
    assert_eq!(service.start_execution(&elsewhere).status, 403);
    let text = service.get("/metrics").text().to_owned();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().expect("a number")
    };
    for (name, expected) in [
        ("stockade_executions_total{outcome=\"exited\"}", 1.0),
        ("stockade_refusals_total{door=\"v1\",code=\"SK-R052\"}", 1.0),
        ("stockade_denials_total{layer=\"sockets\"}", 1.0),
        ("stockade_output_bytes_total", 10.0),
        ("stockade_execution_output_bytes_sum", 10.0),
        ("stockade_execution_output_bytes_count", 1.0),
        ("stockade_spawn_seconds_count", 1.0),
        ("stockade_duration_seconds_count", 1.0),
        ("stockade_running", 0.0),
        ("stockade_waiting", 0.0),
        ("stockade_executor_restarts_total", 0.0),
    ] {
        assert_eq!(value(name).to_bits(), f64::to_bits(expected), "{name}: {text}");
    }
    assert!(value("stockade_queue_seconds_count") >= 1.0 && value("stockade_duration_seconds_sum") > 0.0);
}

/// What the tool is told beside its arguments; those would win over what is said about one operation.
fn settings(ended: &str) -> String {
    format!(
        r#"
# Ids that are made up are nobody's: most requests name an execution that is there. It has ended, so that to wait for
# it, to follow it or to stop it takes no time.
[dictionaries.ids]
values = ["{ended}"]

[parameters]
"path.id" = {{ dictionary = "ids", probability = 0.7 }}

# The others ask for what the compatible routes must not do (404 for a method that they don't know), or know a whole
# number by another spelling (`1.0`) than the service.
[checks]
enabled = false
not_a_server_error.enabled = true
status_code_conformance.enabled = true
content_type_conformance.enabled = true
response_schema_conformance.enabled = true

# OpenAPI 3.1 describes a stream as a whole, and the tool holds each event of it against that.
[[operations]]
include-path = "/v1/executions/{{id}}/events"
checks.response_schema_conformance.enabled = false
"#
    )
}

#[test]
fn schemathesis_finds_the_service_as_its_document_says() {
    let program = schemathesis();
    let mut service = Service::start(Options { secret: Some("sesame".into()), ..Options::default() });
    let token = service.token("fuzzer", &["admin", "execute", "read"]);
    let started = service.start_execution(&json!({ "shell": "seq 1000; echo no >&2; exit 3" }));
    let id = started.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(service.get(&format!("/v1/executions/{id}/wait")).json()["state"], "ended");
    let file = service.path("schemathesis.toml");
    fs::write(&file, settings(&id)).expect("a fresh file");
    let base = format!("http://{}", service.address());
    let mut command = Command::new(&program);
    command.current_dir(service.path("run")).arg("--config-file").arg(&file);
    command.args(["run", &format!("{base}/v1/openapi.json"), "--url", &base, "--header", &token]);
    command.args(["--phases", "coverage,fuzzing,stateful", "--max-examples", EXAMPLES, "--seed", SEED]);
    // A secret that is made up would be refused before anything is looked at.
    command.args(["--generation-with-security-parameters", "false", "--generation-database", "none"]);
    command.args(["--request-timeout", &(30 * slowness()).to_string(), "--no-color"]);
    let Output { status, stdout, stderr } = run(&mut command);
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}: {said}");
    // It was let in, and left nothing out but the document itself.
    let tested = format!("Tested: {}\n", operations(&service) - 1);
    assert!(said.contains(&tested) && !said.contains("Authentication failed"), "{said}");
    is_idle(&service);
    service.stop();
}

/// Of the document.
fn operations(service: &Service) -> usize {
    let document = service.get("/v1/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    paths.values().map(|methods| methods.as_object().map_or(0, serde_json::Map::len)).sum()
}

const LOAD: &str = r#"
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"command":"echo x"}'
done = function(summary)
    local e = summary.errors
    io.write(string.format("%d requests, %d refused, %d broken\n", summary.requests, e.status,
        e.connect + e.read + e.write + e.timeout))
end
"#;

#[test]
fn wrk_gets_an_answer_to_everything_and_leaves_nothing() {
    let mut service = Service::plain();
    let script = service.path("load.lua");
    fs::write(&script, LOAD).expect("a fresh file");
    let mut command = Command::new("wrk");
    command.args(["--threads", "2", "--connections", "32", "--duration", "3s", "--timeout"]);
    command.arg(deadline().as_secs().to_string()).arg("--script").arg(&script);
    command.arg(format!("http://{}/execute", service.address()));
    let Output { status, stdout, stderr } = std::thread::scope(|scope| {
        let load = scope.spawn(|| run(&mut command));
        while !load.is_finished() {
            service.get("/health").is(200, r#"{"status":"ok"}"#);
        }
        load.join().expect("it ran")
    });
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "wrk is missing or failed ({status}): run `cargo xtask setup`: {said}");
    let line = said.lines().find(|line| line.contains(" requests, ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.ends_with(" requests, 0 refused, 0 broken") && !line.starts_with("0 "), "{said}");
    // It goes in the middle of thirty-two requests, and what they run goes with it.
    is_idle(&service);
    service.get("/health").is(200, r#"{"status":"ok"}"#);
    assert_eq!(service.execute(r#"{"command":"echo x"}"#).json()["stdout"], "x");
    service.stop();
}
