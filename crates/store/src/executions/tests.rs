use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use serde_json::value::to_raw_value;

use super::*;
use crate::output::{Cursor, Frames, Rest, Stream};

struct Room {
    directory: tempfile::TempDir,
    executions: Executions,
}

impl Room {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let executions = open(&directory);
        Self { directory, executions }
    }

    fn again(self) -> Self {
        drop(self.executions);
        let executions = open(&self.directory);
        Self { directory: self.directory, executions }
    }

    fn start(&self, principal: &str) -> ExecutionId {
        let new = new(principal);
        let id = new.id;
        assert_eq!(self.executions.start(new).unwrap(), Started::New);
        id
    }

    /// With a file of so many bytes and the header.
    fn end(&self, id: ExecutionId, bytes: usize) {
        let mut frames = Frames::new(self.executions.output.create(&id).unwrap(), Instant::now());
        frames.append(Stream::Stdout, &vec![b'x'; bytes]).unwrap();
        self.executions.ended(id, End::default()).unwrap();
    }

    fn ids(&self, filter: &Filter) -> Vec<ExecutionId> {
        let page = self.executions.list(filter, None, PAGE_LIMIT).unwrap();
        page.executions.iter().map(|one| one.id).collect()
    }
}

fn open(directory: &tempfile::TempDir) -> Executions {
    let database = Database::open(&directory.path().join("db")).unwrap();
    Executions::new(database, Output::open(&directory.path().join("output")).unwrap())
}

fn new(principal: &str) -> NewExecution {
    let [door, profile, command, workspace] = ["http", "default", "echo hi", "/work"].map(str::to_owned);
    let (id, principal) = (ExecutionId::new(), principal.to_owned());
    NewExecution { id, principal, door, profile, command, workspace, key: None }
}

#[test]
fn an_execution_goes_forward_only() {
    let room = Room::new();
    let id = room.start("ana");
    let state = |room: &Room| room.executions.get(id).unwrap().unwrap().state;
    assert_eq!(state(&room), State::Queued);
    room.executions.running(id, clock::now_ms()).unwrap();
    assert_eq!(state(&room), State::Running);
    let again = room.executions.running(id, clock::now_ms());
    assert!(matches!(again, Err(StoreError::WrongState { state: "running", .. })), "{again:?}");
    let end = End {
        started_ms: None,
        result: to_raw_value(&json!({ "kind": "exited", "code": 3 })).ok(),
        code: Some("UZ-EXEC-008".into()),
        class: Some("timeout_kill".into()),
        stdout_bytes: 7,
        stderr_bytes: u64::MAX,
        output_bytes: Some(5),
        frames: None,
    };
    room.executions.ended(id, end.clone()).unwrap();
    let again = room.executions.ended(id, End::default());
    assert!(matches!(again, Err(StoreError::WrongState { state: "ended", .. })), "{again:?}");
    let room = room.again();
    let record = room.executions.get(id).unwrap().unwrap();
    assert_eq!(record.result, Some(json!({ "kind": "exited", "code": 3 })));
    assert_eq!((record.code, record.class), (end.code, end.class));
    assert_eq!((record.stdout_bytes, record.state), (7, State::Ended));
    assert!(record.created_ms <= record.started_ms.unwrap() && record.started_ms <= record.ended_ms);
    let unknown = room.executions.running(ExecutionId::new(), clock::now_ms());
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
    assert_eq!(room.executions.get(ExecutionId::new()).unwrap(), None);
}

#[test]
fn a_key_means_one_execution_per_principal() {
    let room = Room::new();
    let with_key = |principal: &str| NewExecution { key: Some("k".into()), ..new(principal) };
    let first = with_key("ana");
    assert_eq!(room.executions.start(first.clone()).unwrap(), Started::New);
    match room.executions.start(with_key("ana")).unwrap() {
        Started::Known(known) => assert_eq!(known.id, first.id),
        Started::New => panic!("a second one began"),
    }
    assert_eq!(room.executions.start(with_key("ben")).unwrap(), Started::New);
    assert_eq!(room.executions.by_key("ana", "k").unwrap().unwrap().id, first.id);
    assert_eq!(room.executions.by_key("ana", "other").unwrap(), None);
    let twice = room.executions.start(NewExecution { key: None, ..first });
    assert!(matches!(twice, Err(StoreError::Duplicate { .. })), "{twice:?}");
    let empty = room.executions.start(NewExecution { key: Some(String::new()), ..new("ana") });
    assert!(matches!(empty, Err(StoreError::Invalid { .. })), "{empty:?}");
    let long = room.executions.start(NewExecution { command: "x".repeat(COMMAND_LIMIT + 1), ..new("ana") });
    assert!(matches!(long, Err(StoreError::TooLong { field: "command", .. })), "{long:?}");
}

#[test]
fn a_list_is_newest_first_and_in_pages() {
    let room = Room::new();
    let mut all: Vec<_> =
        (0..7).map(|number| room.start(if number % 2 == 0 { "ana" } else { "ben" })).collect();
    all.reverse();
    room.executions.running(all[0], clock::now_ms()).unwrap();
    assert_eq!(room.ids(&Filter::default()), all);
    let ben = Filter { principal: Some("ben".into()), state: None };
    assert_eq!(room.ids(&ben), [all[1], all[3], all[5]]);
    assert_eq!(room.ids(&Filter { principal: None, state: Some(State::Running) }), [all[0]]);
    let (mut after, mut seen) = (None, Vec::new());
    for _ in 0..3 {
        let page = room.executions.list(&Filter::default(), after, 3).unwrap();
        seen.extend(page.executions.iter().map(|one| one.id));
        after = page.next;
    }
    assert_eq!((seen, after), (all, None));
}

#[test]
fn what_had_not_ended_is_lost_at_the_next_start() {
    let room = Room::new();
    let [queued, running, ended] = ["ana", "ana", "ana"].map(|principal| room.start(principal));
    room.executions.running(running, clock::now_ms()).unwrap();
    let mut frames = Frames::new(room.executions.output.create(&running).unwrap(), Instant::now());
    frames.append(Stream::Stdout, b"partial").unwrap();
    room.end(ended, 1);
    let room = room.again();
    assert_eq!(room.executions.sweep_lost().unwrap(), [queued, running]);
    for id in [queued, running] {
        let record = room.executions.get(id).unwrap().unwrap();
        assert_eq!(record.state, State::Ended);
        assert_eq!(record.code.as_deref(), Some("UZ-EXEC-003"));
        assert_eq!(record.class.as_deref(), Some("executor_crash"));
    }
    let output = room.executions.output(&running, Cursor::START, 100).unwrap();
    assert_eq!((output.chunks.len(), output.rest), (1, Rest::Ended));
    assert_eq!(room.executions.get(ended).unwrap().unwrap().code, None);
    assert_eq!(room.executions.sweep_lost().unwrap(), []);
}

#[test]
fn the_oldest_go_by_age_and_by_size_and_what_runs_stays() {
    // A file of 100 bytes, its row, and what that says.
    const EACH: u64 = 100 + super::ROW_BYTES + 7;
    let room = Room::new();
    let running = room.start("ana");
    let ended: Vec<_> = (0..300).map(|_| room.start("ana")).collect();
    for id in &ended {
        room.end(*id, 76);
    }
    let all = Keep { age: Duration::from_secs(3600), bytes: 300 * EACH };
    assert_eq!(room.executions.retain(all).unwrap(), Removed::default());
    let half = Keep { bytes: 150 * EACH + 99, ..all };
    let first = room.executions.retain(half).unwrap();
    assert_eq!(first, Removed { executions: 128, bytes: 128 * EACH, more: true });
    let second = room.executions.retain(half).unwrap();
    assert_eq!(second, Removed { executions: 22, bytes: 22 * EACH, more: false });
    assert_eq!(room.ids(&Filter::default()).len(), 151);
    assert_eq!(room.executions.get(ended[149]).unwrap(), None);
    assert!(room.executions.get(ended[150]).unwrap().is_some());
    let none = Keep { age: Duration::ZERO, bytes: u64::MAX };
    // An end in this very millisecond is not older than now.
    let start = Instant::now();
    while room.ids(&Filter::default()).len() > 1 && start.elapsed() < Duration::from_secs(10) {
        assert!(room.executions.retain(none).unwrap().executions <= 128);
    }
    assert_eq!(room.ids(&Filter::default()), [running]);
    let files = fs::read_dir(room.directory.path().join("output")).unwrap();
    let left: usize = files.map(|shard| fs::read_dir(shard.unwrap().path()).unwrap().count()).sum();
    assert_eq!(left, 0);
}

#[test]
fn who_has_most_makes_room_and_others_keep_theirs() {
    let room = Room::new();
    let modest: Vec<_> = (0..3).map(|_| room.start("ben")).collect();
    for id in &modest {
        room.end(*id, 76);
    }
    let greedy: Vec<_> = (0..40).map(|_| room.start("ana")).collect();
    for id in &greedy {
        room.end(*id, 2000);
    }
    let keep = Keep { age: Duration::from_secs(3600), bytes: 40_000 };
    let start = Instant::now();
    while room.executions.retain(keep).unwrap().more && start.elapsed() < Duration::from_secs(10) {}
    // Older than all of the other's, and still there.
    for id in modest {
        assert!(room.executions.get(id).unwrap().is_some());
    }
    let left = greedy.iter().filter(|id| room.executions.get(**id).unwrap().is_some()).count();
    assert!((5..20).contains(&left), "{left}");
}

/// Records of one age out at every look; the other's gigabytes are removed all the same.
#[test]
fn what_is_old_does_not_keep_what_is_large() {
    let room = Room::new();
    let old = room.start("ana");
    room.end(old, 76);
    std::thread::sleep(Duration::from_millis(30));
    let large: Vec<_> = (0..20).map(|_| room.start("ben")).collect();
    for id in &large {
        room.end(*id, 5000);
    }
    let keep = Keep { age: Duration::from_millis(20), bytes: 30_000 };
    let first = room.executions.retain(keep).unwrap();
    assert!(first.executions > 0 && first.more, "{first:?}");
    let keep = Keep { age: Duration::from_secs(3600), ..keep };
    while room.executions.retain(keep).unwrap().more {}
    let left = large.iter().filter(|id| room.executions.get(**id).unwrap().is_some()).count();
    assert!((1..8).contains(&left), "{left}");
}

/// Ended in its record, or in its file: what is read is the same.
#[test]
fn a_short_output_goes_into_the_record_of_a_young_one_and_stays_in_the_file_of_an_old_one() {
    let room = Room::new();
    // Of 2022.
    let old: ExecutionId = "01800000-0000-7000-8000-000000000001".parse().unwrap();
    for (id, in_record) in [(ExecutionId::new(), true), (old, false)] {
        let new = NewExecution { id, ..new("ana") };
        assert_eq!(room.executions.start(new).unwrap(), Started::New);
        let mut frames = Frames::new(room.executions.output.create(&id).unwrap(), Instant::now());
        frames.append(Stream::Stdout, b"one").unwrap();
        frames.end().unwrap();
        drop(frames);
        let before = room.executions.output(&id, Cursor::START, 100).unwrap();
        let whole = room.executions.output.seal(&id).unwrap().whole.unwrap();
        assert_eq!(whole.piece, before);
        let end = End { frames: Some(whole.frames), ..End::default() };
        room.executions.ended(id, end).unwrap();
        assert_eq!(room.executions.output.read(&id, Cursor::START, 100).unwrap().is_none(), in_record);
        assert_eq!(room.executions.output(&id, Cursor::START, 100).unwrap(), before);
        assert_eq!(room.executions.output(&id, before.next, 100).unwrap().rest, Rest::Ended);
    }
}

#[test]
fn what_is_removed_is_room_on_the_disk_again() {
    let room = Room::new();
    for _ in 0..200 {
        let id = room.start("ana");
        drop(room.executions.output.create(&id).unwrap());
        let end = End { frames: Some(vec![b'x'; 16 << 10]), output_bytes: Some(16 << 10), ..End::default() };
        room.executions.ended(id, end).unwrap();
    }
    let pages = || {
        let count = |reader: &rusqlite::Connection| {
            reader.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))
        };
        room.executions.database.read("be counted", count).unwrap()
    };
    let full = pages();
    while room.executions.retain(Keep { age: Duration::from_secs(3600), bytes: 0 }).unwrap().more {}
    assert!(pages() < full / 4, "{} of {full} pages", pages());
}
