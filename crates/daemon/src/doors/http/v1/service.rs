//! About the service itself: the audit log, its state, its numbers, this interface's description.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use stockade_proto::Code;
use stockade_store::{Store, audit};
use tracing::error;

use crate::denied::Denied;
use crate::doors::http::answer::{Asked, Door};
use crate::doors::http::reply::{JSON, METRICS, Reply};
use crate::doors::http::route::AUDIT_DEFAULT;
use crate::doors::words;
use crate::record::chain;

/// Made from the route table and the words by a test, which fails while this is not what it makes.
const DOCUMENT: &str = include_str!("../../../../../../docs/openapi.json");

/// Bytes of an entry in memory, about, and of all that are looked at: as lines, as JSON, and in the reply.
const ENTRY: usize = 16 << 10;
const MOST: usize = 3 * audit::TAIL_BYTES;

/// Entries as they are stored, byte for byte, so that their chain can be followed.
#[derive(Serialize)]
struct Tail {
    entries: Vec<Box<RawValue>>,
}

pub(in crate::doors::http) async fn audit(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let count = usize::try_from(asked.query.number("limit").unwrap_or(AUDIT_DEFAULT)).unwrap_or(usize::MAX);
    let directory = Store::audit_directory(&door.state);
    let unreadable = |reason: &dyn std::error::Error| {
        error!("{}", chain(reason));
        let remedy = "Run `stockade audit verify` on the host.";
        Denied::fault(Code::RecordFailed, "the audit log can't be read", remedy)
    };
    let tail = move || -> Result<Tail, Denied> {
        let lines = audit::tail(&directory, count).map_err(|reason| unreadable(&reason))?;
        let parsed = lines.iter().map(|line| serde_json::from_slice(line)).collect::<Result<_, _>>();
        Ok(Tail { entries: parsed.map_err(|reason| unreadable(&reason))? })
    };
    let room = door.room_for_list(count.saturating_mul(ENTRY).min(MOST)).await?;
    let tail = door.core.record.blocking(move |_| tail()).await?;
    Ok(Reply::json(StatusCode::OK, &tail).holding(room))
}

pub(in crate::doors::http) fn doctor(door: &Door) -> Reply {
    Reply::json(StatusCode::OK, &words::health(&door.core))
}

pub(in crate::doors::http) fn document() -> Reply {
    Reply::bytes(StatusCode::OK, JSON, DOCUMENT.into())
}

pub(in crate::doors::http) fn metrics(door: &Door) -> Reply {
    let text = door.core.metrics.text(door.core.admission.load());
    Reply::bytes(StatusCode::OK, METRICS, text.into_bytes())
}
