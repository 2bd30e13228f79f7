//! The record of every execution: queued, running, ended, and nothing else. What was not ended when the daemon
//! died is ended at the next start, as lost.

mod record;
mod retention;

use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::value::RawValue;

use crate::database::Database;
use crate::error::{StoreError, within};
use crate::output::{Cursor, Piece};
use crate::{ExecutionId, Output, clock};
use record::{COLUMNS, LIST_COLUMNS};
pub use record::{
    COMMAND_LIMIT, End, Execution, Filter, KEY_LIMIT, NewExecution, Page, RESULT_LIMIT, Started, State,
};
pub use retention::{Keep, Removed};

/// "Executor unavailable or died in flight", and its class.
pub const LOST_CODE: &str = "UZ-EXEC-003";
pub const LOST_CLASS: &str = "executor_crash";
/// What one page holds at most.
pub const PAGE_LIMIT: usize = 500;
/// The output of an older one stays in its file: it may be on the disk, where a power cut leaves it, and the record of
/// its end is not yet. What is younger is in neither.
const YOUNG_MS: i64 = 5000;
/// What a row takes beside its texts, its indices included.
const ROW_BYTES: u64 = 1024;

#[derive(Debug, Clone)]
pub struct Executions {
    database: Database,
    output: Output,
}

impl Executions {
    pub fn new(database: Database, output: Output) -> Self {
        Self { database, output }
    }

    /// On record when it returns, as queued.
    pub fn start(&self, new: NewExecution) -> Result<Started, StoreError> {
        new.check()?;
        self.database.write("record an execution", move |connection| {
            let known = match &new.key {
                Some(key) => find_key(connection, &new.principal, key).map_err(sqlite("look a key up"))?,
                None => None,
            };
            if let Some(known) = known {
                return Ok(Started::Known(Box::new(known)));
            }
            let mut insert = connection
                .prepare_cached(
                    "INSERT INTO executions
                         (id, principal, door, profile, command, workspace, state, created_ms, key)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7, ?8) ON CONFLICT (id) DO NOTHING",
                )
                .map_err(sqlite("record an execution"))?;
            let NewExecution { id, principal, door, profile, command, workspace, key } = new;
            let row = params![id, principal, door, profile, command, workspace, clock::now_ms(), key];
            match insert.execute(row).map_err(sqlite("record an execution"))? {
                0 => Err(StoreError::Duplicate { id }),
                _ => Ok(Started::New),
            }
        })
    }

    /// Since that moment.
    pub fn running(&self, id: ExecutionId, started_ms: i64) -> Result<(), StoreError> {
        self.database.write("record a start", move |connection| {
            let update =
                "UPDATE executions SET state = 'running', started_ms = ?2 WHERE id = ?1 AND state = 'queued'";
            let changed =
                connection.prepare_cached(update).and_then(|mut it| it.execute(params![id, started_ms]));
            match changed.map_err(sqlite("record a start"))? {
                0 => Err(not_now(connection, id, State::Running)),
                _ => Ok(()),
            }
        })
    }

    /// Once only, from queued (it never ran) or from running.
    pub fn ended(&self, id: ExecutionId, end: End) -> Result<(), StoreError> {
        let result = end.result.as_deref().map(RawValue::get).unwrap_or_default();
        within("result", result, RESULT_LIMIT)?;
        let output = end.output_bytes.unwrap_or_else(|| self.output.size(&id));
        let kept = count(output).saturating_add(bytes_of(result));
        let frames = end.frames.filter(|_| clock::now_ms().saturating_sub(id.made_ms()) < YOUNG_MS);
        let has_frames = frames.is_some();
        self.database.write("record an end", move |connection| {
            let mut update = connection
                .prepare_cached(
                    "UPDATE executions SET state = 'ended', ended_ms = ?2, result = ?3, code = ?4, class = ?5,
                         stdout_bytes = ?6, stderr_bytes = ?7, kept_bytes = ?8 + length(command),
                         started_ms = coalesce(started_ms, ?9), frames = ?10
                     WHERE id = ?1 AND state <> 'ended'",
                )
                .map_err(sqlite("record an end"))?;
            let (stdout, stderr) = (count(end.stdout_bytes), count(end.stderr_bytes));
            let (now, started) = (clock::now_ms(), end.started_ms);
            let result = end.result.as_deref().map(RawValue::get);
            let row = params![id, now, result, end.code, end.class, stdout, stderr, kept, started, frames];
            match update.execute(row).map_err(sqlite("record an end"))? {
                0 => Err(not_now(connection, id, State::Ended)),
                _ => Ok(()),
            }
        })?;
        if has_frames {
            self.output.use_again(&id);
        }
        Ok(())
    }

    /// What it wrote after the cursor, about `limit` bytes of it, while it runs or after.
    pub fn output(&self, id: &ExecutionId, cursor: Cursor, limit: usize) -> Result<Piece, StoreError> {
        if let Some(piece) = self.output.read(id, cursor, limit)? {
            return Ok(piece);
        }
        // A file goes when the record has what was in it, not before.
        let frames = self.database.read("read an output", |reader| {
            let mut find = reader.prepare_cached("SELECT frames FROM executions WHERE id = ?1")?;
            find.query_row([id], |row| row.get::<_, Option<Vec<u8>>>(0)).optional()
        })?;
        match frames.flatten() {
            Some(frames) => self.output.read_kept(id, &frames, cursor, limit),
            None => Err(self.output.missing(id)),
        }
    }

    pub fn get(&self, id: ExecutionId) -> Result<Option<Execution>, StoreError> {
        self.database.read("read an execution", |reader| {
            let mut find =
                reader.prepare_cached(&format!("SELECT {COLUMNS} FROM executions WHERE id = ?1"))?;
            find.query_row([id], Execution::from_row).optional()
        })
    }

    pub fn by_key(&self, principal: &str, key: &str) -> Result<Option<Execution>, StoreError> {
        self.database.read("look a key up", |reader| find_key(reader, principal, key))
    }

    /// Newest first; `after` is the `next` of the page before.
    pub fn list(
        &self,
        filter: &Filter,
        after: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let limit = limit.clamp(1, PAGE_LIMIT);
        // Greater than any id, so that the index is used for the first page as well.
        let before = after.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let mut executions = self.database.read("list executions", |reader| {
            // One statement for each filter: with `?2 IS NULL OR …` no index would be used.
            let own = if filter.principal.is_some() { "principal = ?2" } else { "?2 IS NULL" };
            let state = if filter.state.is_some() { "state = ?3" } else { "?3 IS NULL" };
            let mut select = reader.prepare_cached(&format!(
                "SELECT {LIST_COLUMNS} FROM executions WHERE id < ?1 AND {own} AND {state}
                 ORDER BY id DESC LIMIT ?4",
            ))?;
            // One more than asked for says whether there is a next page.
            let asked = i64::try_from(limit + 1).unwrap_or(i64::MAX);
            let row = params![before, filter.principal, filter.state, asked];
            select.query_map(row, Execution::from_row)?.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let more = executions.len() > limit;
        executions.truncate(limit);
        let next = executions.last().filter(|_| more).map(|last| last.id);
        Ok(Page { executions, next })
    }

    /// Queued or running, oldest first.
    pub fn unfinished(&self) -> Result<Vec<ExecutionId>, StoreError> {
        self.database.read("list what is unfinished", unfinished)
    }

    /// For the start of a daemon, when nothing of an earlier one can be alive any more: ends everything that has
    /// not ended, as lost, and seals its output.
    pub fn sweep_lost(&self) -> Result<Vec<ExecutionId>, StoreError> {
        let output = self.output.clone();
        self.database.write("record what was lost", move |connection| {
            let sweep = || -> rusqlite::Result<Vec<ExecutionId>> {
                let lost = unfinished(connection)?;
                let mut update = connection.prepare(
                    "UPDATE executions SET state = 'ended', ended_ms = ?2, code = ?3, class = ?4, kept_bytes = ?5
                     WHERE id = ?1",
                )?;
                for id in &lost {
                    // It may have died before there was a file; a file that can't be sealed reads as open, and the
                    // record says that it ended.
                    drop(output.seal(id));
                    update.execute(params![id, clock::now_ms(), LOST_CODE, LOST_CLASS, count(output.size(id))])?;
                }
                Ok(lost)
            };
            sweep().map_err(sqlite("record what was lost"))
        })
    }
}

fn unfinished(connection: &Connection) -> rusqlite::Result<Vec<ExecutionId>> {
    let mut select =
        connection.prepare_cached("SELECT id FROM executions WHERE state <> 'ended' ORDER BY id")?;
    select.query_map([], |row| row.get(0))?.collect()
}

fn find_key(connection: &Connection, principal: &str, key: &str) -> rusqlite::Result<Option<Execution>> {
    let select = format!("SELECT {COLUMNS} FROM executions WHERE principal = ?1 AND key = ?2");
    connection.prepare_cached(&select)?.query_row([principal, key], Execution::from_row).optional()
}

/// Why an update found no row.
fn not_now(connection: &Connection, id: ExecutionId, wanted: State) -> StoreError {
    let mut state = match connection.prepare_cached("SELECT state FROM executions WHERE id = ?1") {
        Ok(state) => state,
        Err(error) => return StoreError::sqlite("read a state", error),
    };
    match state.query_row([id], |row| row.get::<_, State>(0)).optional() {
        Ok(Some(state)) => StoreError::WrongState { id, state: state.name(), wanted: wanted.name() },
        Ok(None) => StoreError::NotFound { id },
        Err(error) => StoreError::sqlite("read a state", error),
    }
}

fn sqlite(what: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::sqlite(what, error)
}

/// Of a row, with everything but its command.
fn bytes_of(result: &str) -> i64 {
    count(u64::try_from(result.len()).unwrap_or(u64::MAX).saturating_add(ROW_BYTES))
}

/// SQLite's integers have a sign.
fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
