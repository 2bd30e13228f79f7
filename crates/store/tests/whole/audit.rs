//! The log as its one writer and its readers see it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_store::audit::{Entry, Hash, Kind, LINE_LIMIT, Note, Opening, export, tail, verify};
use stockade_store::{Audit, AuditError, ExecutionId};

use crate::stage::room;

pub(crate) fn opening(number: usize) -> Opening {
    let body = json!({ "number": number });
    Opening { execution: ExecutionId::new(), principal: "ana".into(), body }
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
fn an_entry_is_opened_closed_and_chained() {
    let room = room();
    let audit = Audit::open(room.path()).unwrap();
    let ticket = audit.append(opening(1)).unwrap();
    assert_eq!((ticket.entry(), ticket.principal()), (1, "ana"));
    let execution = ticket.execution();
    assert_eq!(audit.close(ticket, json!({ "code": 0 })).unwrap(), 2);
    let body = json!("\u{1b}]0;title\u{7}");
    assert_eq!(audit.note(Note { execution: None, principal: "ben".into(), body: body.clone() }).unwrap(), 3);
    audit.flush().unwrap();
    let entries = entries(room.path());
    let kinds: Vec<Kind> = entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::Opened, Kind::Closed, Kind::Noted]);
    assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((entries[0].execution, entries[1].execution), (Some(execution), Some(execution)));
    assert_eq!((entries[0].prev, &entries[2].body), (Hash::ZERO, &body));
    assert!(entries[0].at.ends_with('Z') && entries[0].at.len() == 27, "{}", entries[0].at);
    let verified = verify(room.path()).unwrap();
    assert_eq!((verified.entries, verified.anchored, verified.torn), (3, 3, 0));
    assert_eq!(verified.first, entries[1].prev);
}

#[test]
fn sha256sum_can_check_a_line() {
    let room = room();
    let audit = Audit::open(room.path()).unwrap();
    drop(audit.append(opening(1)).unwrap());
    drop(audit.append(opening(2)).unwrap());
    let script = "head -n1 000001.log | tr -d '\\n' | sha256sum";
    let sum = Command::new("sh").args(["-c", script]).current_dir(room.path()).output().unwrap().stdout;
    let second = &entries(room.path())[1];
    assert_eq!(String::from_utf8(sum).unwrap().split(' ').next(), Some(&second.prev.to_string()[..]));
}

#[test]
fn a_log_has_one_writer() {
    let room = room();
    let audit = Audit::open(room.path()).unwrap();
    assert!(matches!(Audit::open(room.path()), Err(AuditError::Locked { .. })));
    drop(audit);
    drop(Audit::open(room.path()).unwrap());
}

#[test]
fn a_torn_line_is_cut_and_noted() {
    let room = room();
    let audit = Audit::open(room.path()).unwrap();
    drop(audit.append(opening(1)).unwrap());
    drop(audit);
    let file = room.path().join("000001.log");
    OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"seq\":2,\"at\"").unwrap();
    assert_eq!(verify(room.path()).unwrap().torn, 13);
    assert_eq!(tail(room.path(), 5).unwrap().len(), 1);
    drop(Audit::open(room.path()).unwrap());
    let verified = verify(room.path()).unwrap();
    assert_eq!((verified.entries, verified.anchored, verified.torn), (2, 2, 0));
    let note = &entries(room.path())[1];
    assert_eq!((note.kind, &note.body), (Kind::Noted, &json!({ "event": "torn-line-cut", "bytes": 13 })));
}

#[test]
fn the_anchor_follows_without_being_asked() {
    let room = room();
    let audit = Audit::open(room.path()).unwrap();
    for number in 1..=3 {
        drop(audit.append(opening(1)).unwrap());
        let start = Instant::now();
        while verify(room.path()).unwrap().anchored < number {
            assert!(start.elapsed() < Duration::from_secs(10), "entry {number} is not anchored");
            std::thread::yield_now();
        }
    }
}

#[test]
fn segments_follow_each_other_and_are_taken_up_again() {
    let room = room();
    for round in 0..3 {
        let audit = Audit::open_with(room.path(), 700).unwrap();
        for number in 0..10 {
            drop(audit.append(opening(round * 10 + number)).unwrap());
        }
    }
    assert_eq!(verify(room.path()).unwrap().entries, 30);
    let files = fs::read_dir(room.path()).unwrap();
    let logs = files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(".log"));
    assert!(logs.count() >= 10);
    let last: Vec<Entry> =
        tail(room.path(), 12).unwrap().iter().map(|line| Entry::parse(line).unwrap()).collect();
    assert_eq!(last.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (19..=30).collect::<Vec<_>>());
}

#[test]
fn an_entry_that_is_too_long_is_refused_and_nothing_is_written() {
    let room = room();
    let audit = Audit::open(room.path()).unwrap();
    let long = Opening { body: json!("x".repeat(LINE_LIMIT)), ..opening(1) };
    let refused = audit.append(long);
    assert!(matches!(refused, Err(AuditError::TooLong { .. })), "{refused:?}");
    let ticket = audit.append(opening(1)).unwrap();
    let unclosed = audit.close(ticket, json!("x".repeat(LINE_LIMIT))).unwrap_err();
    assert_eq!(audit.close(unclosed.ticket, json!("short")).unwrap(), 2);
    assert_eq!(verify(room.path()).unwrap().entries, 2);
}

#[test]
fn many_threads_write_one_chain() {
    let room = room();
    let audit = Audit::open_with(room.path(), 10_000).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..100 {
                    let ticket = audit.append(opening(number)).unwrap();
                    audit.close(ticket, json!(null)).unwrap();
                }
            });
        }
        for _ in 0..20 {
            assert!(verify(room.path()).unwrap().entries <= 800);
        }
    });
    drop(audit);
    assert_eq!(verify(room.path()).unwrap().entries, 800);
}
