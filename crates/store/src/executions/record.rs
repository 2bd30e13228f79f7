//! What is on record about one execution, and the words for asking.

use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::ExecutionId;
use crate::error::{StoreError, within};

/// Names, doors and profiles are short; a workspace is a path.
const NAME_LIMIT: usize = 4096;
/// The kernel takes about this much in one argument; a record needs no more to be recognised.
pub const COMMAND_LIMIT: usize = 128 << 10;
pub const RESULT_LIMIT: usize = 1 << 20;
pub const KEY_LIMIT: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Queued,
    Running,
    Ended,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Ended => "ended",
        }
    }
}

impl ToSql for State {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.name().into())
    }
}

impl FromSql for State {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        let states = [Self::Queued, Self::Running, Self::Ended];
        states.into_iter().find(|state| state.name() == name).ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for ExecutionId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.to_string().into())
    }
}

impl FromSql for ExecutionId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str()?.parse().map_err(FromSqlError::other)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExecution {
    pub id: ExecutionId,
    pub principal: String,
    /// How the request came in.
    pub door: String,
    pub profile: String,
    /// As text, and redacted already.
    pub command: String,
    pub workspace: String,
    /// The same principal with the same key means the same execution.
    pub key: Option<String>,
}

impl NewExecution {
    pub(super) fn check(&self) -> Result<(), StoreError> {
        within("principal", &self.principal, NAME_LIMIT)?;
        within("door", &self.door, NAME_LIMIT)?;
        within("profile", &self.profile, NAME_LIMIT)?;
        within("command", &self.command, COMMAND_LIMIT)?;
        within("workspace", &self.workspace, NAME_LIMIT)?;
        match &self.key {
            Some(key) if key.is_empty() => {
                Err(StoreError::Invalid { field: "idempotency key", rule: "it must not be empty" })
            }
            Some(key) => within("idempotency key", key, KEY_LIMIT),
            None => Ok(()),
        }
    }
}

/// What became of asking for a new one.
#[derive(Debug, Clone, PartialEq)]
pub enum Started {
    New,
    /// The key was used before: this is the execution that it named, and no other begins.
    Known(Box<Execution>),
}

#[derive(Debug, Clone, Default)]
pub struct End {
    /// When it began to run, if it did, and if that is not on record yet.
    pub started_ms: Option<i64>,
    /// The outcome as clients get it, as the text that is kept.
    pub result: Option<Box<RawValue>>,
    /// A stable code and its class, for a failure that is not the command's own.
    pub code: Option<String>,
    pub class: Option<String>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// What the output takes on the disk; looked up where nobody knows.
    pub output_bytes: Option<u64>,
    /// All of the output, as it lies in its file: it is kept here then, and the file is for another execution. Only if
    /// whoever wrote to the file has closed it.
    pub frames: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Execution {
    pub id: ExecutionId,
    pub principal: String,
    pub door: String,
    pub profile: String,
    pub command: String,
    pub workspace: String,
    pub state: State,
    /// Not in lists, which would grow too large with it.
    pub result: Option<Value>,
    pub code: Option<String>,
    pub class: Option<String>,
    pub created_ms: i64,
    pub started_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub key: Option<String>,
}

/// The columns that [`Execution::from_row`] reads, and those of a list.
pub(super) const COLUMNS: &str = "id, principal, door, profile, command, workspace, state, code, class, \
     created_ms, started_ms, ended_ms, stdout_bytes, stderr_bytes, key, result";
pub(super) const LIST_COLUMNS: &str = "id, principal, door, profile, substr(command, 1, 4096), workspace, \
     state, code, class, created_ms, started_ms, ended_ms, stdout_bytes, stderr_bytes, key, NULL";

impl Execution {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let count = |index| row.get(index).map(|count: i64| u64::try_from(count).unwrap_or(0));
        let result: Option<String> = row.get(15)?;
        let result = result.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(15, rusqlite::types::Type::Text, Box::new(error))
        })?;
        Ok(Self {
            id: row.get(0)?,
            principal: row.get(1)?,
            door: row.get(2)?,
            profile: row.get(3)?,
            command: row.get(4)?,
            workspace: row.get(5)?,
            state: row.get(6)?,
            code: row.get(7)?,
            class: row.get(8)?,
            created_ms: row.get(9)?,
            started_ms: row.get(10)?,
            ended_ms: row.get(11)?,
            stdout_bytes: count(12)?,
            stderr_bytes: count(13)?,
            key: row.get(14)?,
            result,
        })
    }
}

/// Which ones to list. Nothing named means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub principal: Option<String>,
    pub state: Option<State>,
}

/// Newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub executions: Vec<Execution>,
    /// Where the next page begins; None for the last.
    pub next: Option<ExecutionId>,
}
