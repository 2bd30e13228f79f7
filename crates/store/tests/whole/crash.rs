//! SIGKILL at any moment: what was acknowledged is there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::to_raw_value;
use stockade_store::audit::{Entry, Kind, Note, Opening, export, verify};
use stockade_store::executions::{End, Filter, NewExecution, State};
use stockade_store::output::{Cursor, Frames, Rest, Stream};
use stockade_store::{Audit, ExecutionId, Store};

use crate::stage::{Actor, room};

/// More than any test waits for.
const ROUNDS: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Plays the daemon: records executions in four threads, and says on standard output what was acknowledged to it.
pub(crate) fn records(directory: &Path) {
    let store = Store::open(directory).unwrap().store;
    let say = |word: &str, id: ExecutionId| {
        let line = format!("\nack {word} {id}\n");
        // The test is gone: so are we.
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let id = ExecutionId::new();
                    let body = json!({ "command": "echo hi" });
                    let ticket =
                        store.audit.append(Opening { execution: id, principal: "ana".into(), body }).unwrap();
                    say("opened", id);
                    store.executions.start(new(id)).unwrap();
                    say("started", id);
                    let mut frames =
                        Frames::new(store.output.create(&id).unwrap(), std::time::Instant::now());
                    frames.append(Stream::Stdout, b"hi\n").unwrap();
                    say("wrote", id);
                    store.executions.running(id, 1).unwrap();
                    frames.end().unwrap();
                    let result = to_raw_value(&json!({ "code": 0 })).ok();
                    // Every other one keeps its file, as if it were long.
                    let whole = store.output.seal(&id).unwrap().whole.filter(|_| round % 2 == 0);
                    let frames = whole.map(|whole| whole.frames);
                    store.executions.ended(id, End { result, frames, ..End::default() }).unwrap();
                    say("ended", id);
                    store.audit.close(ticket, json!({ "code": 0 })).unwrap();
                    say("closed", id);
                }
            });
        }
    });
}

fn new(id: ExecutionId) -> NewExecution {
    let [principal, door, profile, command, workspace] =
        ["ana", "http", "default", "echo hi", "/work"].map(str::to_owned);
    NewExecution { id, principal, door, profile, command, workspace, key: Some(id.to_string()) }
}

/// Starts the daemon's part; `meanwhile` is called with the number of each acknowledgement and says when to kill.
fn killed_after(
    directory: &Path,
    mut meanwhile: impl FnMut(usize, &Actor) -> bool,
) -> BTreeMap<ExecutionId, Vec<String>> {
    let mut actor = Actor::start("records", directory);
    let stdout = actor.0.stdout.take().unwrap();
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            // A line that the kill cut was not acknowledged.
            let Ok(line) = line else { break };
            let mut words = line.split(' ');
            if let (Some("ack"), Some(word), Some(Ok(id))) =
                (words.next(), words.next(), words.next().map(str::parse))
            {
                send.send((word.to_owned(), id)).unwrap();
            }
        }
    });
    let mut acknowledged: BTreeMap<ExecutionId, Vec<String>> = BTreeMap::new();
    for number in 1.. {
        let (word, id) = lines.recv_timeout(PATIENCE).unwrap();
        acknowledged.entry(id).or_default().push(word);
        if meanwhile(number, &actor) {
            break;
        }
    }
    actor.kill();
    reader.join().unwrap();
    for (word, id) in lines.try_iter() {
        acknowledged.entry(id).or_default().push(word);
    }
    acknowledged
}

fn entries(directory: &Path) -> Vec<Entry> {
    let mut bytes = Vec::new();
    export(directory, &mut bytes, ..).unwrap();
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| Entry::parse(&line[..line.len() - 1]).unwrap())
        .collect()
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let room = room();
    let mut all = BTreeMap::new();
    // One directory: each round also opens what the kill before it left.
    for acknowledgements in [1, 7, 60, 400, 1500] {
        all.extend(killed_after(room.path(), |number, _| number >= acknowledgements));
        assert!(verify(&Store::audit_directory(room.path())).is_ok());
    }
    let opened = Store::open(room.path()).unwrap();
    let store = opened.store;
    let entries = entries(store.audit.directory());
    let has = |kind, id| entries.iter().any(|entry| entry.kind == kind && entry.execution == Some(id));
    assert!(all.len() > 100);
    for (id, words) in all {
        for word in &words {
            let record = store.executions.get(id).unwrap();
            match word.as_str() {
                "opened" => assert!(has(Kind::Opened, id), "{id} was opened"),
                "closed" => assert!(has(Kind::Closed, id), "{id} was closed"),
                "started" => assert_eq!(record.unwrap().state, State::Ended, "ended or lost by now"),
                "wrote" => {
                    let piece = store.executions.output(&id, Cursor::START, 100).unwrap();
                    assert_eq!(piece.chunks[0].bytes, b"hi\n");
                }
                "ended" => assert_eq!(record.unwrap().code, None, "{id} ended before the kill"),
                other => panic!("{other}"),
            }
        }
    }
    for id in opened.lost {
        let record = store.executions.get(id).unwrap().unwrap();
        assert_eq!(record.code.as_deref(), Some("UZ-EXEC-003"));
        assert!(has(Kind::Noted, id));
        if let Ok(piece) = store.executions.output(&id, Cursor::START, 100) {
            assert_eq!(piece.rest, Rest::Ended);
        }
    }
}

/// The anchor first, as the module says; then the segments, while they grow.
fn copy(from: &Path, to: &Path) {
    fs::copy(from.join("anchor"), to.join("anchor")).unwrap();
    let mut names: Vec<_> = fs::read_dir(from).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.retain(|name| name.to_string_lossy().ends_with(".log"));
    names.sort();
    for name in names {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn a_copy_at_any_moment_opens_and_verifies() {
    let directory = room();
    let audit = Store::audit_directory(directory.path());
    let mut copies = Vec::new();
    killed_after(directory.path(), |number, _| {
        if number % 37 == 0 {
            let to = room();
            copy(&audit, to.path());
            copies.push(to);
        }
        copies.len() == 40
    });
    for to in &copies {
        let before = verify(to.path()).unwrap();
        drop(Audit::open(to.path()).unwrap());
        let after = verify(to.path()).unwrap();
        assert_eq!(after.entries, before.entries + u64::from(before.torn > 0));
    }
}

/// All of it, as it is in one moment: who writes stands still.
fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&to).unwrap();
            fs::set_permissions(&to, entry.metadata().unwrap().permissions()).unwrap();
            copy_all(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
}

/// The power is cut, and the disk has what was written until then.
#[test]
fn the_whole_state_of_any_moment_opens_and_is_at_one_with_itself() {
    let directory = room();
    let mut copies = Vec::new();
    killed_after(directory.path(), |number, actor| {
        if number % 53 == 0 {
            let to = room();
            actor.stand_still();
            copy_all(directory.path(), to.path());
            actor.go_on();
            copies.push(to);
        }
        copies.len() == 25
    });
    let (mut ended, mut lost) = (0, 0);
    for to in &copies {
        let opened = Store::open(to.path()).unwrap();
        let store = opened.store;
        assert!(verify(&Store::audit_directory(to.path())).is_ok());
        let entries = entries(store.audit.directory());
        let page = store.executions.list(&Filter::default(), None, 10_000).unwrap();
        for row in page.executions {
            assert_eq!(row.state, State::Ended, "{row:?}");
            assert!(
                entries.iter().any(|entry| entry.kind == Kind::Opened && entry.execution == Some(row.id))
            );
            let piece = store.executions.output(&row.id, Cursor::START, 100);
            if opened.lost.contains(&row.id) {
                lost += 1;
                assert_eq!(row.code.as_deref(), Some("UZ-EXEC-003"), "{row:?}");
                // It may have been lost before it had a file.
                assert!(piece.is_err() || piece.is_ok_and(|piece| piece.rest == Rest::Ended));
            } else {
                ended += 1;
                let piece = piece.unwrap();
                assert_eq!((piece.chunks[0].bytes.as_slice(), piece.rest), (b"hi\n".as_slice(), Rest::Ended));
            }
        }
    }
    assert!(ended > 100 && lost > 10, "{ended} and {lost}");
}

#[test]
fn a_state_directory_that_others_can_open_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let room = room();
    for mode in [0o755, 0o770, 0o701] {
        fs::set_permissions(room.path(), fs::Permissions::from_mode(mode)).unwrap();
        let refused = Store::open(room.path()).unwrap_err();
        assert!(matches!(refused, stockade_store::OpenError::Open { .. }), "{mode:o}: {refused}");
    }
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(Store::open(room.path()).is_ok());
}

/// The log could not be written when the execution ended, and its record could.
#[test]
fn an_end_that_is_not_in_the_log_is_noted_at_the_next_start() {
    let room = room();
    let id = ExecutionId::new();
    let store = Store::open(room.path()).unwrap().store;
    store.executions.start(new(id)).unwrap();
    let opening = Opening { execution: id, principal: "ana".into(), body: json!({}) };
    drop(store.audit.append(opening).unwrap());
    // Somebody asked for its end, which is none.
    store.audit.note(Note { execution: Some(id), principal: "ben".into(), body: json!({}) }).unwrap();
    store.executions.ended(id, End::default()).unwrap();
    drop(store);
    for _ in 0..2 {
        let opened = Store::open(room.path()).unwrap();
        assert!(opened.lost.is_empty());
        let of_it: Vec<Entry> = entries(opened.store.audit.directory())
            .into_iter()
            .filter(|entry| entry.execution == Some(id))
            .collect();
        let noted = &of_it.last().unwrap().body;
        // Once, however often it is opened.
        assert_eq!((of_it.len(), noted), (3, &json!({ "event": "end-not-logged" })));
    }
}
