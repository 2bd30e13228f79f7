//! The one SQLite file: opened here and nowhere else. One writes at a time (`writer`), reads go through a second
//! connection that can't. WAL with synchronous=NORMAL: a commit is in the file before it is acknowledged, so
//! the death of the process loses nothing.

mod schema;
mod writer;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;
use writer::Writer;
pub use writer::{QUEUE, WAIT};

/// Another process's short lock (a backup, the command line) is waited for; a long one is an error.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);
/// 3.51.3, as SQLite numbers it: earlier ones could lose a checkpoint's pages in WAL mode.
const OLDEST: i32 = 3_051_003;

/// Cheap to clone: all of them share two connections.
#[derive(Debug, Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reader: Mutex<Connection>,
    writer: Writer,
}

impl Database {
    /// Makes the file (mode 0600) if there is none, and brings an older one up to date.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, LOCK_WAIT)
    }

    /// With another patience for locks of other processes.
    pub fn open_with(path: &Path, lock_wait: Duration) -> Result<Self, StoreError> {
        if rusqlite::version_number() < OLDEST {
            return Err(StoreError::SqliteTooOld { found: rusqlite::version() });
        }
        // SQLite gives the files beside it the same mode.
        let made = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        made.map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, lock_wait)?;
        journal(&connection, path)?;
        schema::migrate(&mut connection, path)?;
        let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, lock_wait)?;
        let writer = Writer::start(connection)?;
        Ok(Self { shared: Arc::new(Shared { reader: Mutex::new(reader), writer }) })
    }

    /// Runs `work` in a transaction, its own or one with others', and returns when that is committed. Blocks for a
    /// bounded time, as far as the disk answers.
    pub(crate) fn write<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.shared.writer.write(what, work)
    }

    /// Like `write`, but nobody waits for it or hears of it.
    pub(crate) fn post<F>(&self, what: &'static str, work: F)
    where
        F: FnOnce(&Connection) -> Result<(), StoreError> + Send + 'static,
    {
        self.shared.writer.post(what, work);
    }

    pub(crate) fn read<T>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        // A reader that panicked left no transaction behind: statements reset when they are dropped.
        let reader = self.shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
        work(&reader).map_err(|error| StoreError::sqlite(what, error))
    }
}

fn connect(path: &Path, access: OpenFlags, lock_wait: Duration) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        // Never as a URI: a path is a path. Each connection has one user at a time, so SQLite needs no lock.
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(lock_wait)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(connection)
    };
    open().map_err(|error| StoreError::sqlite("be opened", error))
}

fn journal(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    // Of a file that has nothing in it yet: what retention removes is to be room on the disk again.
    let vacuum = connection.pragma_update(None, "auto_vacuum", "INCREMENTAL");
    vacuum.map_err(|error| StoreError::sqlite("be made", error))?;
    let mode: Result<String, _> =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
    match mode.map_err(|error| StoreError::sqlite("be put into WAL mode", error))?.as_str() {
        "wal" => Ok(()),
        _ => Err(StoreError::NotWal { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_database_is_private_in_wal_mode_and_opens_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        for _ in 0..2 {
            let database = Database::open(&path).unwrap();
            let mode: String = database
                .read("look", |reader| reader.pragma_query_value(None, "journal_mode", |row| row.get(0)))
                .unwrap();
            assert_eq!(mode, "wal");
            for file in ["db", "db-wal", "db-shm"] {
                let mode = directory.path().join(file).metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{file}");
            }
        }
    }

    #[test]
    fn the_reader_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("db")).unwrap();
        let tried = database.read("write", |reader| reader.execute("DELETE FROM executions", []));
        assert!(matches!(tried, Err(StoreError::Sqlite { .. })), "{tried:?}");
    }

    #[test]
    fn a_newer_database_and_one_that_is_none_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        drop(Database::open(&path).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 1000).unwrap();
        let refused = Database::open(&path).map(drop);
        assert!(matches!(refused, Err(StoreError::TooNew { found: 1000, .. })), "{refused:?}");
        std::fs::write(&path, "x".repeat(4096)).unwrap();
        let refused = Database::open(&path).map(drop);
        assert!(matches!(refused, Err(StoreError::Damaged(_))), "{refused:?}");
    }
}
