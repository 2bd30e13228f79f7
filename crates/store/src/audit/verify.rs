//! Walks the whole log and names the first entry that is not as it was written.
//!
//! What it finds: any edit, cut, swap, duplicate or missing segment among the entries that the anchor counts.
//! Entries past the anchor (a crash within one sync's delay) are chained too, but nothing vouches for the very
//! last of them. Someone who can rewrite every line and the anchor makes a new log: against that keep the
//! anchor's text, one line, on another machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::OURSELVES;
use super::anchor::Anchor;
use super::error::{AuditError, Broken, Reason};
use super::line::{Entry, Hash, Kind};
use super::segments::{self, Line, Lines};
use crate::ExecutionId;

/// A log whose chain holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Verified {
    pub entries: u64,
    /// Of the first entry; zeros where there is none.
    pub first: Hash,
    /// Of the last entry; zeros where there is none.
    pub head: Hash,
    /// How many of them the anchor vouches for.
    pub anchored: u64,
    /// Bytes of an unfinished line after the last entry: a crash in the middle of a write, or one that goes on.
    pub torn: u64,
}

/// Reads only, and takes no lock: it may look at a log that is being written.
pub fn verify(directory: &Path) -> Result<Verified, AuditError> {
    Ok(walk(directory)?.verified)
}

/// What [`verify`] knows and an opener needs.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) verified: Verified,
    /// The last segment's number and how many of its bytes are whole lines.
    pub(crate) last: Option<(u64, u64)>,
    pub(crate) anchor: Option<Anchor>,
    /// Executions whose entry was opened and of which nothing was said since.
    pub(crate) unclosed: BTreeSet<ExecutionId>,
}

pub(crate) fn walk(directory: &Path) -> Result<Walked, AuditError> {
    // The anchor first: a log that grows meanwhile is then longer than its anchor, never shorter.
    let anchor = Anchor::read(directory)?;
    let files = segments::list(directory)?;
    let mut walk = Walk::new(directory, anchor.unwrap_or(Anchor::EMPTY));
    if anchor.is_none() && !files.is_empty() {
        return Err(walk.broken(1, Reason::NoAnchor).into());
    }
    let mut last = None;
    let mut torn = 0;
    for (expected, file) in (1..).zip(&files) {
        if torn > 0 {
            return Err(walk.broken(walk.next(), Reason::Torn).into());
        }
        if file.number != expected {
            walk.end_of_lines()?;
            walk.path = segments::path(directory, expected);
            return Err(walk.broken(walk.next(), Reason::SegmentMissing).into());
        }
        walk.path.clone_from(&file.path);
        let mut whole = 0_u64;
        let mut lines = Lines::open(&file.path)?;
        while let Some(line) = lines.next()? {
            match line {
                Line::Whole(bytes) => {
                    walk.line(&bytes)?;
                    whole += u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_add(1);
                }
                // The writer may be about to finish it: the rest would look like a line of its own.
                Line::Torn(length) => {
                    torn = length;
                    break;
                }
                Line::TooLong => return Err(walk.broken(walk.next(), Reason::TooLong).into()),
            }
        }
        last = Some((file.number, whole));
    }
    let unclosed = std::mem::take(&mut walk.unclosed);
    let verified = walk.finish(torn)?;
    Ok(Walked { verified, last, anchor, unclosed })
}

/// An entry whose `prev` is not the hash of the one before: one of the two was changed. If what follows vouches
/// for the later one, it was the earlier.
#[derive(Debug)]
struct Suspect {
    /// Where the entry before it is.
    before: PathBuf,
    path: PathBuf,
}

#[derive(Debug)]
struct Walk {
    anchor: Anchor,
    entries: u64,
    first: Hash,
    head: Hash,
    suspect: Option<Suspect>,
    /// The segment that is read, and the one of the last entry.
    path: PathBuf,
    path_of_head: PathBuf,
    unclosed: BTreeSet<ExecutionId>,
}

impl Walk {
    fn new(directory: &Path, anchor: Anchor) -> Self {
        let path = segments::path(directory, 1);
        let (first, head) = (Hash::ZERO, Hash::ZERO);
        Self {
            anchor,
            entries: 0,
            first,
            head,
            suspect: None,
            path_of_head: path.clone(),
            path,
            unclosed: BTreeSet::new(),
        }
    }

    fn next(&self) -> u64 {
        self.entries + 1
    }

    fn broken(&self, entry: u64, reason: Reason) -> Broken {
        Broken { entry, path: self.path.clone(), reason }
    }

    fn line(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let number = self.next();
        let parsed = Entry::parse(bytes);
        if let Some(suspect) = self.suspect.take() {
            let vouched = parsed.is_ok_and(|entry| entry.prev == self.head);
            return Err(self.blame(suspect, vouched));
        }
        let entry = parsed.map_err(|error| self.broken(number, Reason::Unreadable(error)))?;
        if entry.seq != number {
            return Err(self.broken(number, Reason::Order { found: entry.seq }));
        }
        let hash = Hash::of(bytes);
        self.chained(number, entry.prev, hash)?;
        let anchor = &self.anchor;
        let first_differs = number == 1 && anchor.count > 0 && hash != anchor.first;
        if first_differs || (number == anchor.count && hash != anchor.head) {
            return Err(self.broken(number, Reason::NotAnchored));
        }
        if number == 1 {
            self.first = hash;
        }
        match (entry.kind, entry.execution) {
            (Kind::Opened, Some(execution)) => {
                self.unclosed.insert(execution);
            }
            // The service's own words about it: that it was lost, or that its end was.
            (Kind::Noted, Some(_)) if entry.principal != OURSELVES => {}
            (Kind::Closed | Kind::Noted, Some(execution)) => {
                self.unclosed.remove(&execution);
            }
            (_, None) => {}
        }
        (self.entries, self.head) = (number, hash);
        self.path_of_head.clone_from(&self.path);
        Ok(())
    }

    fn chained(&mut self, number: u64, prev: Hash, hash: Hash) -> Result<(), Broken> {
        if prev == self.head {
            return Ok(());
        }
        let suspect = Suspect { before: self.path_of_head.clone(), path: self.path.clone() };
        if number == 1 || self.entries == self.anchor.count {
            // Nothing, or an entry that the anchor vouches for, is before it.
            return Err(self.broken(number, Reason::Unchained));
        }
        if number == self.anchor.count {
            self.entries = number;
            return Err(self.blame(suspect, hash == self.anchor.head));
        }
        self.suspect = Some(suspect);
        Ok(())
    }

    /// The suspect is the entry numbered `self.entries`.
    fn blame(&self, suspect: Suspect, vouched: bool) -> Broken {
        if vouched {
            Broken { entry: self.entries - 1, path: suspect.before, reason: Reason::Edited }
        } else {
            Broken { entry: self.entries, path: suspect.path, reason: Reason::Unchained }
        }
    }

    fn end_of_lines(&mut self) -> Result<(), Broken> {
        match self.suspect.take() {
            // The last of all, past the anchor: the one before it holds more that is worth changing.
            Some(suspect) => Err(self.blame(suspect, self.entries > self.anchor.count)),
            None => Ok(()),
        }
    }

    fn finish(mut self, torn: u64) -> Result<Verified, Broken> {
        self.end_of_lines()?;
        let anchored = self.anchor.count;
        if self.entries < anchored {
            let reason = if torn > 0 { Reason::Torn } else { Reason::Cut { anchored } };
            return Err(self.broken(self.next(), reason));
        }
        Ok(Verified { entries: self.entries, first: self.first, head: self.head, anchored, torn })
    }
}
