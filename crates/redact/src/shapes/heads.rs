//! Finds the heads of the table: SIMD over ordinary output, a plain loop where heads come close
//! together (the SIMD search pays for every call) and on machines without SIMD. The head of URLs is found
//! from the `@` that a password ends in. Decides nothing.

use aho_corasick::{Span, packed};
use memchr::{memchr, memchr_iter, memmem};

use super::table::{FROM_ITS_END, HEADS};

/// All but the one that is found from its end.
const SEARCHED: usize = HEADS.len() - 1;

/// Two heads this close, and the plain loop takes over for as long again: a new SIMD search costs as
/// much as some 30 steps of the loop.
const NEAR: usize = 32;

pub(super) struct Heads {
    packed: Option<packed::Searcher>,
    /// One bit per pair of bytes that begins a head.
    pairs: Box<[u64; 1024]>,
    by_first: Vec<Vec<usize>>,
    longest: usize,
    url: memmem::Finder<'static>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) head: usize,
    pub(super) at: usize,
}

impl Heads {
    pub(super) fn new() -> Self {
        let packed = packed::Config::new().builder().extend(&HEADS[..SEARCHED]).build();
        let mut pairs = Box::new([0; 1024]);
        let mut by_first = vec![Vec::new(); 256];
        for (index, head) in HEADS.iter().enumerate() {
            if index < SEARCHED {
                let pair = pair(head[0], head[1]);
                pairs[pair / 64] |= 1 << (pair % 64);
            }
            by_first[usize::from(head[0])].push(index);
        }
        let longest = HEADS.iter().map(|head| head.len()).max().unwrap_or(1);
        Self { packed, pairs, by_first, longest, url: memmem::Finder::new(FROM_ITS_END.head) }
    }

    /// Calls `found` for every head in the piece that may begin a token, those of a row in order, and for
    /// the one cut by its end.
    pub(super) fn each(&self, piece: &[u8], found: &mut dyn FnMut(Hit)) {
        self.search(piece, found);
        self.search_ends(piece, found);
        for at in piece.len().saturating_sub(self.longest - 1)..piece.len() {
            for &head in &self.by_first[usize::from(piece[at])] {
                if HEADS[head].len() > piece.len() - at && HEADS[head].starts_with(&piece[at..]) {
                    found(Hit { head, at });
                }
            }
        }
    }

    fn search(&self, piece: &[u8], found: &mut dyn FnMut(Hit)) {
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
    }

    /// Goes back from each end, and from the piece's own, where the token may go on in the next. An end
    /// doesn't stand inside a token, so no byte is looked at twice.
    fn search_ends(&self, piece: &[u8], found: &mut dyn FnMut(Hit)) {
        let shape = &FROM_ITS_END;
        let first = memchr(shape.end, piece).unwrap_or(piece.len());
        // Binary output and lists of addresses are full of ends.
        if first < piece.len() && self.url.find(piece).is_none() {
            return;
        }
        let ends = memchr_iter(shape.end, &piece[first..]).map(|end| first + end);
        for end in ends.chain([piece.len()]) {
            let near = &piece[end.saturating_sub(shape.longest)..end];
            let between = near.iter().rev().take_while(|&&byte| shape.between[usize::from(byte)]).count();
            if piece[..end - between].ends_with(shape.head) {
                found(Hit { head: SEARCHED, at: end - between - shape.head.len() });
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
        text.extend_from_slice(b"://user:password@");
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

    #[test]
    fn a_url_is_found_by_its_password_and_at_the_cut() {
        let heads = Heads::new();
        let url = HEADS.iter().position(|&head| head == FROM_ITS_END.head).unwrap();
        assert_eq!(url, SEARCHED);
        assert!(!FROM_ITS_END.between[usize::from(FROM_ITS_END.end)]);
        assert!(!FROM_ITS_END.between[usize::from(*FROM_ITS_END.head.last().unwrap())]);
        let longest = format!("x://{}:{}@", "u".repeat(256), "p".repeat(512));
        for (text, found) in [
            ("http://host/ http://[::1]:80/ a@b", &[][..]),
            ("http://me:word@host/ ://:pass@ x", &[4, 21]),
            ("a://b://c:d@e@f ", &[5]),
            ("http://host:80", &[4]),
            ("http:/", &[4]),
            ("@://", &[1]),
            (&longest, &[1]),
            (&longest[..longest.len() - 1], &[1]),
        ] {
            let mut places = all(&heads, text.as_bytes());
            places.retain(|&(_, head)| head == url);
            assert_eq!(places.iter().map(|&(at, _)| at).collect::<Vec<_>>(), found, "{text}");
        }
    }
}
