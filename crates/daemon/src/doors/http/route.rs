//! Every route, one row each: the router and the OpenAPI document are both made from this table, so they can't
//! differ.

use crate::principal::{Principal, Scope};

/// Whose words a route's errors are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Compatible,
    V1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Health,
    Execute,
    Start,
    List,
    Get,
    Stop,
    Stdin,
    Output,
    Events,
    Wait,
    Audit,
    SecretList,
    SecretSet,
    SecretRemove,
    Doctor,
    Document,
    Metrics,
}

/// What a caller must be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// Not even a credential.
    Nothing,
    /// One's own executions.
    Read,
    Execute,
    Admin,
}

impl Needs {
    pub(super) fn met_by(self, principal: &Principal) -> bool {
        match self {
            Self::Nothing => true,
            // Whoever starts something may look at it.
            Self::Read => principal.may(Scope::Read) || principal.may(Scope::Execute),
            Self::Execute => principal.may(Scope::Execute),
            Self::Admin => principal.may(Scope::Admin),
        }
    }

    pub(super) const fn scope(self) -> Option<Scope> {
        match self {
            Self::Nothing => None,
            Self::Read => Some(Scope::Read),
            Self::Execute => Some(Scope::Execute),
            Self::Admin => Some(Scope::Admin),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// JSON by its looks, whatever the content type says.
    Loose(Shape),
    Json(Shape),
    Octets {
        limit: usize,
    },
}

pub(super) const OCTETS: &str = "application/octet-stream";

/// The types that bodies are of, by the names that the document has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Alive,
    Execute,
    Executed,
    Start,
    Execution,
    Page,
    Output,
    Health,
    AuditTail,
    SecretNames,
    /// Server-sent events.
    Events,
    Metrics,
    Document,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Number { least: u64, most: u64 },
    Flag,
    State,
    Execution,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Nothing: no body.
    pub(super) shape: Option<Shape>,
    pub(super) about: &'static str,
}

#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "some of it is for the document only"))]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// With `{id}` or `{name}` for the one segment that varies.
    pub(super) path: &'static str,
    pub(super) operation: Operation,
    pub(super) family: Family,
    pub(super) needs: Needs,
    pub(super) takes: Takes,
    pub(super) query: &'static [Param],
    /// Header fields with a meaning of their own.
    pub(super) fields: &'static [(&'static str, &'static str)],
    pub(super) answers: &'static [Answer],
    pub(super) about: &'static str,
}

pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
pub(super) const LAST_EVENT_ID: &str = "last-event-id";

/// A day's worth of milliseconds would hold a connection for no reason; clients ask again.
pub(super) const WAIT_MOST_MS: u64 = 60_000;
/// About so many bytes of output in one answer.
pub(super) const OUTPUT_MOST: u64 = 1 << 20;
pub(super) const OUTPUT_DEFAULT: u64 = 256 << 10;
pub(super) const PAGE_MOST: u64 = 500;
pub(super) const PAGE_DEFAULT: u64 = 50;
pub(super) const AUDIT_MOST: u64 = 10_000;
pub(super) const AUDIT_DEFAULT: u64 = 100;
/// One byte more than a secret may have: the store says what is wrong with it.
const SECRET_BODY: usize = stockade_store::secrets::VALUE_LIMIT + 1;

const fn number(name: &'static str, least: u64, most: u64, about: &'static str) -> Param {
    Param { name, kind: Kind::Number { least, most }, about }
}

const fn gives(status: u16, shape: Shape, about: &'static str) -> Answer {
    Answer { status, shape: Some(shape), about }
}

const EXECUTION: &[Answer] = &[gives(200, Shape::Execution, "The execution as it is now.")];

const AFTER: Param = number(
    "after",
    0,
    u64::MAX,
    "The `next` of the answer before, or the sequence of the last chunk that is known.",
);

const fn row(method: &'static str, path: &'static str, operation: Operation, needs: Needs) -> Route {
    Route {
        method,
        path,
        operation,
        family: Family::V1,
        needs,
        takes: Takes::Nothing,
        query: &[],
        fields: &[],
        answers: &[],
        about: "",
    }
}

pub(super) static ROUTES: [Route; 17] = [
    Route {
        family: Family::Compatible,
        answers: &[gives(200, Shape::Alive, "Always.")],
        about: "Whether the service answers",
        ..row("GET", "/health", Operation::Health, Needs::Nothing)
    },
    Route {
        family: Family::Compatible,
        takes: Takes::Loose(Shape::Execute),
        answers: &[gives(200, Shape::Executed, "The command ran, however it ended.")],
        about: "Run one command under bash and wait for it",
        ..row("POST", "/execute", Operation::Execute, Needs::Execute)
    },
    Route {
        takes: Takes::Json(Shape::Start),
        fields: &[(IDEMPOTENCY_KEY, "The same caller with the same key means the same execution.")],
        answers: &[
            gives(201, Shape::Execution, "It is on its way; `Location` says where to look."),
            gives(200, Shape::Execution, "Of an earlier request with the same key."),
        ],
        about: "Start an execution",
        ..row("POST", "/v1/executions", Operation::Start, Needs::Execute)
    },
    Route {
        query: &[
            Param { name: "state", kind: Kind::State, about: "Only those in this state." },
            Param { name: "after", kind: Kind::Execution, about: "The `next` of the page before." },
            number("limit", 1, PAGE_MOST, "How many; 50 if left out."),
        ],
        answers: &[gives(200, Shape::Page, "Newest first.")],
        about: "List executions: one's own, or all for an admin",
        ..row("GET", "/v1/executions", Operation::List, Needs::Read)
    },
    Route {
        answers: EXECUTION,
        about: "One execution",
        ..row("GET", "/v1/executions/{id}", Operation::Get, Needs::Read)
    },
    Route {
        answers: EXECUTION,
        about: "Ask an execution to end, and then make it; one that has ended is left as it is",
        ..row("POST", "/v1/executions/{id}/stop", Operation::Stop, Needs::Execute)
    },
    Route {
        takes: Takes::Octets { limit: super::body::LIMIT },
        query: &[Param { name: "end", kind: Kind::Flag, about: "Whether to close it behind these bytes." }],
        answers: &[Answer { status: 204, shape: None, about: "The bytes are on their way." }],
        about: "Write to an execution's stdin",
        ..row("POST", "/v1/executions/{id}/stdin", Operation::Stdin, Needs::Execute)
    },
    Route {
        query: &[
            AFTER,
            number("limit", 1, OUTPUT_MOST, "Bytes, about; 256 KiB if left out."),
            number("wait_ms", 0, WAIT_MOST_MS, "How long to wait where there is nothing yet."),
        ],
        answers: &[gives(200, Shape::Output, "What was written after that.")],
        about: "Read an execution's output by cursor, while it runs or after",
        ..row("GET", "/v1/executions/{id}/output", Operation::Output, Needs::Read)
    },
    Route {
        query: &[AFTER],
        fields: &[(LAST_EVENT_ID, "The `id` of the last event that is known; goes before `after`.")],
        answers: &[gives(
            200,
            Shape::Events,
            "Events `stdout`, `stderr` and `event`, each with a chunk as its data and its sequence as its id, and \
             one `ended` at last, with the execution; a comment every 15 seconds where there is nothing.",
        )],
        about: "Follow an execution as server-sent events",
        ..row("GET", "/v1/executions/{id}/events", Operation::Events, Needs::Read)
    },
    Route {
        query: &[number("within_ms", 0, WAIT_MOST_MS, "How long to wait; 30 seconds if left out.")],
        answers: &[gives(200, Shape::Execution, "The execution, which may still run: see `state`.")],
        about: "Wait for an execution's end",
        ..row("GET", "/v1/executions/{id}/wait", Operation::Wait, Needs::Read)
    },
    Route {
        query: &[number("limit", 1, AUDIT_MOST, "How many entries; 100 if left out.")],
        answers: &[gives(200, Shape::AuditTail, "The last entries, oldest first.")],
        about: "The end of the audit log",
        ..row("GET", "/v1/audit", Operation::Audit, Needs::Admin)
    },
    Route {
        answers: &[gives(200, Shape::SecretNames, "Names and times; values are never shown.")],
        about: "List secrets",
        ..row("GET", "/v1/secrets", Operation::SecretList, Needs::Admin)
    },
    Route {
        takes: Takes::Octets { limit: SECRET_BODY },
        answers: &[Answer { status: 204, shape: None, about: "It is kept." }],
        about: "Set a secret; the body is its value, of at least 8 bytes",
        ..row("PUT", "/v1/secrets/{name}", Operation::SecretSet, Needs::Admin)
    },
    Route {
        answers: &[Answer { status: 204, shape: None, about: "It is gone." }],
        about: "Remove a secret",
        ..row("DELETE", "/v1/secrets/{name}", Operation::SecretRemove, Needs::Admin)
    },
    Route {
        answers: &[gives(200, Shape::Health, "What the host can enforce, and how busy the service is.")],
        about: "The state of the service and of the walls",
        ..row("GET", "/v1/doctor", Operation::Doctor, Needs::Read)
    },
    Route {
        answers: &[gives(200, Shape::Document, "OpenAPI 3.1.")],
        about: "This document",
        ..row("GET", "/v1/openapi.json", Operation::Document, Needs::Nothing)
    },
    Route {
        answers: &[gives(200, Shape::Metrics, "OpenMetrics text.")],
        about: "Counters and histograms for Prometheus",
        ..row("GET", "/metrics", Operation::Metrics, Needs::Read)
    },
];

#[derive(Debug)]
pub(super) enum Found<'a> {
    /// With the segment that varies, if one does.
    Route(&'static Route, Option<&'a str>),
    /// The path is known with other methods.
    Methods(Family, String),
    Nothing(Family),
}

pub(super) fn find<'a>(method: &str, path: &'a str) -> Found<'a> {
    let mut methods: Vec<&str> = Vec::new();
    let mut family = family_of(path);
    for route in &ROUTES {
        let Some(varies) = matches(route.path, path) else { continue };
        if route.method == method {
            return Found::Route(route, varies);
        }
        family = route.family;
        methods.push(route.method);
    }
    if methods.is_empty() || family == Family::Compatible {
        // The compatible server tells no method from no route.
        return Found::Nothing(family);
    }
    Found::Methods(family, methods.join(", "))
}

fn family_of(path: &str) -> Family {
    if path == "/v1" || path.starts_with("/v1/") { Family::V1 } else { Family::Compatible }
}

/// Segment by segment, as sent: nothing that is named here needs escaping.
fn matches<'a>(template: &str, path: &'a str) -> Option<Option<&'a str>> {
    let mut varies = None;
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(varies),
            (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => {
                varies = Some(given)
            }
            (Some(wanted), Some(given)) if wanted == given => {}
            (Some(_) | None, Some(_)) | (Some(_), None) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_own_path_and_no_other() {
        for route in &ROUTES {
            let path = route.path.replace("{id}", "some").replace("{name}", "some");
            match find(route.method, &path) {
                Found::Route(found, varies) => {
                    assert!(std::ptr::eq(found, route), "{path}");
                    assert_eq!(varies.is_some(), path != route.path);
                }
                Found::Methods(..) | Found::Nothing(_) => panic!("{path} is not found"),
            }
        }
    }

    #[test]
    fn what_is_not_there_is_said_in_the_right_words() {
        for path in ["/", "", "/health/", "//health", "/Health", "/executes", "/v2", "/v1x", "*"] {
            assert!(matches!(find("GET", path), Found::Nothing(Family::Compatible)), "{path}");
        }
        for path in ["/v1", "/v1/", "/v1/executions/", "/v1/executions//stop", "/v1/secrets/a/b"] {
            assert!(matches!(find("GET", path), Found::Nothing(Family::V1)), "{path}");
        }
        assert!(matches!(find("POST", "/health"), Found::Nothing(Family::Compatible)));
        assert!(matches!(find("GET", "/execute"), Found::Nothing(Family::Compatible)));
        match find("PATCH", "/v1/executions") {
            Found::Methods(Family::V1, methods) => assert_eq!(methods, "POST, GET"),
            Found::Methods(..) | Found::Route(..) | Found::Nothing(_) => panic!("no methods"),
        }
    }
}
