//! Another process holds the database's lock.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use stockade_store::executions::{Executions, NewExecution, Started};
use stockade_store::{Database, ExecutionId, Output, StoreError};

use crate::stage::{Actor, room};

/// Plays someone with a long transaction: takes the lock, says so, and keeps it until its input ends.
pub(crate) fn locks(directory: &Path) {
    let connection = rusqlite::Connection::open(directory.join("db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::io::stdout().write_all(b"\nlocked\n").unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn new() -> NewExecution {
    let [principal, door, profile, command, workspace] =
        ["ana", "http", "default", "true", "/"].map(str::to_owned);
    NewExecution { id: ExecutionId::new(), principal, door, profile, command, workspace, key: None }
}

#[test]
fn a_lock_that_is_held_too_long_is_an_error_and_reads_go_on() {
    let room = room();
    let database = Database::open_with(&room.path().join("db"), Duration::from_millis(200)).unwrap();
    let executions = Executions::new(database, Output::open(&room.path().join("output")).unwrap());
    let first = new();
    executions.start(first.clone()).unwrap();
    let mut actor = Actor::start("locks", room.path());
    let mut lines = BufReader::new(actor.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "locked"));
    let start = Instant::now();
    let refused = executions.start(new());
    assert!(matches!(refused, Err(StoreError::Locked(_))), "{refused:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(refused.unwrap_err().retryable());
    assert!(executions.get(first.id).unwrap().is_some());
    let late = Database::open_with(&room.path().join("db"), Duration::from_millis(200)).map(drop);
    assert!(matches!(late, Err(StoreError::Locked(_))), "{late:?}");
    drop(actor.0.stdin.take());
    actor.0.wait().unwrap();
    assert_eq!(executions.start(new()).unwrap(), Started::New);
}
