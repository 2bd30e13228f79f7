//! Inputs that are nearly right, made from kept ones. The same seed makes the same inputs: a failure comes back.

use std::iter::repeat_n;

/// Of one input. Larger ones find nothing that these don't.
const LONGEST: usize = 16 * 1024;
const MOST_CHANGES: usize = 6;
const MOST_REPEATED: usize = 400;

/// What parsers stumble over.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r\n",
    b"\x1b[31m",
    b"\\u001b[2J",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    "\u{202e}".as_bytes(),
    "\u{2028}".as_bytes(),
    "é日\u{1f600}".as_bytes(),
    b"\"",
    b"'",
    b"\"\"\"",
    b"\\",
    b"`",
    b"[",
    b"]",
    b"{",
    b"}",
    b"[[",
    b"]]",
    b",",
    b":",
    b"=",
    b"&",
    b"#",
    b"..",
    b"/../",
    b"*",
    b"**",
    b"0",
    b"-1",
    b"-0",
    b"1e999",
    b"1.5",
    b"nan",
    b"inf",
    b"0x7f",
    b"255",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999999999",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"\"\"",
    b"{\"hex\":\"ff\"}",
    b"\"id\":1,",
    b"\"command\":\"a\",",
    b"\"env\":{\"A\\n\":1},",
    b"a = 1\n",
    b"\"\\u001b\" = 1\n",
    b"extends = \"other\"\n",
    b"1979-05-27T07:32:00Z",
    b"\x00\x00\x00\x02{}",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x01\x53\x01\x00",
    b"\x01\x53\xff\x00\x00\x00\x00\x00",
];

/// What is repeated many times: nesting, long names, long lines.
const REPEATED: &[&[u8]] =
    &[b"[", b"{\"a\":", b"a.", b"a", b"9", b" ", b"\n", b"*", b"\\", b"\xff", "\u{202e}".as_bytes()];

/// SplitMix64: small, and the same everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`; 0 where there is nothing below it.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn of<'a, T: ?Sized>(&mut self, items: &'a [&'a T]) -> Option<&'a T> {
        items.get(self.below(items.len())).copied()
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        // Short ones mostly: a long cut leaves little.
        let most = if self.next().is_multiple_of(4) { length - start } else { (length - start).min(16) };
        start..start + self.below(most + 1)
    }
}

/// One of `corpus`, changed in a few places.
pub fn mutate(random: &mut Random, corpus: &[&[u8]]) -> Vec<u8> {
    let mut input = random.of(corpus).unwrap_or_default().to_vec();
    for _ in 0..=random.below(MOST_CHANGES) {
        change(random, &mut input, corpus);
        input.truncate(LONGEST);
    }
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, corpus: &[&[u8]]) {
    let at = random.below(input.len() + 1);
    match random.below(9) {
        0 => {
            let bit = 1 << random.below(8);
            input.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
        }
        1 => {
            let byte = random.byte();
            input.get_mut(at).into_iter().for_each(|there| *there = byte);
        }
        2 => drop(input.drain(random.range(input.len()))),
        3 => input.truncate(at),
        // A key or a frame twice.
        4 => {
            let twice = input[random.range(input.len())].to_vec();
            insert(input, at, &twice);
        }
        5 => {
            let other = random.of(corpus).unwrap_or_default();
            let part = other[random.range(other.len())].to_vec();
            insert(input, at, &part);
        }
        6 => {
            let other = random.of(corpus).unwrap_or_default();
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        7 => {
            let piece = random.of(REPEATED).unwrap_or_default();
            let many = repeat_n(piece, random.below(MOST_REPEATED)).flatten().copied().collect::<Vec<_>>();
            insert(input, at, &many);
        }
        _ => insert(input, at, random.of(TOKENS).unwrap_or_default()),
    }
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(input.splice(at..at, piece.iter().copied()));
}
