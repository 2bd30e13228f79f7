//! Token shapes in a stream: a SIMD prefilter finds heads, a thread follows each. Every row of the
//! table is matched on its own, so the result is a property of the stream, not of its cuts. Certain
//! stretches go to `cover.rs`.

mod heads;
mod pem;
mod table;
mod thread;

use std::fmt;

use crate::cover::{Cover, Covers, Label};
use heads::Heads;
use table::{Before, HEADS, ROWS};
use thread::{Progress, Thread};

/// Bytes kept to judge what stands before a head: a colour sequence such as `ESC [ 38;5;208 m`.
const HISTORY: usize = 16;

pub(crate) struct Shapes {
    heads: Heads,
    /// For each head the rows that begin with it; they agree in what may stand before it.
    rows: Vec<Vec<usize>>,
    /// The label of row 0.
    first_label: Label,
}

#[derive(Debug, Default)]
pub(crate) struct Tracker {
    threads: Vec<Thread>,
    history: History,
}

#[derive(Debug, Default, Clone, Copy)]
struct History {
    bytes: [u8; HISTORY],
    length: usize,
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

impl Shapes {
    pub(crate) fn new(first_label: Label) -> Self {
        let begin = |head: &&[u8]| (0..ROWS.len()).filter(|&row| ROWS[row].heads.contains(head)).collect();
        Self { heads: Heads::new(), rows: HEADS.iter().map(begin).collect(), first_label }
    }

    pub(crate) fn scan(&self, tracker: &mut Tracker, piece: &[u8], base: u64, covers: &mut Covers) {
        let mut live = std::mem::take(&mut tracker.threads);
        // Up to here a row needs no second thread: it would end where the first does.
        let mut covered = [0; ROWS.len()];
        live.retain_mut(|thread| {
            let progress = self.follow(thread, piece, 0, base, covers);
            covered[thread.row] = covered[thread.row].max(thread.reach(progress, piece, base));
            progress == Progress::Live
        });
        self.heads.each(piece, &mut |hit| {
            let rows = &self.rows[hit.head];
            let before = rows.first().map_or(Before::Anything, |&row| ROWS[row].before);
            if !tracker.history.allows(before, piece, hit.at) {
                return;
            }
            for &row in rows {
                let after = piece.get(hit.at + HEADS[hit.head].len()..).unwrap_or_default();
                if hit.at < covered[row] || !Thread::can_begin(row, after) {
                    continue;
                }
                let mut thread = Thread::new(row, HEADS[hit.head], base + hit.at as u64);
                let progress = self.follow(&mut thread, piece, hit.at, base, covers);
                covered[row] = covered[row].max(thread.reach(progress, piece, base));
                if progress == Progress::Live {
                    live.push(thread);
                }
            }
        });
        tracker.threads = live;
        tracker.history.push(piece);
    }

    fn follow(
        &self,
        thread: &mut Thread,
        piece: &[u8],
        at: usize,
        base: u64,
        covers: &mut Covers,
    ) -> Progress {
        let progress = thread.advance(piece, at, base);
        if let Some((start, end)) = thread.stretch()
            && start < end
            && let Ok(row) = Label::try_from(thread.row)
        {
            covers.add(Cover::new(start, end, self.first_label + row));
        }
        progress
    }
}

impl Tracker {
    /// The first byte that must be held.
    pub(crate) fn holds(&self) -> Option<u64> {
        self.threads.iter().filter_map(Thread::holds).min()
    }

    pub(crate) fn holds_past_due(&self) -> Option<u64> {
        self.threads.iter().filter_map(Thread::holds_past_due).min()
    }
}

impl History {
    fn push(&mut self, piece: &[u8]) {
        let new = &piece[piece.len().saturating_sub(HISTORY)..];
        self.bytes.copy_within(new.len().., 0);
        self.bytes[HISTORY - new.len()..].copy_from_slice(new);
        self.length = (self.length + new.len()).min(HISTORY);
    }

    /// The byte `back` (from 1) places before `at`.
    fn before(&self, piece: &[u8], at: usize, back: usize) -> Option<u8> {
        if back <= at {
            return piece.get(at - back).copied();
        }
        let back = back - at;
        if back > self.length { None } else { self.bytes.get(HISTORY - back).copied() }
    }

    fn allows(&self, rule: Before, piece: &[u8], at: usize) -> bool {
        match rule {
            Before::Anything => true,
            Before::Dashes => (1..=5).all(|back| self.before(piece, at, back) == Some(b'-')),
            Before::Not(class) => match self.before(piece, at, 1) {
                Some(byte) if class[usize::from(byte)] => self.after_escape(byte, piece, at),
                _ => true,
            },
        }
    }

    /// The `n` of a `\n` inside a string, or the `m` of a colour sequence, is not part of a word.
    fn after_escape(&self, last: u8, piece: &[u8], at: usize) -> bool {
        if matches!(last, b'n' | b'r' | b't') && self.before(piece, at, 2) == Some(b'\\') {
            return true;
        }
        let mut back = 2;
        while self.before(piece, at, back).is_some_and(|b| b.is_ascii_digit() || b == b';') {
            back += 1;
        }
        last == b'm'
            && self.before(piece, at, back) == Some(b'[')
            && self.before(piece, at, back + 1) == Some(0x1b)
    }
}

impl fmt::Debug for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shapes({} rows)", ROWS.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heads_are_those_of_the_rows() {
        let mut of_rows: Vec<&[u8]> = ROWS.iter().flat_map(|row| row.heads).copied().collect();
        of_rows.sort_unstable();
        of_rows.dedup();
        let mut listed = HEADS.to_vec();
        listed.sort_unstable();
        assert_eq!(listed, of_rows);
        assert!(listed.windows(2).all(|pair| !pair[1].starts_with(pair[0])));
        assert!(listed.iter().all(|head| head.len() >= 3));
        let befores = |head: &&[u8]| {
            let rows = ROWS.iter().filter(|row| row.heads.contains(head));
            rows.map(|row| format!("{:?}", row.before)).collect::<std::collections::HashSet<_>>().len()
        };
        assert!(HEADS.iter().all(|head| befores(head) == 1));
    }
}
