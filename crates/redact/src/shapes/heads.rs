//! Finds the heads of the table: SIMD over ordinary output, a plain loop where heads come close
//! together (the SIMD search pays for every call) and on machines without SIMD. Decides nothing.

use aho_corasick::{Span, packed};

use super::table::HEADS;

/// Two heads this close, and the plain loop takes over for as long again: a new SIMD search costs as
/// much as some 30 steps of the loop.
const NEAR: usize = 32;

pub(super) struct Heads {
    packed: Option<packed::Searcher>,
    /// One bit per pair of bytes that begins a head.
    pairs: Box<[u64; 1024]>,
    by_first: Vec<Vec<usize>>,
    longest: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) head: usize,
    pub(super) at: usize,
}

impl Heads {
    pub(super) fn new() -> Self {
        let packed = packed::Config::new().builder().extend(HEADS).build();
        let mut pairs = Box::new([0; 1024]);
        let mut by_first = vec![Vec::new(); 256];
        for (index, head) in HEADS.iter().enumerate() {
            let pair = pair(head[0], head[1]);
            pairs[pair / 64] |= 1 << (pair % 64);
            by_first[usize::from(head[0])].push(index);
        }
        let longest = HEADS.iter().map(|head| head.len()).max().unwrap_or(1);
        Self { packed, pairs, by_first, longest }
    }

    /// Calls `found` for every head in the piece, in order, the one cut by its end included.
    pub(super) fn each(&self, piece: &[u8], found: &mut dyn FnMut(Hit)) {
        let (mut from, mut last) = (0, 0);
        let mut near = if self.packed.is_some() { 0 } else { usize::MAX };
        loop {
            let hit = self.plain(piece, &mut from, near).or_else(|| {
                let span = Span { start: from, end: piece.len() };
                let hit = self.packed.as_ref()?.find_in(piece, span)?;
                Some(Hit { head: hit.pattern().as_usize(), at: hit.start() })
            });
            let Some(hit) = hit else { break };
            found(hit);
            if hit.at <= last + NEAR {
                near = near.max(hit.at + NEAR);
            }
            last = hit.at;
            from = hit.at + 1;
        }
        for at in piece.len().saturating_sub(self.longest - 1)..piece.len() {
            for &head in &self.by_first[usize::from(piece[at])] {
                if HEADS[head].len() > piece.len() - at && HEADS[head].starts_with(&piece[at..]) {
                    found(Hit { head, at });
                }
            }
        }
    }

    fn plain(&self, piece: &[u8], from: &mut usize, until: usize) -> Option<Hit> {
        while *from < until
            && let Some(&[one, two]) = piece.get(*from..).and_then(<[u8]>::first_chunk::<2>)
        {
            let at = *from;
            let pair = pair(one, two);
            if self.pairs[pair / 64] >> (pair % 64) & 1 == 1 {
                let mut heads = self.by_first[usize::from(one)].iter();
                if let Some(&head) = heads.find(|&&head| piece[at..].starts_with(HEADS[head])) {
                    return Some(Hit { head, at });
                }
            }
            *from += 1;
        }
        None
    }
}

fn pair(one: u8, two: u8) -> usize {
    usize::from(one) << 8 | usize::from(two)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(heads: &Heads, text: &[u8]) -> Vec<(usize, usize)> {
        let mut hits = Vec::new();
        heads.each(text, &mut |hit| hits.push((hit.at, hit.head)));
        hits
    }

    #[test]
    fn simd_and_plain_agree_near_and_far_and_at_the_cut() {
        let simd = Heads::new();
        let plain = Heads { packed: None, ..Heads::new() };
        let mut text = Vec::new();
        for (n, head) in HEADS.iter().enumerate() {
            text.extend_from_slice(head);
            text.resize(text.len() + n * n % 70, b'.');
            text.extend_from_slice(&head[1..]);
        }
        for end in 0..text.len() {
            let found = all(&simd, &text[..end]);
            assert_eq!(found, all(&plain, &text[..end]));
            let cut = |&(at, head): &(usize, usize)| {
                HEADS[head].starts_with(&text[at..end.min(at + HEADS[head].len())])
            };
            assert!(found.iter().all(cut));
        }
        assert!(all(&simd, &text).len() >= HEADS.len());
    }
}
