//! A full disk: an error before anything is acknowledged, and everything that was is whole.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;
use stockade_store::audit::{Opening, verify};
use stockade_store::executions::NewExecution;
use stockade_store::output::{Cursor, Frames, Rest, Stream};
use stockade_store::{AuditError, ExecutionId, Store, StoreError};

use crate::stage::{room, skip};

/// A small disk, gone with the test.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can mount a small disk");
            return None;
        }
        let directory = room();
        match mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), Some(c"size=6m")) {
            Ok(()) => Some(Self(directory)),
            Err(error) => {
                skip(&format!("a small disk can't be mounted here: {error}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = unmount(self.path(), UnmountFlags::DETACH) {
            eprintln!("{} stays mounted: {error}", self.path().display());
        }
    }
}

fn opening(id: ExecutionId) -> Opening {
    Opening { execution: id, principal: "ana".into(), body: json!("x".repeat(3000)) }
}

fn new(id: ExecutionId) -> NewExecution {
    let [principal, door, profile, workspace] = ["ana", "http", "default", "/"].map(str::to_owned);
    NewExecution { id, principal, door, profile, command: "x".repeat(3000), workspace, key: None }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_the_audit_log_whole() {
    let Some(disk) = Disk::new() else { return };
    let store = Store::open(&disk.path().join("state")).unwrap().store;
    let audit = store.audit.directory().to_owned();
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 4 << 20]).unwrap();
    let mut tickets = Vec::new();
    let error = loop {
        match store.audit.append(opening(ExecutionId::new())) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
        assert!(tickets.len() < 2000, "the disk is never full");
    };
    assert!(matches!(error, AuditError::Write { .. }), "{error:?}");
    let verified = verify(&audit).unwrap();
    assert_eq!((verified.entries, verified.torn), (u64::try_from(tickets.len()).unwrap(), 0));
    fs::remove_file(filler).unwrap();
    let ticket = tickets.pop().unwrap();
    store.audit.close(ticket, json!(0)).unwrap();
    store.audit.flush().unwrap();
    let verified = verify(&audit).unwrap();
    assert_eq!(verified.entries, verified.anchored);
    assert_eq!(verified.entries, u64::try_from(tickets.len()).unwrap() + 2);
}

#[test]
fn a_full_disk_is_an_error_and_leaves_the_database_whole() {
    let Some(disk) = Disk::new() else { return };
    let state = disk.path().join("state");
    let store = Store::open(&state).unwrap().store;
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 4 << 20]).unwrap();
    let mut ids = Vec::new();
    let error = loop {
        let id = ExecutionId::new();
        match store.executions.start(new(id)) {
            Ok(_) => ids.push(id),
            Err(error) => break error,
        }
        assert!(ids.len() < 2000, "the disk is never full");
    };
    assert!(matches!(error, StoreError::Full(_)), "{error:?}");
    for id in &ids {
        assert!(store.executions.get(*id).unwrap().is_some());
    }
    fs::remove_file(filler).unwrap();
    let id = ExecutionId::new();
    store.executions.start(new(id)).unwrap();
    drop(store);
    let opened = Store::open(&state).unwrap();
    assert_eq!(opened.lost.len(), ids.len() + 1);
    assert!(opened.store.executions.get(id).unwrap().is_some());
}

#[test]
fn a_full_disk_leaves_whole_frames() {
    let Some(disk) = Disk::new() else { return };
    let store = Store::open(&disk.path().join("state")).unwrap().store;
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 4 << 20]).unwrap();
    let id = ExecutionId::new();
    let mut frames = Frames::new(store.output.create(&id).unwrap(), std::time::Instant::now());
    let bytes = vec![b'x'; 10_000];
    let error = (0..1000).find_map(|_| frames.append(Stream::Stdout, &bytes).err()).unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    fs::remove_file(filler).unwrap();
    frames.append(Stream::Stdout, &bytes).unwrap();
    frames.end().unwrap();
    let (mut cursor, mut seen) = (Cursor::START, 0);
    let rest = loop {
        let piece = store.executions.output(&id, cursor, 1 << 20).unwrap();
        seen += piece.chunks.len();
        cursor = piece.next;
        if piece.rest != Rest::More {
            break piece.rest;
        }
    };
    assert_eq!((rest, u64::try_from(seen).unwrap() + 1), (Rest::Ended, frames.sequence()));
}
