//! The OpenAPI document, made from the route table and the words. `docs/openapi.json` is what this makes; with
//! `UPDATE=1` in the environment the test writes it.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use stockade_proto::door;
use stockade_redact::MAX_NAME;

use super::captured::Beside;
use super::reply::{EVENTS, JSON, METRICS};
use super::route::{Answer, Family, Kind, Needs, OCTETS, Operation, ROUTES, Route, Shape, Takes};
use super::trouble::Refused;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

/// Version 7, in one spelling.
const ID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";

/// A body of `POST /execute`. What else it holds is ignored.
#[derive(JsonSchema)]
#[schemars(rename = "Execute")]
#[expect(dead_code, reason = "read by hand, to answer in the exact words")]
struct Execute {
    /// For bash; more than blanks.
    #[schemars(regex(pattern = r"\S"))]
    command: String,
    /// The service's own default, if left out or empty.
    cwd: Option<String>,
    /// In milliseconds; 30000 if left out.
    #[schemars(range(min = 1000, max = 300_000))]
    #[schemars(default)]
    timeout: u32,
}

/// A command that ran.
#[derive(JsonSchema)]
#[schemars(rename = "Executed")]
#[expect(dead_code, reason = "written by hand, into one buffer")]
struct Executed {
    /// Trimmed, and as UTF-8: what is none is replaced.
    stdout: String,
    stderr: String,
    #[schemars(flatten)]
    beside: Beside,
}

impl Shape {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Events => EVENTS,
            Self::Metrics => METRICS,
            Self::Alive
            | Self::Execute
            | Self::Executed
            | Self::Start
            | Self::Execution
            | Self::Page
            | Self::Output
            | Self::Health
            | Self::AuditTail
            | Self::SecretNames
            | Self::Document => JSON,
        }
    }

    fn schema(self, generator: &mut SchemaGenerator) -> Value {
        let schema = match self {
            Self::Execute => generator.subschema_for::<Execute>(),
            Self::Executed => generator.subschema_for::<Executed>(),
            Self::Start => generator.subschema_for::<door::Start>(),
            Self::Execution => generator.subschema_for::<door::Execution>(),
            Self::Page => generator.subschema_for::<door::Page>(),
            Self::Output => generator.subschema_for::<door::Output>(),
            Self::Health => generator.subschema_for::<door::Health>(),
            Self::SecretNames => generator.subschema_for::<door::SecretNames>(),
            Self::Alive => return json!({ "const": { "status": "ok" } }),
            Self::AuditTail => return audit_tail(),
            Self::Events | Self::Metrics => return json!({ "type": "string" }),
            Self::Document => return json!({ "type": "object" }),
        };
        schema.to_value()
    }
}

/// The store's entry, whose body is anything.
fn audit_tail() -> Value {
    let entry = json!({
        "type": "object",
        "properties": {
            "seq": { "type": "integer", "minimum": 1 },
            "at": { "type": "string", "format": "date-time" },
            "kind": { "enum": ["opened", "closed", "noted"] },
            "execution": { "type": ["string", "null"] },
            "principal": { "type": "string" },
            "body": {},
            "prev": { "type": "string", "description": "SHA-256 of the line before, in hex." },
        },
        "required": ["seq", "at", "kind", "execution", "principal", "body", "prev"],
    });
    json!({
        "type": "object",
        "properties": { "entries": { "type": "array", "items": entry } },
        "required": ["entries"],
    })
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Number { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Self::Flag => json!({ "type": "boolean" }),
            Self::State => json!({ "enum": ["queued", "running", "ended"] }),
            Self::Execution => json!({ "type": "string", "format": "uuid", "pattern": ID }),
        }
    }
}

impl Operation {
    const fn id(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Execute => "execute",
            Self::Start => "startExecution",
            Self::List => "listExecutions",
            Self::Get => "getExecution",
            Self::Stop => "stopExecution",
            Self::Stdin => "writeStdin",
            Self::Output => "readOutput",
            Self::Events => "followExecution",
            Self::Wait => "waitForExecution",
            Self::Audit => "tailAudit",
            Self::SecretList => "listSecrets",
            Self::SecretSet => "setSecret",
            Self::SecretRemove => "removeSecret",
            Self::Doctor => "doctor",
            Self::Document => "openapi",
            Self::Metrics => "metrics",
        }
    }
}

fn content(content_type: &str, schema: Value) -> Value {
    json!({ content_type: { "schema": schema } })
}

fn answer(answer: &Answer, generator: &mut SchemaGenerator) -> Value {
    let mut response = json!({ "description": answer.about });
    if let Some(shape) = answer.shape {
        response["content"] = content(shape.content_type(), shape.schema(generator));
    }
    response
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses: Map<String, Value> =
        route.answers.iter().map(|one| (one.status.to_string(), answer(one, generator))).collect();
    let problem = match route.family {
        Family::V1 => generator.subschema_for::<door::Problem>().to_value(),
        Family::Compatible => {
            let refused = generator.subschema_for::<Refused<'static>>().to_value();
            let plain = json!({
                "type": "object",
                "properties": { "error": { "type": "string" } },
                "required": ["error"],
                "additionalProperties": false,
            });
            json!({ "oneOf": [plain, refused] })
        }
    };
    let about = "What went wrong; `Retry-After` says when to try again, where that may help.";
    responses.insert("default".into(), json!({ "description": about, "content": content(JSON, problem) }));
    Value::Object(responses)
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        let schema = Kind::Execution.schema();
        parameters.push(json!({ "name": "id", "in": "path", "required": true, "schema": schema }));
    }
    if route.path.contains("{name}") {
        let schema =
            json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME });
        parameters.push(json!({ "name": "name", "in": "path", "required": true, "schema": schema }));
    }
    for param in route.query {
        let (name, about) = (param.name, param.about);
        parameters.push(
            json!({ "name": name, "in": "query", "description": about, "schema": param.kind.schema() }),
        );
    }
    for (name, about) in route.fields {
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255 });
        parameters.push(json!({ "name": name, "in": "header", "description": about, "schema": schema }));
    }
    parameters
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": route.operation.id(),
        "summary": route.about,
        "responses": responses(route, generator),
    });
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    let body = match route.takes {
        Takes::Nothing => None,
        Takes::Json(shape) | Takes::Loose(shape) => Some(content(JSON, shape.schema(generator))),
        Takes::Octets { limit } => {
            Some(content(OCTETS, json!({ "description": format!("At most {limit} bytes.") })))
        }
    };
    if let Some(content) = body {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    match route.needs {
        Needs::Nothing => operation["security"] = json!([]),
        Needs::Read | Needs::Execute | Needs::Admin => {
            let scope = route.needs.scope().unwrap();
            operation["description"] = format!("Needs the scope `{scope}`.").into();
        }
    }
    operation
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route, &mut generator);
    }
    let about = "Runs commands inside walls that the kernel enforces. Every error of /v1 is a Problem. Without a \
        secret the service is on loopback only, and a caller there needs no credential for the scopes `read` and \
        `execute`.";
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Stockade", "version": env!("CARGO_PKG_VERSION"), "description": about },
        "security": [{ "token": [] }, { "secret": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "secret": { "type": "apiKey", "in": "header", "name": "X-Executor-Secret" },
            },
        },
    })
}

#[test]
fn the_document_is_what_the_code_makes() {
    let made = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &made).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap();
    assert!(kept == made, "docs/openapi.json is not what the code makes: run this test with UPDATE=1");
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}
