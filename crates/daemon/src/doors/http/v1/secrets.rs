//! Secrets, write-only: names can be listed, values only be set. Each change is in the audit log before it is made.

use hyper::StatusCode;
use secrecy::{ExposeSecret as _, SecretSlice};
use serde_json::json;
use stockade_proto::Code;
use stockade_proto::door::{SecretName, SecretNames};
use stockade_redact::{MIN_SECRET, Secret, SecretError};
use stockade_store::Store;
use stockade_store::audit::Note;
use tracing::error;

use crate::denied::Denied;
use crate::doors::http::answer::{Asked, Door};
use crate::doors::http::reply::Reply;
use crate::record::{chain, failed};

/// Bytes of the longest list: ten thousand names of 128 bytes with their times, as they are read and as JSON.
const LIST: usize = 4 << 20;

pub(in crate::doors::http) async fn list(door: &Door) -> Result<Reply, Denied> {
    let room = door.room_for_list(LIST).await?;
    let names =
        door.core.record.blocking(|store| store.secrets.list().map_err(|error| failed(&error))).await?;
    let secrets = names
        .into_iter()
        .map(|it| SecretName { name: it.name, created_ms: it.created_ms, updated_ms: it.updated_ms })
        .collect();
    Ok(Reply::json(StatusCode::OK, &SecretNames { secrets }).holding(room))
}

pub(in crate::doors::http) async fn set(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let (principal, name) = (asked.principal.name().to_owned(), asked.which);
    let value = SecretSlice::from(asked.body);
    // What can't be redacted would show in the output of whoever gets it.
    Secret::new(&name, value.expose_secret()).map_err(|error| {
        let remedy = match error {
            SecretError::TooShort { .. } => {
                format!("Send a value of at least {MIN_SECRET} bytes, newlines at its end not counted.")
            }
            SecretError::Name(_) | SecretError::TooLong { .. } | SecretError::TooMuch { .. } => {
                "Use another name, or a shorter value.".to_owned()
            }
        };
        Denied::refuse(Code::SecretInvalid, format!("the secret can't be kept: {error}"), remedy)
    })?;
    let set = door.core.record.blocking(move |store| {
        note(store, &principal, "set secret", &name)?;
        store.secrets.set(&name, &value).map_err(|error| failed(&error))
    });
    set.await?;
    Ok(Reply::nothing(StatusCode::NO_CONTENT))
}

pub(in crate::doors::http) async fn remove(door: &Door, asked: Asked) -> Result<Reply, Denied> {
    let (principal, name) = (asked.principal.name().to_owned(), asked.which);
    let removed = door.core.record.blocking(move |store| {
        note(store, &principal, "remove secret", &name)?;
        store.secrets.remove(&name).map_err(|error| failed(&error))
    });
    if removed.await? {
        return Ok(Reply::nothing(StatusCode::NO_CONTENT));
    }
    Err(Denied::refuse(Code::SecretUnknown, "there is no secret of that name", "GET /v1/secrets lists them."))
}

fn note(store: &Store, principal: &str, event: &str, name: &str) -> Result<(), Denied> {
    let body = json!({ "event": event, "name": name });
    let noted = store.audit.note(Note { execution: None, principal: principal.to_owned(), body });
    noted.map(drop).map_err(|reason| {
        error!("{}", chain(&reason));
        Denied::fault(
            Code::RecordFailed,
            "the service can't write its audit log, and changes nothing without",
            "The service's log says why; a full disk is the usual reason.",
        )
    })
}
