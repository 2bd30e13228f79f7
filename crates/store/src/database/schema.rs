//! The tables, as a list of steps: `user_version` says how many were taken. Append only.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::StoreError;

const STEPS: &[&str] = &[
    // 1. `result` is JSON text. `kept_bytes` is what the row's output takes on the disk, for retention.
    "CREATE TABLE executions (
        id           TEXT PRIMARY KEY NOT NULL,
        principal    TEXT NOT NULL,
        door         TEXT NOT NULL,
        profile      TEXT NOT NULL,
        command      TEXT NOT NULL,
        workspace    TEXT NOT NULL,
        state        TEXT NOT NULL CHECK (state IN ('queued', 'running', 'ended')),
        result       TEXT,
        code         TEXT,
        class        TEXT,
        created_ms   INTEGER NOT NULL,
        started_ms   INTEGER,
        ended_ms     INTEGER CHECK ((ended_ms IS NOT NULL) = (state = 'ended')),
        stdout_bytes INTEGER NOT NULL DEFAULT 0,
        stderr_bytes INTEGER NOT NULL DEFAULT 0,
        kept_bytes   INTEGER NOT NULL DEFAULT 0,
        key          TEXT
    ) STRICT;
    CREATE UNIQUE INDEX executions_key ON executions (principal, key) WHERE key IS NOT NULL;
    CREATE INDEX executions_open ON executions (id) WHERE state <> 'ended';
    CREATE INDEX executions_ended ON executions (ended_ms, id, kept_bytes) WHERE state = 'ended';
    CREATE INDEX executions_principal ON executions (principal, id);
    CREATE TABLE tokens (
        id           TEXT PRIMARY KEY NOT NULL,
        name         TEXT NOT NULL,
        hash         BLOB NOT NULL CHECK (length(hash) = 32),
        scopes       TEXT NOT NULL,
        created_ms   INTEGER NOT NULL,
        used_ms      INTEGER,
        revoked_ms   INTEGER
    ) STRICT;
    CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_ms IS NULL;
    CREATE TABLE secrets (
        name         TEXT PRIMARY KEY NOT NULL,
        nonce        BLOB NOT NULL CHECK (length(nonce) = 24),
        sealed       BLOB NOT NULL,
        created_ms   INTEGER NOT NULL,
        updated_ms   INTEGER NOT NULL
    ) STRICT;",
    // 2. Notes for the audit log of changes that were made beside its writer. Numbers are not used again: they are
    // the order, and what was moved is deleted up to one.
    "CREATE TABLE unlogged (
        number       INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
        principal    TEXT NOT NULL,
        body         TEXT NOT NULL
    ) STRICT;",
    // 3. The whole of a short output, as it was in its file. The last column: lists don't read as far.
    "ALTER TABLE executions ADD COLUMN frames BLOB;",
];

pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let sqlite = |error| StoreError::sqlite("be brought up to date", error);
    // Immediate: of two processes one takes the steps, and the other finds them taken.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
    let found: i64 =
        transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sqlite)?;
    if found > known {
        return Err(StoreError::TooNew { path: path.to_owned(), found, known });
    }
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step).map_err(sqlite)?;
    }
    transaction.pragma_update(None, "user_version", known).map_err(sqlite)?;
    transaction.commit().map_err(sqlite)
}
