//! The state directory: where everything is, and the order in which a daemon opens it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::audit::{Audit, AuditError, Note};
use crate::database::Database;
use crate::error::StoreError;
use crate::executions::LOST_CODE;
use crate::{ExecutionId, Executions, Output, Secrets, Tokens, Unlogged, UnloggedError};

/// Bytes that an execution's entry, row and output need to begin with, and some more.
const PROBE: usize = 64 << 10;

#[derive(Debug)]
pub struct Store {
    pub audit: Audit,
    pub executions: Executions,
    pub output: Output,
    pub tokens: Tokens,
    pub secrets: Secrets,
    pub unlogged: Unlogged,
    directory: PathBuf,
}

/// A store, and what an earlier daemon left unfinished.
#[derive(Debug)]
pub struct Opened {
    pub store: Store,
    /// Ended now, as lost.
    pub lost: Vec<ExecutionId>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the state directory {} can't be made: check who owns what is above it", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the state directory {} is open to others: make it its owner's alone (chmod 700)", .path.display())]
    Open { path: PathBuf },
    #[error("the state directory {} belongs to user {owner}, not to the one that this runs as", .path.display())]
    Foreign { path: PathBuf, owner: u32 },
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unlogged(#[from] UnloggedError),
}

/// A state directory that is this process's alone, and not looked into yet: an executor of an earlier daemon may
/// still write there.
#[derive(Debug)]
pub struct Locked {
    directory: PathBuf,
    audit: Audit,
    credential: Option<PathBuf>,
}

impl Locked {
    /// The secrets' key is this file of systemd's, not the one in the directory.
    #[must_use]
    pub fn with_credential(self, credential: Option<PathBuf>) -> Self {
        Self { credential, ..self }
    }

    /// Ends, as lost, what an earlier daemon left unfinished.
    pub fn open(self) -> Result<Opened, OpenError> {
        let Self { directory, audit, credential } = self;
        let database = Store::database(&directory)?;
        let output = Output::open(&directory.join("output"))?;
        let executions = Executions::new(database.clone(), output.clone());
        // Noted before they are ended: a crash between the two notes them twice rather than never. One that has its
        // record may still lack the end of its entry, if the log could not be written just then.
        let unfinished: BTreeSet<ExecutionId> = executions.unfinished()?.into_iter().collect();
        for id in unfinished.union(audit.unclosed()) {
            let body = match unfinished.contains(id) {
                true => json!({ "event": "lost", "code": LOST_CODE }),
                false => json!({ "event": "end-not-logged" }),
            };
            audit.note(Note { execution: Some(*id), principal: "stockade".into(), body })?;
        }
        let lost = executions.sweep_lost()?;
        let unlogged = Unlogged::new(database.clone());
        unlogged.log(&audit)?;
        let tokens = Tokens::new(database.clone());
        let key_file = Store::key_file(&directory);
        let secrets = match credential {
            Some(credential) => Secrets::with_credential(database, &credential, &key_file)?,
            None => Secrets::with_file(database, &key_file)?,
        };
        Ok(Opened { store: Store { audit, executions, output, tokens, secrets, unlogged, directory }, lost })
    }
}

impl Store {
    /// For the daemon, one at a time: the audit log's lock comes first, and guards the rest.
    pub fn lock(directory: &Path) -> Result<Locked, OpenError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| OpenError::Directory { path: directory.to_owned(), source })?;
        check_owner(directory)?;
        let audit = Audit::open(&Self::audit_directory(directory))?;
        Ok(Locked { directory: directory.to_owned(), audit, credential: None })
    }

    pub fn open(directory: &Path) -> Result<Opened, OpenError> {
        Self::lock(directory)?.open()
    }

    /// Whether records can be written again, after they could not: to the audit log, to the database, and to a file beside
    /// them.
    pub fn probe(&self) -> bool {
        if !self.audit.is_whole() || self.unlogged.probe().is_err() {
            return false;
        }
        let path = self.directory.join("probe");
        let written = fs::write(&path, vec![0; PROBE]);
        // It is in nobody's way, and the next one takes its place.
        drop(fs::remove_file(&path));
        written.is_ok()
    }

    /// For the command line's tokens and secrets, beside a daemon or without one.
    pub fn database(directory: &Path) -> Result<Database, StoreError> {
        Database::open(&directory.join("stockade.db"))
    }

    pub fn audit_directory(directory: &Path) -> PathBuf {
        directory.join("audit")
    }

    pub fn key_file(directory: &Path) -> PathBuf {
        directory.join("secrets.key")
    }
}

/// Commands, hashes of tokens and secrets are in there: who else reads or writes it is told, not shut out silently.
fn check_owner(directory: &Path) -> Result<(), OpenError> {
    let found = directory.metadata();
    let found = found.map_err(|source| OpenError::Directory { path: directory.to_owned(), source })?;
    let path = || directory.to_owned();
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(OpenError::Foreign { path: path(), owner: found.uid() });
    }
    if found.mode() & 0o077 != 0 {
        return Err(OpenError::Open { path: path() });
    }
    Ok(())
}
