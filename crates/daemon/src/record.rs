//! What stays on record: the audit entry that is opened before anything runs and closed after, the row, the
//! output file. Every call goes to a thread for blocking work; nothing here decides. Next: `dispatch`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stockade_proto::Code;
use stockade_store::executions::{Filter, NewExecution, Page, Started};
use stockade_store::output::{Cursor, Piece};
use stockade_store::{
    AuditError, ExecutionId, Locked, OpenError, Opened, Store, StoreError, Ticket, UnloggedError, audit,
};
use tracing::{error, info, warn};

use crate::denied::Denied;
use crate::ending::Ending;
use crate::owed::{Closing, Owed, Settled, settle};
use crate::pipeline::Order;

#[derive(Debug, Clone)]
pub struct Record {
    store: Arc<Store>,
    owed: Arc<Owed>,
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
        Ok((Self { store: Arc::new(store), owed: Arc::default() }, lost))
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Invariant 1: an executor runs nothing without what this returns. The order is made on the same thread, so that
    /// one is woken for both.
    pub async fn open(
        &self,
        order: impl FnOnce() -> Result<Order, Denied> + Send + 'static,
    ) -> Result<(Order, OpenedAs), Denied> {
        let owed = Arc::clone(&self.owed);
        self.writing(move |store| {
            let order = order()?;
            let opened = put_on_record(store, &owed, &order)?;
            Ok((order, opened))
        })
        .await
    }

    /// A start is worth a note, not a wait.
    pub async fn running(&self, id: ExecutionId, started_ms: i64) {
        let noted = self
            .writing(move |store| match store.executions.running(id, started_ms) {
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
        let noted = self.writing(move |store| {
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
        let noted = self.writing(move |store| {
            let noted = store.audit.note(audit::Note { execution: None, principal, body });
            noted.map(drop).map_err(|error| audit_failed(&error))
        });
        match noted.await {
            // Why not is in the service's log.
            Ok(()) | Err(_) => {}
        }
    }

    /// The end goes on record, whatever became of it: now, or as soon as the disk takes it. Gives the whole output,
    /// where that is short.
    pub async fn close(&self, ticket: Ticket, started_ms: Option<i64>, ending: Arc<Ending>) -> Option<Piece> {
        let id = ticket.execution();
        let closing = Closing { id, ticket: Some(ticket), row: true, started_ms, ending };
        match self.blocking(move |store| Ok(settle(store, closing))).await {
            Ok(Settled { rest, output }) => {
                self.owed.add(rest);
                output
            }
            Err(denied) => {
                error!(execution = %id, "the end is not on record: {}", denied.message());
                None
            }
        }
    }

    /// Whether the last that was to be written could not be.
    pub fn is_failing(&self) -> bool {
        self.owed.is_failing()
    }

    /// Takes what was changed at the command line into the audit log.
    pub(crate) async fn log_changes(&self) {
        let logged = self.writing(|store| match store.unlogged.log(&store.audit) {
            Ok(_) => Ok(()),
            Err(UnloggedError::Audit(error)) => Err(audit_failed(&error)),
            Err(UnloggedError::Store(error)) => Err(failed(&error)),
        });
        match logged.await {
            // It is in the service's log, and tried again when the disk takes anything.
            Ok(()) | Err(_) => {}
        }
    }

    /// Writes what is owed, if the disk takes anything again.
    pub(crate) async fn catch_up(&self) {
        if !self.is_failing() {
            return;
        }
        let owed = Arc::clone(&self.owed);
        let tried = self.blocking(move |store| {
            if owed.retry(store) {
                info!("records can be written again");
            }
            Ok(())
        });
        match tried.await {
            // An error: the service is stopping, and the next start ends what is left.
            Ok(()) | Err(_) => {}
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
        self.blocking(move |store| {
            store.executions.output(&id, cursor, limit).map_err(|error| failed(&error))
        })
        .await
    }

    /// As `blocking`, for what is to stay: a failure is remembered until the disk is found to take something.
    async fn writing<T, F>(&self, work: F) -> Result<T, Denied>
    where
        T: Send + 'static,
        F: FnOnce(&Store) -> Result<T, Denied> + Send + 'static,
    {
        let done = self.blocking(work).await;
        done.inspect_err(|denied| {
            if denied.code() == Code::RecordFailed {
                self.owed.failed();
            }
        })
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

fn put_on_record(store: &Store, owed: &Owed, order: &Order) -> Result<OpenedAs, Denied> {
    let id = order.id;
    let new = NewExecution {
        id,
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
    let opening = audit::Opening { execution: id, principal: order.principal.clone(), body };
    match store.executions.start(new).map_err(|error| failed(&error))? {
        Started::New => {}
        Started::Known(known) => return Ok(OpenedAs::Known(known.id)),
    }
    let opened = store.output.create(&id).map_err(|error| failed(&error)).and_then(|output| {
        let ticket = store.audit.append(opening).map_err(|error| audit_failed(&error))?;
        Ok(OpenedAs::New(Box::new(Open { ticket, output })))
    });
    // On record, and nothing will come of it.
    opened.inspect_err(|denied| {
        let ending = Arc::new(Ending::NotRun(denied.why.clone()));
        owed.add(settle(store, Closing { id, ticket: None, row: true, started_ms: None, ending }).rest);
    })
}

/// For a note that something waits for.
const NOTED: Duration = Duration::from_secs(1);

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
