//! Start, list, look at, feed, stop and wait for executions.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use stockade_proto::door;
use stockade_proto::{Bytes, Code};
use stockade_store::ExecutionId;
use stockade_store::executions::PAGE_LIMIT;

use crate::denied::Denied;
use crate::doors::http::answer::{Asked, Door};
use crate::doors::http::reply::Reply;
use crate::doors::http::route::{IDEMPOTENCY_KEY, PAGE_DEFAULT};
use crate::doors::words::{self, LISTED};
use crate::pipeline::{self, Ask, Start};

/// Of a body that is not as it should be, in an answer.
const REASON: usize = 300;
const WAIT_DEFAULT_MS: u64 = 30_000;

/// One that can't be an id is not on record either.
pub(super) fn id(asked: &Asked) -> Result<ExecutionId, Denied> {
    asked.which.parse().map_err(|_| Denied::unknown())
}

pub(in crate::doors::http) async fn start(door: &Arc<Door>, asked: Asked) -> Result<Reply, Denied> {
    let mut start = read(&asked.body)?;
    start.idempotency_key = key(&asked, start.idempotency_key.take())?;
    let (request, key) = words::request(&door.core.config(), start)?;
    let ask = Ask { door: pipeline::Door::V1, principal: asked.principal.clone(), request, key };
    let (status, id) = match pipeline::start(&door.core, ask).await? {
        Start::New(execution) => (StatusCode::CREATED, execution.id),
        Start::Known(id) => (StatusCode::OK, id),
    };
    let row = door.core.look_up(&asked.principal, id).await?;
    Ok(Reply::json(status, &words::execution(row)).location(&format!("/v1/executions/{id}")).of(id))
}

pub(in crate::doors::http) fn read(body: &[u8]) -> Result<door::Start, Denied> {
    let mut json = serde_json::Deserializer::from_slice(body);
    // serde would also take the fields as an array, in their order.
    let read = match body.trim_ascii_start().first() {
        Some(b'{') => serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string()),
        Some(_) | None => Err("it is no JSON object".to_owned()),
    };
    let read =
        read.and_then(|start: door::Start| json.end().map(|()| start).map_err(|error| error.to_string()));
    read.map_err(|reason| {
        // It quotes names that the caller chose.
        let reason = Bytes::from(reason.chars().take(REASON).collect::<String>());
        Denied::refuse(
            Code::RequestInvalid,
            format!("the body is not as it should be: {reason}"),
            "GET /v1/openapi.json describes it.",
        )
    })
}

/// In the header or in the body; in both only if it is the same.
fn key(asked: &Asked, field: Option<String>) -> Result<Option<String>, Denied> {
    let wrong =
        |message: &str| Denied::refuse(Code::RequestInvalid, message, "Give one key, of plain characters.");
    let mut headers = asked.headers.get_all(IDEMPOTENCY_KEY).iter();
    let header = match (headers.next(), headers.next()) {
        (None, _) => return Ok(field),
        (Some(header), None) => {
            header.to_str().map_err(|_| wrong("the Idempotency-Key is not plain text"))?
        }
        (Some(_), Some(_)) => return Err(wrong("there are two Idempotency-Key headers")),
    };
    match field {
        Some(field) if field != header => Err(wrong("the Idempotency-Key is not the body's idempotency_key")),
        Some(_) | None => Ok(Some(header.to_owned())),
    }
}

pub(in crate::doors::http) async fn list(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let limit = usize::try_from(asked.query.number("limit").unwrap_or(PAGE_DEFAULT)).unwrap_or(usize::MAX);
    let (state, after) = (asked.query.state("state"), asked.query.execution("after"));
    let room = door.room_for_list(limit.min(PAGE_LIMIT).saturating_mul(LISTED)).await?;
    let page = door.core.list(&asked.principal, state, after, limit).await?;
    Ok(Reply::json(StatusCode::OK, &words::page(page)).holding(room))
}

pub(in crate::doors::http) async fn get(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    found(door, &asked, id(&asked)?).await
}

async fn found(door: &Door, asked: &Asked, id: ExecutionId) -> Result<Reply, Denied> {
    let row = door.core.look_up(&asked.principal, id).await?;
    Ok(Reply::json(StatusCode::OK, &words::execution(row)).of(id))
}

pub(in crate::doors::http) async fn stop(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let id = id(&asked)?;
    door.core.stop(&asked.principal, id).await?;
    found(door, &asked, id).await
}

pub(in crate::doors::http) async fn stdin(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let (id, end) = (id(&asked)?, asked.query.flag("end"));
    door.core.write(&asked.principal, id, Bytes::from(asked.body), end).await?;
    Ok(Reply::nothing(StatusCode::NO_CONTENT).of(id))
}

pub(in crate::doors::http) async fn wait(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let id = id(&asked)?;
    let within = Duration::from_millis(asked.query.number("within_ms").unwrap_or(WAIT_DEFAULT_MS));
    let _place = door.follow()?;
    let ended = tokio::select! {
        ended = door.core.wait(&asked.principal, id, within) => ended?,
        () = door.stopping() => None,
    };
    match ended {
        Some(row) => Ok(Reply::json(StatusCode::OK, &words::execution(row)).of(id)),
        None => found(door, &asked, id).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_refused_for_what_is_not_in_the_words() {
        let deep = format!(r#"{{"env":{{"A":{}{}}}}}"#, "[".repeat(5000), "]".repeat(5000));
        for body in [
            "",
            "null",
            "[]",
            "5",
            "{",
            r#"{"shell":"a"} x"#,
            r#"{"shell":5}"#,
            r#"{"shell":null,"comand":["a"]}"#,
            r#"{"command":"ls"}"#,
            r#"{"command":[5]}"#,
            r#"{"command":[{"hex":"0"}]}"#,
            r#"{"command":[["00"]]}"#,
            r#"{"command":[{}]}"#,
            r#"{"command":[{"hex":"+1"}]}"#,
            r#"{"command":[{"hex":"é"}]}"#,
            r#"{"command":[{"hex":"zz"}]}"#,
            r#"{"command":[{"hex":"00","more":1}]}"#,
            r#"{"shell":"a","shell":"b"}"#,
            r#"{"timeout_ms":-1}"#,
            r#"{"timeout_ms":1.5}"#,
            r#"{"timeout_ms":NaN}"#,
            r#"{"timeout_ms":1e999}"#,
            r#"{"timeout_ms":"1"}"#,
            r#"{"timeout_ms":99999999999999999999999999}"#,
            r#"{"stdin":"yes"}"#,
            r#"{"stdin":null}"#,
            r#"{"env":[]}"#,
            r#"{"env":{"A":null}}"#,
            r#"{"env":null}"#,
            r#"{"profile":{}}"#,
            r#"{"workspace":5}"#,
            r#"{"cwd":[]}"#,
            r#"{"idempotency_key":5}"#,
            deep.as_str(),
        ] {
            let refused = read(body.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), Code::RequestInvalid, "{body}");
            assert!(refused.message().len() < REASON + 100, "{body}");
        }
        for body in [r#"{"\u001b[2J\u202e":1}"#, r#"{"env":{"\u001b[2J\n":5}}"#] {
            let refused = read(body.as_bytes()).unwrap_err();
            assert!(refused.message().contains(r"\u{1b}[2J"), "{}", refused.message());
            assert!(!refused.message().contains(Bytes::is_unseen), "{}", refused.message());
        }
        assert!(read(b"{\"shell\":\"a\xff\"}").is_err());
        let start = read(br#"{"shell":"a","timeout_ms":5,"env":{"A":{"hex":"ff"}}}"#).unwrap();
        assert_eq!((start.shell, start.timeout_ms), (Some(Bytes::from("a")), Some(5)));
    }
}
