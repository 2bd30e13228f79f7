//! What stays on record: the audit entry that is opened before anything runs and closed after, the row, the
//! output file. Every call goes to a thread for blocking work; nothing here decides. Next: `dispatch`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stockade_proto::{Bytes, Code};
use stockade_store::executions::{End, Filter, NewExecution, Page, Started};
use stockade_store::output::{Cursor, Piece};
use stockade_store::{AuditError, ExecutionId, Locked, OpenError, Opened, Store, StoreError, Ticket, audit};
use tracing::{error, warn};

use crate::denied::Denied;
use crate::ending::Ending;
use crate::pipeline::Order;

#[derive(Debug, Clone)]
pub struct Record {
    store: Arc<Store>,
}

/// An execution that is on record and may be dispatched.
#[derive(Debug)]
pub struct Open {
    pub ticket: Ticket,
    /// Where its output goes.
    pub output: File,
}

#[derive(Debug)]
pub enum OpenedAs {
    New(Box<Open>),
    /// The same principal used the same key before.
    Known(ExecutionId),
}

impl Record {
    /// Opens the state directory. What an earlier daemon left unfinished is ended, as lost.
    pub fn open_store(directory: &Path) -> Result<(Self, Vec<ExecutionId>), OpenError> {
        Self::take(Store::lock(directory)?)
    }

    /// The same, once nothing of an earlier daemon writes there any more.
    pub(crate) fn take(locked: Locked) -> Result<(Self, Vec<ExecutionId>), OpenError> {
        let Opened { store, lost } = locked.open()?;
        Ok((Self { store: Arc::new(store) }, lost))
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Invariant 1: what this returns is the only way to an executor.
    pub async fn open(&self, order: &Order) -> Result<OpenedAs, Denied> {
        let new = NewExecution {
            id: order.id,
            principal: order.principal.clone(),
            door: order.door.name().to_owned(),
            profile: order.request.profile.clone(),
            command: order.shown.clone(),
            workspace: order.request.workspace.to_string(),
            key: order.key.clone(),
        };
        let body = json!({
            "door": new.door, "profile": new.profile, "command": order.audited_command(),
            "workspace": new.workspace,
        });
        let opening = audit::Opening { execution: order.id, principal: order.principal.clone(), body };
        self.blocking(move |store| {
            let id = new.id;
            match store.executions.start(new).map_err(|error| failed(&error))? {
                Started::New => {}
                Started::Known(known) => return Ok(OpenedAs::Known(known.id)),
            }
            let opened = store.output.create(&id).map_err(|error| failed(&error)).and_then(|output| {
                let ticket = store.audit.append(opening).map_err(|error| audit_failed(&error))?;
                Ok(OpenedAs::New(Box::new(Open { ticket, output })))
            });
            // On record, and nothing will come of it.
            opened.inspect_err(|denied| end(store, id, None, &Ending::NotRun(denied.why.clone())))
        })
        .await
    }

    /// A start is worth a note, not a wait.
    pub async fn running(&self, id: ExecutionId, started_ms: i64) {
        let noted = self
            .blocking(move |store| match store.executions.running(id, started_ms) {
                // It ended just now, and says so itself.
                Ok(()) | Err(StoreError::WrongState { .. }) => Ok(()),
                Err(error) => Err(failed(&error)),
            })
            .await;
        if let Err(denied) = noted {
            warn!(execution = %id, "the start is not on record: {}", denied.message());
        }
    }

    /// Who did something to an execution, before it is done. A full disk must not keep anybody from stopping one, so
    /// that a note that can't be written is told and no more.
    pub async fn noted(&self, principal: &str, id: ExecutionId, event: &'static str) {
        let principal = principal.to_owned();
        let noted = self.blocking(move |store| {
            let body = json!({ "event": event });
            let noted = store.audit.note(audit::Note { execution: Some(id), principal, body });
            noted.map(drop).map_err(|error| audit_failed(&error))
        });
        let why = match tokio::time::timeout(NOTED, noted).await {
            Ok(Ok(())) => return,
            Ok(Err(denied)) => denied.message().to_owned(),
            Err(_) => "the disk does not answer".to_owned(),
        };
        error!(execution = %id, "the audit log does not say who asked for `{event}`: {why}");
    }

    /// A request that was refused before it was on record.
    pub async fn refused(&self, principal: String, body: serde_json::Value) {
        let noted = self.blocking(move |store| {
            let noted = store.audit.note(audit::Note { execution: None, principal, body });
            noted.map(drop).map_err(|error| audit_failed(&error))
        });
        match noted.await {
            // Why not is in the service's log.
            Ok(()) | Err(_) => {}
        }
    }

    /// The end goes on record, whatever became of it.
    pub async fn close(&self, ticket: Ticket, started_ms: Option<i64>, ending: Arc<Ending>) {
        let id = ticket.execution();
        let closed = self
            .blocking(move |store| {
                let failure = ending.failure();
                let body = json!({
                    "outcome": ending.word(),
                    "exit_code": ending.result().map(|result| result.exit_code),
                    "code": failure.map(|failure| failure.code),
                });
                // First: a crash between the two leaves a row that the next start ends, never an entry that nobody does.
                let closed =
                    store.audit.close(ticket, body).map_err(|unclosed| audit_failed(&unclosed.source));
                end(store, id, started_ms, &ending);
                closed
            })
            .await;
        if let Err(denied) = closed {
            error!(execution = %id, "the audit entry can't be closed: {}", denied.message());
        }
    }

    pub async fn get(
        &self,
        id: ExecutionId,
    ) -> Result<Option<stockade_store::executions::Execution>, Denied> {
        self.blocking(move |store| store.executions.get(id).map_err(|error| failed(&error))).await
    }

    pub async fn by_key(&self, principal: &str, key: &str) -> Result<Option<ExecutionId>, Denied> {
        let (principal, key) = (principal.to_owned(), key.to_owned());
        self.blocking(move |store| {
            let found = store.executions.by_key(&principal, &key).map_err(|error| failed(&error))?;
            Ok(found.map(|found| found.id))
        })
        .await
    }

    pub async fn list(
        &self,
        filter: Filter,
        after: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page, Denied> {
        self.blocking(move |store| {
            store.executions.list(&filter, after, limit).map_err(|error| failed(&error))
        })
        .await
    }

    pub async fn read(&self, id: ExecutionId, cursor: Cursor, limit: usize) -> Result<Piece, Denied> {
        self.blocking(move |store| store.output.read(&id, cursor, limit).map_err(|error| failed(&error)))
            .await
    }

    /// Runs `work` where blocking is allowed. A runtime that is going away is a failure like another.
    pub async fn blocking<T, F>(&self, work: F) -> Result<T, Denied>
    where
        T: Send + 'static,
        F: FnOnce(&Store) -> Result<T, Denied> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(done) => done,
            Err(_) => {
                Err(Denied::refuse(Code::Draining, "the service is stopping", "Try again when it is back."))
            }
        }
    }
}

fn end(store: &Store, id: ExecutionId, started_ms: Option<i64>, ending: &Ending) {
    // The executor may have died before it could say that nothing follows.
    if let Err(error) = store.output.seal(&id) {
        warn!(execution = %id, "the output has no end: {error}");
    }
    let failure = ending.failure();
    let totals = ending.result().map(|result| (result.stdout.bytes, result.stderr.bytes)).unwrap_or_default();
    let end = End {
        started_ms,
        result: serde_json::to_value(shortened(ending)).unwrap_or_default(),
        code: failure.map(|failure| failure.code.to_owned()),
        class: failure.map(|failure| failure.class.to_owned()),
        stdout_bytes: totals.0,
        stderr_bytes: totals.1,
    };
    if let Err(error) = store.executions.ended(id, end) {
        error!(execution = %id, "the end is not on record: {error}");
    }
}

/// For a note that something waits for.
const NOTED: Duration = Duration::from_secs(1);

/// Bytes of a command in a record's result; the record has more of it as text.
const KEPT_COMMAND: usize = 4096;

fn shortened(ending: &Ending) -> Ending {
    let mut ending = ending.clone();
    if let Ending::Result(result) = &mut ending
        && result.command.iter().map(Bytes::len).sum::<usize>() > KEPT_COMMAND
    {
        result.command.clear();
    }
    ending
}

/// A failure of the store, as a caller hears it. The chain goes to the log: paths are not theirs to know.
pub fn failed(error: &StoreError) -> Denied {
    let (message, retry) = (error.to_string(), error.retryable());
    error!("{}", chain(error));
    let theirs = matches!(
        error,
        StoreError::TooLong { .. } | StoreError::Invalid { .. } | StoreError::NameTaken { .. }
    );
    let denied = if theirs {
        Denied::refuse(Code::RequestInvalid, message, "Change that field.")
    } else {
        Denied::fault(
            Code::RecordFailed,
            "the service can't write its records",
            "Nothing was started. The service's log says why; a full disk is the usual reason.",
        )
    };
    if retry { denied.after(std::time::Duration::from_secs(2)) } else { denied }
}

fn audit_failed(error: &AuditError) -> Denied {
    error!("{}", chain(error));
    Denied::fault(
        Code::RecordFailed,
        "the service can't write its audit log, and runs nothing without",
        "Nothing was started. The service's log says why; a full disk is the usual reason.",
    )
    .after(std::time::Duration::from_secs(2))
}

/// An error and its causes, once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
