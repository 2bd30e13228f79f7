//! Known values in a stream: skips with the sieve, walks the trie where a form may have begun, and
//! says which stretches are secret and from where on bytes must be held. Shows nothing itself; the
//! stretches go to `cover.rs`.

use crate::cover::{Cover, Covers};
use crate::forms;
use crate::secret::{MIN_SECRET, Secret, SecretError};
use crate::sieve::{KEY, Sieve};
use crate::trie::{MAX_STATES, Owner, ROOT, State, Trie};

/// A held beginning this short is shown when its time is up. Three bytes of a value say next to nothing,
/// and half of all lines end in one to three bytes that begin some form: holding those would stall
/// prompts. From four on, ordinary text rarely agrees and a slow printer would leak.
pub(crate) const SHOWABLE: usize = 4;

pub(crate) struct Known {
    trie: Trie,
    sieve: Sieve,
}

impl Known {
    /// `None` when there is nothing to look for.
    pub(crate) fn new(secrets: &[Secret]) -> Result<Option<Self>, SecretError> {
        let mut trie = Trie::new();
        let mut shortest = usize::MAX;
        for (owner, secret) in (0..).zip(secrets) {
            let owner: Owner = owner;
            let mut full = false;
            forms::visit(secret.value(), &mut |form| {
                shortest = shortest.min(form.len());
                full |= trie.insert(form, owner).is_err();
            });
            if full {
                return Err(SecretError::TooMuch { name: secret.name().to_owned(), limit: MAX_STATES });
            }
        }
        if trie.is_empty() {
            return Ok(None);
        }
        trie.link();
        let sieve = Sieve::new(&trie, shortest);
        Ok(Some(Self { trie, sieve }))
    }

    /// Walks `piece`, whose first byte is number `base` of the stream, and returns the new state.
    pub(crate) fn scan(&self, mut state: State, piece: &[u8], base: u64, covers: &mut Covers) -> State {
        let mut at = 0;
        loop {
            // A walk that began in this piece and is too shallow to be sure of can be redone by the
            // sieve, which is the faster of the two.
            while at < piece.len() && (self.trie.depth(state) >= KEY || self.trie.depth(state) > at) {
                state = self.trie.step(state, piece[at]);
                at += 1;
                self.note(state, base, at, covers);
            }
            if at == piece.len() {
                return state;
            }
            let from = at - self.trie.depth(state);
            if let Some((start, found)) = self.sieve.find(piece, from) {
                state = found;
                at = start + KEY;
                self.note(state, base, at, covers);
                continue;
            }
            let from = from.max(piece.len().saturating_sub(self.sieve.reach()));
            return piece[from..].iter().fold(ROOT, |state, &byte| self.trie.step(state, byte));
        }
    }

    fn note(&self, state: State, base: u64, at: usize, covers: &mut Covers) {
        if let Some((length, owner)) = self.trie.ended(state) {
            let end = base + at as u64;
            covers.add(Cover::new(end - length as u64, end, owner));
        }
    }

    /// How many of the last bytes may begin a form.
    pub(crate) fn held(&self, state: State) -> u64 {
        self.trie.open_depth(state) as u64
    }

    /// As `held`, once the time to hold ordinary output is up.
    pub(crate) fn held_past_due(&self, state: State) -> u64 {
        match self.trie.open_depth(state) {
            shown if shown < SHOWABLE => 0,
            held => held as u64,
        }
    }

    /// The stream ends inside a form: all but the last byte may have been printed. What is at least
    /// half of a form, and no less than a secret must have, is treated as the whole.
    pub(crate) fn finish(&self, mut state: State, end: u64, covers: &mut Covers) {
        while self.trie.depth(state) >= MIN_SECRET {
            let depth = self.trie.depth(state);
            if let Some(owner) = self.trie.grows_into(state, depth * 2) {
                covers.add(Cover::new(end - depth as u64, end, owner));
                return;
            }
            state = self.trie.fail(state);
        }
    }
}
