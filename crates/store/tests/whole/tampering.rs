//! Someone changes the log: whatever it is, it is found, and the first bad entry is named.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;
use stockade_store::audit::{Reason, verify};
use stockade_store::{Audit, AuditError};

use crate::audit::opening;
use crate::stage::room;

/// A log in memory: files of lines, each line with its newline.
#[derive(Debug, Clone)]
struct Files {
    files: Vec<(PathBuf, Vec<Vec<u8>>)>,
}

impl Files {
    fn of(directory: &Path) -> Self {
        let paths = (1..).map(|number| directory.join(format!("{number:06}.log")));
        let files = paths.map_while(|path| {
            let bytes = fs::read(&path).ok()?;
            Some((path, bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()))
        });
        Self { files: files.collect() }
    }

    fn count(&self) -> usize {
        self.files.iter().map(|(_, lines)| lines.len()).sum()
    }

    /// The file and the place in it of an entry, counted from zero. One past the last is at the end.
    fn place(&self, entry: usize) -> (usize, usize) {
        let mut before = 0;
        for (file, (_, lines)) in self.files.iter().enumerate() {
            if entry < before + lines.len() || file + 1 == self.files.len() {
                return (file, entry - before);
            }
            before += lines.len();
        }
        panic!("the log has no file");
    }

    fn line(&mut self, entry: usize) -> &mut Vec<u8> {
        let (file, place) = self.place(entry);
        &mut self.files[file].1[place]
    }

    fn remove(&mut self, entry: usize) {
        let (file, place) = self.place(entry);
        self.files[file].1.remove(place);
    }

    fn first_of(&self, file: usize) -> usize {
        self.files[..file].iter().map(|(_, lines)| lines.len()).sum()
    }

    fn write(&self) {
        for (path, lines) in &self.files {
            fs::write(path, lines.concat()).unwrap();
        }
    }
}

#[derive(Debug, Clone)]
enum Change {
    Edit {
        entry: Index,
        at: Index,
        flip: u8,
    },
    Insert {
        entry: Index,
        at: Index,
        byte: u8,
    },
    /// Still a valid entry, chained to something else.
    Unchain {
        entry: Index,
        at: Index,
    },
    CutStart(Index),
    CutEnd(Index),
    CutEndInside {
        entry: Index,
        at: Index,
    },
    Swap(Index, Index),
    Duplicate {
        entry: Index,
        to: Index,
    },
    Remove(Index),
    DropFile(Index),
    SwapFiles(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        3 => (index(), index(), 1_u8..).prop_map(|(entry, at, flip)| Change::Edit { entry, at, flip }),
        2 => (index(), index(), any::<u8>()).prop_map(|(entry, at, byte)| Change::Insert { entry, at, byte }),
        2 => (index(), index()).prop_map(|(entry, at)| Change::Unchain { entry, at }),
        1 => index().prop_map(Change::CutStart),
        1 => index().prop_map(Change::CutEnd),
        1 => (index(), index()).prop_map(|(entry, at)| Change::CutEndInside { entry, at }),
        1 => (index(), index()).prop_map(|(one, other)| Change::Swap(one, other)),
        1 => (index(), index()).prop_map(|(entry, to)| Change::Duplicate { entry, to }),
        1 => index().prop_map(Change::Remove),
        1 => index().prop_map(Change::DropFile),
        1 => (index(), index()).prop_map(|(one, other)| Change::SwapFiles(one, other)),
    ]
}

/// Changes the files, and says which entry (from one) is the first that is not right. None: nothing was changed.
fn apply(change: &Change, log: &mut Files) -> Option<usize> {
    let count = log.count();
    let first = match change {
        Change::Edit { entry, at, flip } => {
            let entry = entry.index(count);
            let line = log.line(entry);
            let at = at.index(line.len());
            line[at] ^= flip;
            entry
        }
        Change::Insert { entry, at, byte } => {
            let entry = entry.index(count);
            let line = log.line(entry);
            let at = at.index(line.len());
            let behind = *byte == b'\n' && at + 1 == line.len();
            line.insert(at, *byte);
            // An empty line behind it leaves the entry itself alone.
            if behind { entry + 1 } else { entry }
        }
        Change::Unchain { entry, at } => {
            let entry = entry.index(count);
            let line = log.line(entry);
            // 64 digits, then a quote, a brace and the newline.
            let at = line.len() - 3 - 64 + at.index(64);
            line[at] = if line[at] == b'0' { b'1' } else { b'0' };
            entry
        }
        Change::CutStart(lines) => {
            (0..=lines.index(count)).for_each(|_| log.remove(0));
            0
        }
        Change::CutEnd(entry) => {
            let entry = entry.index(count);
            (entry..count).rev().for_each(|entry| log.remove(entry));
            entry
        }
        Change::CutEndInside { entry, at } => {
            let entry = entry.index(count);
            (entry + 1..count).rev().for_each(|entry| log.remove(entry));
            let line = log.line(entry);
            line.truncate(at.index(line.len()));
            entry
        }
        Change::Swap(one, other) => {
            let (one, other) = (one.index(count), other.index(count));
            let lines = (log.line(one).clone(), log.line(other).clone());
            (*log.line(one), *log.line(other)) = (lines.1, lines.0);
            (one != other).then_some(one.min(other))?
        }
        Change::Duplicate { entry, to } => {
            let (entry, to) = (entry.index(count), to.index(count + 1));
            let line = log.line(entry).clone();
            let (file, place) = log.place(to);
            log.files[file].1.insert(place, line);
            if to == entry { entry + 1 } else { to }
        }
        Change::Remove(entry) => {
            let entry = entry.index(count);
            log.remove(entry);
            entry
        }
        Change::DropFile(file) => {
            let file = file.index(log.files.len());
            let first = log.first_of(file);
            fs::remove_file(log.files.remove(file).0).unwrap();
            first
        }
        Change::SwapFiles(one, other) => {
            let (one, other) = (one.index(log.files.len()), other.index(log.files.len()));
            let first = log.first_of(one.min(other));
            let lines = (log.files[one].1.clone(), log.files[other].1.clone());
            (log.files[one].1, log.files[other].1) = (lines.1, lines.0);
            (one != other).then_some(first)?
        }
    };
    log.write();
    Some(first + 1)
}

fn bad_entry(error: &AuditError) -> u64 {
    let AuditError::Broken(broken) = error else { panic!("{error}: {error:?}") };
    broken.entry
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_change_is_found_and_its_first_entry_is_named(entries in 1_usize..14, change in change()) {
        let room = room();
        let audit = Audit::open_with(room.path(), 900).unwrap();
        for number in 0..entries {
            drop(audit.append(opening(number)).unwrap());
        }
        drop(audit);
        let mut log = Files::of(room.path());
        prop_assert_eq!(log.count(), entries);
        let Some(first) = apply(&change, &mut log) else { return Ok(()) };
        let first = u64::try_from(first).unwrap();
        let broken = verify(room.path()).unwrap_err();
        prop_assert_eq!(bad_entry(&broken), first, "{:?}", broken);
        let refused = Audit::open(room.path()).unwrap_err();
        prop_assert_eq!(bad_entry(&refused), first, "{:?}", refused);
    }

    /// Any bytes at all in place of a segment or of the anchor: an answer, never a panic.
    #[test]
    fn rubbish_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), anchor in any::<bool>()) {
        let room = room();
        let audit = Audit::open(room.path()).unwrap();
        drop(audit.append(opening(1)).unwrap());
        drop(audit);
        fs::write(room.path().join(if anchor { "anchor" } else { "000001.log" }), bytes).unwrap();
        prop_assert!(verify(room.path()).is_err());
        prop_assert!(Audit::open(room.path()).is_err());
    }
}

#[test]
fn a_log_that_is_longer_than_its_anchor_is_whole_and_its_edits_are_found() {
    let room = room();
    let anchor = room.path().join("anchor");
    let audit = Audit::open(room.path()).unwrap();
    drop(audit.append(opening(1)).unwrap());
    audit.flush().unwrap();
    let old = fs::read(&anchor).unwrap();
    for number in 2..=5 {
        drop(audit.append(opening(number)).unwrap());
    }
    drop(audit);
    fs::write(&anchor, &old).unwrap();
    let verified = verify(room.path()).unwrap();
    assert_eq!((verified.entries, verified.anchored), (5, 1));
    let whole = Files::of(room.path());
    for entry in 0..4 {
        let mut log = whole.clone();
        let line = log.line(entry);
        let at = line.len() / 2;
        line[at] ^= 1;
        log.write();
        let broken = verify(room.path()).unwrap_err();
        assert_eq!(bad_entry(&broken), u64::try_from(entry).unwrap() + 1, "{broken:?}");
    }
    whole.write();
    drop(Audit::open(room.path()).unwrap());
    assert_eq!(verify(room.path()).unwrap().anchored, 5);
}

#[test]
fn segments_without_an_anchor_are_refused() {
    let room = room();
    drop(Audit::open(room.path()).unwrap().append(opening(1)).unwrap());
    fs::remove_file(room.path().join("anchor")).unwrap();
    match verify(room.path()) {
        Err(AuditError::Broken(broken)) => assert!(matches!(broken.reason, Reason::NoAnchor)),
        other => panic!("{other:?}"),
    }
}

/// A crash may leave any beginning of what came after the last sync; nothing may be missing before it.
#[test]
fn a_cut_at_every_byte_is_recovered_or_refused() {
    let room = room();
    let (anchor, last) = (room.path().join("anchor"), room.path().join("000002.log"));
    let audit = Audit::open_with(room.path(), 700).unwrap();
    let mut number = 0;
    while !last.exists() {
        number += 1;
        drop(audit.append(opening(number)).unwrap());
    }
    audit.flush().unwrap();
    let old = fs::read(&anchor).unwrap();
    drop(audit.append(opening(number + 1)).unwrap());
    drop(audit);
    let bytes = fs::read(&last).unwrap();
    let anchored = verify(room.path()).unwrap().entries - 1;
    let anchored_bytes = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in 0..=bytes.len() {
        fs::write(&last, &bytes[..length]).unwrap();
        fs::write(&anchor, &old).unwrap();
        let verified = verify(room.path());
        let opened = Audit::open(room.path()).map(drop);
        if length < anchored_bytes {
            assert_eq!(bad_entry(&verified.unwrap_err()), anchored, "cut at {length}");
            assert_eq!(bad_entry(&opened.unwrap_err()), anchored, "cut at {length}");
            continue;
        }
        let torn = u64::try_from(length - anchored_bytes).unwrap()
            % u64::try_from(bytes.len() - anchored_bytes).unwrap();
        assert_eq!(verified.unwrap().torn, torn, "cut at {length}");
        opened.unwrap();
        // The torn line is gone and a note is there, or the whole line is still there.
        let more = u64::from(length > anchored_bytes);
        let verified = verify(room.path()).unwrap();
        assert_eq!((verified.entries, verified.torn), (anchored + more, 0), "cut at {length}");
    }
}
