//! What the door itself answers when a request does not get as far as the pipeline, and how a refusal or a fault
//! becomes a status: in the compatible server's words, and in those of `/v1`.

use hyper::StatusCode;
use serde::Serialize;
use stockade_proto::Code;
use stockade_proto::link::NotRun;

use super::body::BodyError;
use super::reply::Reply;
use super::route::Family;
use crate::denied::Denied;
use crate::doors::words;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    NoRoute,
    /// With the methods that there are.
    NoMethod(String),
    NoCredential,
    FromAPage,
    TooLarge,
    TooSlow,
    BrokenBody,
    /// With the one that is taken.
    MediaType(&'static str),
}

impl From<BodyError> for Trouble {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::TooLarge,
            BodyError::TooSlow => Self::TooSlow,
            BodyError::Broken => Self::BrokenBody,
        }
    }
}

impl Trouble {
    pub(super) fn reply(self, family: Family) -> Reply {
        let denied = self.denied();
        let reply = match family {
            Family::Compatible => Reply::text(status(denied.code()), self.exact()),
            Family::V1 => v1(&denied),
        };
        match self {
            Self::NoRoute | Self::MediaType(_) => reply,
            Self::NoMethod(methods) => reply.allow(&methods),
            Self::NoCredential => reply.ask_for_a_token(),
            Self::FromAPage => reply,
            Self::TooLarge | Self::TooSlow | Self::BrokenBody => reply.closing(),
        }
    }

    /// Byte for byte what clients of the compatible server match on (HTTP-2).
    const fn exact(&self) -> &'static str {
        match self {
            Self::NoRoute | Self::NoMethod(_) => r#"{"error":"Not found"}"#,
            Self::NoCredential => r#"{"error":"Unauthorized"}"#,
            Self::FromAPage => r#"{"error":"Requests of web pages need the secret"}"#,
            Self::TooLarge => r#"{"error":"Request body too large"}"#,
            Self::TooSlow => r#"{"error":"Request timeout"}"#,
            Self::BrokenBody => r#"{"error":"Invalid JSON body"}"#,
            Self::MediaType(_) => r#"{"error":"Unsupported media type"}"#,
        }
    }

    pub(super) fn denied(&self) -> Denied {
        let (code, message, remedy) = match self {
            Self::NoRoute => (
                Code::RouteUnknown,
                "there is nothing at this path",
                "GET /v1/openapi.json lists what there is.",
            ),
            Self::NoMethod(methods) => {
                let remedy = format!("Use one of: {methods}.");
                return Denied::refuse(Code::MethodUnknown, "this path does not take that method", remedy);
            }
            Self::NoCredential => (
                Code::CredentialMissing,
                "there is no valid credential in the request",
                "Send `Authorization: Bearer TOKEN` (stockade token create) or the X-Executor-Secret header.",
            ),
            Self::FromAPage => (
                Code::NotPermitted,
                "the request comes from a web page, or was sent to a name that is not this machine's",
                "Set a secret or create a token, and send it; without one, call 127.0.0.1 from a program.",
            ),
            Self::TooLarge => (Code::BodyTooLarge, "the request's body is too large", "Send less at a time."),
            Self::TooSlow => (Code::BodyTooSlow, "the request's body took too long", "Send it in one go."),
            Self::BrokenBody => (
                Code::RequestInvalid,
                "the request's body ended early or its chunks are wrong",
                "Send as many bytes as announced.",
            ),
            Self::MediaType(taken) => {
                let remedy = format!("Send `Content-Type: {taken}`, and no Content-Encoding.");
                return Denied::refuse(
                    Code::MediaTypeUnknown,
                    "this path takes another kind of body",
                    remedy,
                );
            }
        };
        Denied::refuse(code, message, remedy)
    }
}

pub(super) fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A refusal or a fault in the words of `/v1`.
pub(super) fn v1(denied: &Denied) -> Reply {
    Reply::json(status(denied.code()), &words::problem(denied)).retry_after(denied.retry_after)
}

/// The same at the compatible routes: `error` is what its clients look for, the rest is guidance.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Refused"))]
pub(super) struct Refused<'a> {
    /// One sentence.
    error: &'a str,
    code: &'static str,
    /// What to do next.
    remedy: &'a str,
    /// The line of a profile that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<String>,
}

pub(super) fn compatible(denied: &Denied, execution: Option<stockade_store::ExecutionId>) -> Reply {
    let origin = match &denied.why {
        NotRun::Refusal(refusal) => refusal.origin.as_ref().map(ToString::to_string),
        NotRun::Fault(_) => None,
    };
    let refused = Refused {
        error: denied.message(),
        code: denied.code().id(),
        remedy: denied.remedy(),
        origin,
        execution: execution.map(|id| id.to_string()),
    };
    let reply = Reply::json(up_front(denied.code()), &refused).retry_after(denied.retry_after);
    match execution {
        Some(execution) => reply.of(execution),
        None => reply,
    }
}

/// SOCK-4: what a policy refuses before it starts is 403 there, also where a person at a command line has only
/// mistyped something.
fn up_front(code: Code) -> StatusCode {
    let policy =
        [Code::ShellNotAllowed, Code::EnvironmentRefused, Code::WorkspaceForbidden, Code::ProfileWidens];
    if policy.contains(&code) { StatusCode::FORBIDDEN } else { status(code) }
}
