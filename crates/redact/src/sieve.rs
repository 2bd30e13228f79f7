//! Finds where a form may begin, at memory speed: it looks at four bytes in every `stride` instead of
//! at every byte. It may report a place where only the first eight bytes agree, and never misses one;
//! it decides nothing, the trie does.
//!
//! Every form has at least `span` bytes. Of the four-byte blocks inside its first `span` bytes, taken
//! at each of `stride = span - 3` offsets, exactly one lies on the sampling grid. All those blocks are
//! in a bit set, two bits of one word each, so an ordinary sample costs one multiplication and one load.

use zeroize::Zeroize;

use crate::trie::{State, Trie};

/// Bytes that identify a beginning; no form is shorter (see `forms`).
pub(crate) const KEY: usize = 8;
const BLOCK: usize = 4;
/// Lengths of the beginning that is sampled: the longer the shortest form, the fewer samples.
const SPANS: [usize; 4] = [32, 16, 12, KEY];

/// 2^17 bits are 16 KiB, half of a first-level cache: ten keys in all their forms fill 3 to 7 % of it.
const WORDS: usize = 1 << 11;
const INDEX_SHIFT: u32 = 32 - 11;
const FACTOR: u32 = 0x9E37_79B1;

pub(crate) struct Sieve {
    span: usize,
    bits: Box<[u64; WORDS]>,
    keys: Vec<u64>,
    states: Vec<State>,
    key_shift: u32,
}

impl Sieve {
    /// `shortest` is the length of the shortest form.
    pub(crate) fn new(trie: &Trie, shortest: usize) -> Self {
        let span = SPANS.into_iter().find(|&span| span <= shortest).unwrap_or(KEY);
        let mut bits = Box::new([0; WORDS]);
        trie.prefixes(span, &mut |path, _| {
            for block in path.windows(BLOCK) {
                let (index, one, two) = place(read_block(block, 0));
                bits[index] |= 1 << one | 1 << two;
            }
        });
        let mut count = 0_usize;
        trie.prefixes(KEY, &mut |_, _| count += 1);
        let slots = (count * 4).next_power_of_two().max(64);
        let mut sieve =
            Self { span, bits, keys: vec![0; slots], states: vec![0; slots], key_shift: 64 - slots.ilog2() };
        trie.prefixes(KEY, &mut |path, state| {
            let key = read_key(path, 0);
            let mut slot = sieve.slot(key);
            while sieve.states[slot] != 0 {
                slot = (slot + 1) % slots;
            }
            sieve.keys[slot] = key;
            sieve.states[slot] = state;
        });
        sieve
    }

    /// Beginnings that end within the last `reach()` bytes of a piece are left to the trie.
    pub(crate) fn reach(&self) -> usize {
        self.span - 1
    }

    /// The first place at or after `from` whose eight bytes begin a form, and the state they lead to.
    pub(crate) fn find(&self, piece: &[u8], from: usize) -> Option<(usize, State)> {
        match self.span {
            32 => self.find_by::<29, { 29 * 8 }>(piece, from),
            16 => self.find_by::<13, { 13 * 8 }>(piece, from),
            12 => self.find_by::<9, { 9 * 8 }>(piece, from),
            _ => self.find_by::<5, { 5 * 8 }>(piece, from),
        }
    }

    fn find_by<const STRIDE: usize, const ROUND: usize>(
        &self,
        piece: &[u8],
        from: usize,
    ) -> Option<(usize, State)> {
        let mut at = from + STRIDE - 1;
        // Eight samples a round: one bounds check, one branch.
        while let Some(round) = piece.get(at..).and_then(<[u8]>::first_chunk::<ROUND>) {
            let mut hit = 0;
            for sample in 0..8 {
                hit |= self.sample(read_block(round, sample * STRIDE));
            }
            if hit & 1 == 1 {
                for sample in 0..8 {
                    if let Some(found) = self.verify::<STRIDE>(piece, from, at + sample * STRIDE) {
                        return Some(found);
                    }
                }
            }
            at += ROUND;
        }
        while at + BLOCK <= piece.len() {
            if let Some(found) = self.verify::<STRIDE>(piece, from, at) {
                return Some(found);
            }
            at += STRIDE;
        }
        None
    }

    /// The lowest bit is set if the block may belong to a beginning.
    #[inline(always)]
    fn sample(&self, block: u32) -> u64 {
        let (index, one, two) = place(block);
        let word = self.bits[index];
        (word >> one) & (word >> two)
    }

    fn verify<const STRIDE: usize>(&self, piece: &[u8], from: usize, at: usize) -> Option<(usize, State)> {
        if self.sample(read_block(piece, at)) & 1 == 0 {
            return None;
        }
        let earliest = (at + 1).saturating_sub(STRIDE).max(from);
        let latest = at.min(piece.len().checked_sub(KEY)?);
        (earliest..=latest).find_map(|start| Some((start, self.look_up(read_key(piece, start))?)))
    }

    fn slot(&self, key: u64) -> usize {
        let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.key_shift;
        usize::try_from(mixed).unwrap_or(0)
    }

    fn look_up(&self, key: u64) -> Option<State> {
        let mut slot = self.slot(key);
        loop {
            match self.states[slot] {
                0 => return None,
                state if self.keys[slot] == key => return Some(state),
                _ => slot = (slot + 1) & (self.states.len() - 1),
            }
        }
    }
}

#[inline(always)]
fn place(block: u32) -> (usize, u32, u32) {
    let hash = block.wrapping_mul(FACTOR);
    ((hash >> INDEX_SHIFT) as usize, hash >> (INDEX_SHIFT - 6) & 63, hash >> (INDEX_SHIFT - 12) & 63)
}

#[inline(always)]
fn read_block(bytes: &[u8], at: usize) -> u32 {
    let mut block = [0; BLOCK];
    block.copy_from_slice(&bytes[at..at + BLOCK]);
    u32::from_le_bytes(block)
}

fn read_key(bytes: &[u8], at: usize) -> u64 {
    let mut key = [0; KEY];
    key.copy_from_slice(&bytes[at..at + KEY]);
    u64::from_le_bytes(key)
}

impl Drop for Sieve {
    fn drop(&mut self) {
        self.bits.zeroize();
        self.keys.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sieve(forms: &[&[u8]]) -> Sieve {
        let mut trie = Trie::new();
        for form in forms {
            assert!(trie.insert(form, 0).is_ok());
        }
        trie.link();
        Sieve::new(&trie, forms.iter().map(|form| form.len()).min().unwrap())
    }

    #[test]
    fn finds_a_beginning_at_every_offset() {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYabcdefghijklmno";
        for length in [KEY, 13, 20, 40] {
            let form = &alphabet[..length];
            let sieve = sieve(&[form, &[b'Z'; 40]]);
            for before in 0..300 {
                for after in [0, 1, 7, 200] {
                    let mut text = vec![b'.'; before];
                    text.extend_from_slice(form);
                    text.resize(text.len() + after, b'.');
                    for from in [0, before / 2, before] {
                        assert_eq!(sieve.find(&text, from).map(|(at, _)| at), Some(before));
                    }
                    assert_eq!(sieve.find(&text, before + 1), None);
                }
            }
        }
    }
}
