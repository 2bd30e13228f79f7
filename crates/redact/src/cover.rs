//! The stretches of a stream that must not show, merged where they overlap, and the name each merged
//! stretch is shown under. Positions count the bytes of the stream. `stream.rs` turns them into output.

use std::cmp::Ordering;
use std::collections::VecDeque;

/// An index into the redactor's markers; known secrets come before shapes.
pub(crate) type Label = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) label: Label,
    /// End of the one match that gives the name.
    named_end: u64,
    /// The marker is out; what is added to the stretch later is swallowed.
    pub(crate) announced: bool,
}

impl Cover {
    pub(crate) fn new(start: u64, end: u64, label: Label) -> Self {
        Self { start, end, label, named_end: end, announced: false }
    }

    /// Takes over one that overlaps and doesn't start earlier.
    fn absorb(&mut self, other: &Self, known: Label) {
        if other.start == self.start && better(known, other, self) == Ordering::Less {
            self.label = other.label;
            self.named_end = other.named_end;
        }
        self.end = self.end.max(other.end);
        self.announced |= other.announced;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Covers {
    /// Sorted, disjoint; touching ones stay apart: they are different secrets side by side.
    merged: VecDeque<Cover>,
    fresh: Vec<Cover>,
    /// Labels below are known secrets: the longest gives the name; above, the first row of the table.
    known: Label,
}

impl Covers {
    pub(crate) fn new(known: Label) -> Self {
        Self { known, ..Self::default() }
    }

    pub(crate) fn add(&mut self, cover: Cover) {
        match self.fresh.last_mut() {
            // Matches of one secret inside its own repetition come by the byte.
            Some(last) if last.start <= cover.start && cover.start < last.end => {
                last.absorb(&cover, self.known);
            }
            _ => self.fresh.push(cover),
        }
    }

    /// Merges what was added. The result depends on the set of matches only, not on their order.
    pub(crate) fn settle(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let added = self.fresh.len();
        self.fresh.extend(self.merged.drain(..));
        self.fresh.rotate_left(added);
        // Stable, because that sort is linear on a few sorted runs, which this is.
        self.fresh.sort_by_key(|cover| cover.start);
        for cover in self.fresh.drain(..) {
            match self.merged.back_mut() {
                Some(last) if cover.start < last.end => last.absorb(&cover, self.known),
                _ => self.merged.push_back(cover),
            }
        }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Cover> {
        self.merged.get_mut(index)
    }

    /// Whether a stretch that has no marker yet is next in line.
    pub(crate) fn waits_at(&self, shown: u64) -> bool {
        self.merged.iter().find(|cover| !cover.announced).is_some_and(|cover| cover.start <= shown)
    }

    /// Forgets stretches that nothing can be added to any more: later matches start at `settled` or
    /// after it. One that ends right there is kept, it may be a token that still grows.
    pub(crate) fn forget(&mut self, settled: u64) {
        while self.merged.front().is_some_and(|cover| cover.announced && cover.end < settled) {
            self.merged.pop_front();
        }
    }
}

fn better(known: Label, a: &Cover, b: &Cover) -> Ordering {
    match (a.label < known, b.label < known) {
        (true, true) => b.named_end.cmp(&a.named_end).then(a.label.cmp(&b.label)),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.label.cmp(&b.label),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(known: Label, adds: &[(u64, u64, Label)]) -> Vec<(u64, u64, Label)> {
        let mut covers = Covers::new(known);
        adds.iter().for_each(|&(start, end, label)| covers.add(Cover::new(start, end, label)));
        covers.settle();
        covers.merged.iter().map(|cover| (cover.start, cover.end, cover.label)).collect()
    }

    #[test]
    fn overlapping_merge_touching_do_not() {
        assert_eq!(merged(9, &[(5, 9, 1), (0, 6, 2), (9, 12, 3)]), [(0, 9, 2), (9, 12, 3)]);
    }

    #[test]
    fn the_name_does_not_depend_on_the_order() {
        let adds = [(0, 8, 1), (0, 12, 2), (4, 20, 0), (0, 30, 7)];
        let expected = [(0, 30, 2)];
        assert_eq!(merged(5, &adds), expected);
        assert_eq!(merged(5, &[adds[3], adds[2], adds[1], adds[0]]), expected);
    }
}
