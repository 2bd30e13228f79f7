//! What can go wrong with the database and with what is kept in it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;

use crate::ExecutionId;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("SQLite {found} is too old, 3.51.3 is the first that is safe: build with the bundled one")]
    SqliteTooOld { found: &'static str },
    #[error("the database {} can't be opened: check who owns it and its directory", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("the database {} can't be put into WAL mode: keep it on a local file system", .path.display())]
    NotWal { path: PathBuf },
    #[error("the database {} is of version {found}, this program knows {known}: use a newer one", .path.display())]
    TooNew { path: PathBuf, found: i64, known: i64 },
    #[error("the database is locked by another process: find it (fuser), or wait, then try again")]
    Locked(#[source] Arc<rusqlite::Error>),
    #[error("the disk or the quota that the database is on is full: make room, then try again")]
    Full(#[source] Arc<rusqlite::Error>),
    #[error("the database is damaged: stop the daemon and restore a copy")]
    Damaged(#[source] Arc<rusqlite::Error>),
    #[error("the database could not {what}: see the reason, and report it if it is not the disk")]
    Sqlite { what: &'static str, source: Arc<rusqlite::Error> },
    #[error("the database's queue of {limit} writes is full: try again in a moment")]
    Busy { limit: usize },
    #[error("the database's writer is gone: restart the daemon")]
    WriterGone,
    #[error(
        "the database did not answer within {waited:?}, so it is not known whether this was written: ask again"
    )]
    WriterSlow { waited: Duration },
    #[error("the database's thread can't be started: raise the limit of threads")]
    Thread { source: io::Error },
    #[error("execution {id} is not on record: check the id, it may have been removed by its age")]
    NotFound { id: ExecutionId },
    #[error("execution {id} is {state} already, so it can't become {wanted}: this is a defect, report it")]
    WrongState { id: ExecutionId, state: &'static str, wanted: &'static str },
    #[error("execution {id} is on record already: this is a defect, report it")]
    Duplicate { id: ExecutionId },
    #[error("the {field} has {length} bytes, the limit is {limit}: shorten it")]
    TooLong { field: &'static str, length: usize, limit: usize },
    #[error("the {field} is not valid: {rule}")]
    Invalid { field: &'static str, rule: &'static str },
    #[error("a {field} of the name {name} exists: choose another name, or revoke that one")]
    NameTaken { field: &'static str, name: String },
    #[error("the output {} can't be used: check who owns it", .path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("the key file {} can't be used: check that it is there and that its owner can read it", .path.display())]
    Key { path: PathBuf, source: io::Error },
    #[error("the key file {} is {what}: set it to mode 0600, owned by the daemon's user", .path.display())]
    KeyUnsafe { path: PathBuf, what: &'static str },
    #[error("there are secrets and no key file {}: restore it, or remove the secrets", .path.display())]
    KeyMissing { path: PathBuf },
    #[error(
        "the credential {} can't be the secrets' key, it is {what}: make it of the 32 bytes of a key file", .path.display()
    )]
    Credential { path: PathBuf, what: &'static str },
    #[error(
        "the key of these secrets is a credential of the service's ({} says so): set them through it, PUT /v1/secrets/NAME",
        .mark.display()
    )]
    KeyElsewhere { mark: PathBuf },
    #[error("the secret {name} can't be decrypted with this key: set it anew, or restore the key file")]
    Undecryptable { name: String },
    #[error("the kernel gave no random bytes: this should not happen on a running system")]
    Random { source: io::Error },
}

impl StoreError {
    pub(crate) fn sqlite(what: &'static str, error: rusqlite::Error) -> Self {
        Self::of_batch(what, &Arc::new(error))
    }

    /// For the others of a batch that failed as one.
    pub(crate) fn of_batch(what: &'static str, source: &Arc<rusqlite::Error>) -> Self {
        let source = Arc::clone(source);
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked(source),
            Some(ErrorCode::DiskFull) => Self::Full(source),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(source),
            _ => Self::Sqlite { what, source },
        }
    }

    /// SQLite's own error, where it is one.
    pub(crate) fn cause(&self) -> Option<Arc<rusqlite::Error>> {
        if let Self::Locked(source)
        | Self::Full(source)
        | Self::Damaged(source)
        | Self::Sqlite { source, .. } = self
        {
            Some(Arc::clone(source))
        } else {
            None
        }
    }

    /// Whether the same call may succeed later without anyone changing anything.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::Full(_) | Self::Busy { .. } | Self::WriterSlow { .. })
    }
}

/// Refuses text that is longer than its field may be.
pub(crate) fn within(field: &'static str, text: &str, limit: usize) -> Result<(), StoreError> {
    match text.len() {
        length if length > limit => Err(StoreError::TooLong { field, length, limit }),
        _ => Ok(()),
    }
}
