//! Changes that somebody made at the command line, on their way into the audit log. The log has one writer, which may be
//! a daemon; the database may have several. So a change and its note are one transaction there, and whoever writes
//! the log moves the note: nothing is changed that the log will not tell of.

use std::path::Path;

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::audit::{Audit, AuditError, Note};
use crate::clock;
use crate::database::Database;
use crate::error::StoreError;

/// Moved in one go.
const STEP: u32 = 128;

#[derive(Debug, thiserror::Error)]
pub enum UnloggedError {
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone)]
pub struct Unlogged {
    database: Database,
}

struct Waiting {
    number: i64,
    principal: String,
    body: Value,
}

impl Unlogged {
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// Moves all that waits, in its order. A crash in between notes some of them twice rather than never.
    pub fn log(&self, audit: &Audit) -> Result<usize, UnloggedError> {
        let mut moved = 0;
        loop {
            let waiting = self.waiting()?;
            let Some(last) = waiting.last().map(|last| last.number) else { return Ok(moved) };
            moved += waiting.len();
            for Waiting { principal, body, .. } in waiting {
                audit.note(Note { execution: None, principal, body })?;
            }
            self.database.write("forget what is logged", move |connection| {
                let done = connection.execute("DELETE FROM unlogged WHERE number <= ?1", [last]);
                done.map(drop).map_err(|error| StoreError::sqlite("forget what is logged", error))
            })?;
        }
    }

    /// Whether the database takes a change: one that is made and taken back leaves its pages in the journal.
    pub(crate) fn probe(&self) -> Result<(), StoreError> {
        self.database.write("be tried", |connection| {
            leave(connection, Some(""), json!({}))?;
            let last = connection.last_insert_rowid();
            let done = connection.execute("DELETE FROM unlogged WHERE number = ?1", [last]);
            done.map(drop).map_err(|error| StoreError::sqlite("be tried", error))
        })
    }

    /// The same for a log that may have a writer already: then it is that one's to do.
    pub fn log_unless_written(&self, directory: &Path) -> Result<(), UnloggedError> {
        match Audit::try_open(directory)? {
            Some(audit) => self.log(&audit).map(drop),
            None => Ok(()),
        }
    }

    fn waiting(&self) -> Result<Vec<Waiting>, StoreError> {
        self.database.read("read what is not logged", |reader| {
            let mut select = reader
                .prepare_cached("SELECT number, principal, body FROM unlogged ORDER BY number LIMIT ?1")?;
            let rows = select.query_map([STEP], |row| {
                let body: String = row.get(2)?;
                // Ours are always JSON; what somebody else put there is told all the same.
                let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
                Ok(Waiting { number: row.get(0)?, principal: row.get(1)?, body })
            })?;
            rows.collect()
        })
    }
}

/// In the transaction of the change itself. Nothing where the log has it from whoever made the change.
pub(crate) fn leave(connection: &Connection, by: Option<&str>, mut body: Value) -> Result<(), StoreError> {
    let Some(principal) = by else { return Ok(()) };
    // The log says when it was told; this is when it was done.
    body["done_ms"] = json!(clock::now_ms());
    let insert = "INSERT INTO unlogged (principal, body) VALUES (?1, ?2)";
    let done = connection.execute(insert, params![principal, body.to_string()]);
    done.map(drop).map_err(|error| StoreError::sqlite("note a change", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, Tokens, audit};

    fn noted(directory: &Path) -> Vec<Value> {
        let lines = audit::tail(&Store::audit_directory(directory), 100).unwrap();
        let entries = lines.iter().map(|line| audit::Entry::parse(line).unwrap());
        entries.map(|entry| json!([entry.principal, entry.body["event"], entry.body["name"]])).collect()
    }

    #[test]
    fn a_change_is_logged_once_by_whoever_writes_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let store = Store::open(&state).unwrap().store;
        let database = Store::database(&state).unwrap();
        let tokens = Tokens::new(database.clone()).by("uid:7");
        tokens.create("ci", &["read"]).unwrap();
        assert!(tokens.create("ci", &["read"]).is_err(), "it is taken");
        assert!(tokens.revoke("ci").unwrap());
        assert!(!tokens.revoke("ci").unwrap());
        let unlogged = Unlogged::new(database);
        unlogged.log_unless_written(&Store::audit_directory(&state)).unwrap();
        assert_eq!(noted(&state), Vec::<Value>::new(), "the log is the store's");
        assert_eq!(store.unlogged.log(&store.audit).unwrap(), 2);
        assert_eq!(store.unlogged.log(&store.audit).unwrap(), 0);
        let both = [json!(["uid:7", "create token", "ci"]), json!(["uid:7", "revoke token", "ci"])];
        assert_eq!(noted(&state), both);
        // Nobody's: whoever made the change moves it, or the next daemon.
        drop(store);
        tokens.create("other", &["read"]).unwrap();
        unlogged.log_unless_written(&Store::audit_directory(&state)).unwrap();
        assert_eq!(noted(&state).len(), 3);
        tokens.create("third", &["read"]).unwrap();
        drop(Store::open(&state).unwrap());
        assert_eq!(noted(&state).last().unwrap(), &json!(["uid:7", "create token", "third"]));
    }

    #[test]
    fn many_are_moved_in_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let store = Store::open(&state).unwrap().store;
        let tokens = store.tokens.clone().by("uid:7");
        let names: Vec<String> = (0..2 * STEP + 3).map(|at| format!("t{at}")).collect();
        names.iter().for_each(|name| drop(tokens.create(name, &["read"]).unwrap()));
        assert_eq!(store.unlogged.log(&store.audit).unwrap(), names.len());
        let lines = audit::tail(&Store::audit_directory(&state), names.len()).unwrap();
        let told = lines.iter().map(|line| audit::Entry::parse(line).unwrap().body["name"].clone());
        assert!(told.eq(names.iter().map(|name| json!(name))));
    }
}
