//! STAGE-2, and "bad input" of the issue: every field of every method, computed from the table of methods.

use serde_json::{Value, json};
use stockade_line_tests::World;
use stockade_proto::door::{Field, Kind, Method, Presence, method};
use stockade_stage_tests::{Framing, Service, Wire, code, field};

const BAD_PARAMS: i64 = -32602;
const UNKNOWN_METHOD: i64 = -32601;
/// Text in these has no bound and no shape.
const FREE_TEXT: [&str; 1] = ["message"];
/// Bytes that go to a pipe, not to the kernel's calls.
const FREE_BYTES: [&str; 1] = ["bytes"];

/// Params that are right, of an execution that is there.
fn right(method: Method, world: &World, execution: &str) -> Value {
    match method {
        Method::Health | Method::List | Method::Subscribe => json!({}),
        Method::StartStage => json!({ "workspace_path": world.work(), "shell": "true" }),
        Method::CancelStage => json!({ "id": execution }),
        Method::Start => json!({ "workspace": world.work(), "shell": "true" }),
        Method::Get | Method::Stop | Method::Read | Method::Wait => json!({ "id": execution }),
        Method::Write => json!({ "id": execution, "bytes": "x" }),
        Method::Unsubscribe => json!({ "subscription": 1 }),
    }
}

/// As JSON text: some of them no value can hold.
fn wrong(field: &Field) -> Vec<String> {
    let nested = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let mut texts: Vec<String> = match field.kind {
        Kind::Text => vec!["7", "-1", "1.5", "true", "[]", "{}", r#"["a"]"#, r#"{"a": 1}"#],
        Kind::Bytes => {
            vec![
                "7",
                "-1",
                "true",
                "[]",
                "{}",
                r#"{"hex": "zz"}"#,
                r#"{"hex": "0"}"#,
                r#"{"hex": 7}"#,
                r#"{"a": "b"}"#,
            ]
        }
        Kind::Argv => vec![
            r#""x""#,
            "7",
            "{}",
            "[7]",
            "[null]",
            "[]",
            r#"["a", true]"#,
            r#"["a", "b\u0000c"]"#,
            r#"[["a"]]"#,
        ],
        Kind::Variables => vec![
            r#""x""#,
            "7",
            "[]",
            "[1]",
            r#"{"A": 7}"#,
            r#"{"A": null}"#,
            r#"{"A": "b\u0000"}"#,
            r#"{"A=B": "c"}"#,
            r#"{"": "c"}"#,
            r#"{"A\u0000": "c"}"#,
        ],
        Kind::Count => {
            vec![r#""7""#, "-1", "1.5", "1e3", "1e400", "true", "[]", "{}", "18446744073709551616", "[7]"]
        }
        Kind::Flag => vec![r#""true""#, "0", "1", "[]", "{}", "[true]"],
        Kind::Word => vec![r#""sleeping""#, "7", "true", "[]", "{}", r#""""#],
        Kind::Object => vec![r#""x""#, "7", "true", "[]", "[1]"],
        Kind::List => vec![r#""x""#, "7", "true", "{}"],
    }
    .into_iter()
    .map(str::to_owned)
    .collect();
    if field.kind != Kind::List {
        texts.push(nested);
    }
    let shaped = field.kind == Kind::Text && !FREE_TEXT.contains(&field.name);
    if shaped {
        texts.extend([r#""""#.to_owned(), format!("{:?}", "x".repeat(1 << 20))]);
    }
    if shaped || (field.kind == Kind::Bytes && !FREE_BYTES.contains(&field.name)) {
        texts.push(r#""a\u0000b""#.to_owned());
    }
    if field.presence != Presence::Optional {
        texts.push("null".to_owned());
    }
    texts
}

/// An object's text with one member more, or another one in place of it.
fn with(params: &Value, name: &str, text: &str) -> String {
    let mut members: Vec<String> = params
        .as_object()
        .expect("an object")
        .iter()
        .filter(|(known, _)| *known != name)
        .map(|(known, value)| format!("{known:?}: {value}"))
        .collect();
    members.push(format!("{name:?}: {text}"));
    format!("{{{}}}", members.join(", "))
}

/// `command` and `shell`, `stage_id` and `id`: of each pair only one is given.
fn without_its_other(params: &Value, name: &str) -> Value {
    let other = match name {
        "command" => "shell",
        "stage_id" => "id",
        _ => return params.clone(),
    };
    let mut params = params.clone();
    // A stage's own name stands beside anything else.
    if name == "command" || params.get("workspace_path").is_none() {
        params.as_object_mut().expect("an object").remove(other);
    }
    params
}

fn an_execution(wire: &mut Wire, world: &World) -> String {
    let start = json!({ "workspace": world.work(), "shell": "true" });
    let id = wire.ok(method::START, &start)["id"].as_str().expect("an id").to_owned();
    assert_eq!(wire.ok(method::WAIT, &json!({ "id": id }))["state"], "ended");
    id
}

#[track_caller]
fn names(error: &Value, name: &str) -> bool {
    let named = field(error);
    code(error) == BAD_PARAMS
        && (named == name || named.starts_with(&format!("{name}[")) || named.starts_with(&format!("{name}.")))
}

fn every_wrong_field(framing: Framing) {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = Wire::connect(service.socket(), framing);
    let execution = an_execution(&mut wire, &world);
    let mut said = Vec::new();
    for method in Method::ALL.iter().copied() {
        let right = right(method, &world, &execution);
        for field in method.fields() {
            let right = without_its_other(&right, field.name);
            for text in wrong(field) {
                let params = with(&right, field.name, &text);
                let id = wire.ask_text(method.name(), &params);
                match wire.answer(id) {
                    Err(error) if names(&error, field.name) => {}
                    other => {
                        let text: String = text.chars().take(60).collect();
                        said.push(format!("{} {} = {text}: {other:?}", method.name(), field.name));
                    }
                }
            }
        }
    }
    wire.is_well();
    assert!(said.is_empty(), "{}", said.join("\n"));
}

#[test]
fn every_wrong_field_of_every_method_is_named() {
    every_wrong_field(Framing::Lines);
}

#[test]
fn every_wrong_field_of_every_method_is_named_in_counted_frames() {
    every_wrong_field(Framing::Lengths);
}

#[test]
fn a_field_that_is_missing_unknown_or_twice_is_named() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let execution = an_execution(&mut wire, &world);
    for method in Method::ALL.iter().copied() {
        let right = right(method, &world, &execution);
        for required in method.fields().iter().filter(|field| field.presence == Presence::Required) {
            let mut less = right.clone();
            less.as_object_mut().expect("an object").remove(required.name);
            let error = wire.error(method.name(), &less);
            assert!(names(&error, required.name), "{} without {}: {error}", method.name(), required.name);
            let value = &right[required.name];
            let twice = format!("{{{:?}: {value}, {0:?}: {value}}}", required.name);
            let id = wire.ask_text(method.name(), &twice);
            let error = wire.answer(id).expect_err("a member twice");
            assert!(names(&error, required.name), "{} twice {}: {error}", method.name(), required.name);
        }
        let id = wire.ask_text(method.name(), &with(&right, "no_such_field", "1"));
        let error = wire.answer(id).expect_err("an unknown field");
        assert!(names(&error, "no_such_field"), "{}: {error}", method.name());
    }
    wire.is_well();
}

#[test]
fn params_are_an_object_or_nothing() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    for method in Method::ALL {
        for params in ["7", r#""x""#, "true", "[1]", r#"[{"id": "x"}]"#] {
            let id = wire.ask_text(method.name(), params);
            let error = wire.answer(id).expect_err("no object");
            assert!(names(&error, "params"), "{} {params}: {error}", method.name());
        }
    }
    for params in ["null", "{}", "[]"] {
        let id = wire.ask_text(method::HEALTH, params);
        assert_eq!(wire.answer(id).expect("nothing is asked for")["status"], "ok");
    }
}

#[test]
fn a_method_that_is_not_in_the_table_is_unknown() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    for name in
        ["", "healthcheck", "execution/", "execution/start ", "events/event", "stageProgress", "shutdown"]
    {
        let error = wire.error(name, &json!({}));
        assert_eq!(code(&error), UNKNOWN_METHOD, "{error}");
    }
    for method in Method::ALL {
        if let Err(error) = wire.call(method.name(), &json!({})) {
            assert_ne!(code(&error), UNKNOWN_METHOD, "{}", method.name());
        }
    }
}
