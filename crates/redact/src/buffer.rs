//! The bytes a stream holds back: a queue that wipes what it lets go of and never leaves a copy behind
//! when it grows. Its bound is the longest form plus the longest unfinished shape.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::secret::append_wiped;

#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Zeroizing<Vec<u8>>,
    head: usize,
}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    pub(crate) fn append(&mut self, more: &[u8]) {
        append_wiped(&mut self.bytes, more);
    }

    pub(crate) fn drop_front(&mut self, count: usize) {
        self.head = (self.head + count).min(self.bytes.len());
        if self.head == self.bytes.len() {
            // Keeps the memory: `Zeroize` for `Vec` clears the whole capacity, which may be large.
            self.bytes.as_mut_slice().zeroize();
            self.bytes.clear();
            self.head = 0;
        } else if self.head > self.bytes.len() / 2 {
            let kept = self.bytes.len() - self.head;
            self.bytes.copy_within(self.head.., 0);
            self.bytes[kept..].zeroize();
            self.bytes.truncate(kept);
            self.head = 0;
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} held)", self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_queue() {
        let mut buffer = Buffer::default();
        let mut next = 0_u8;
        let mut first = 0_u8;
        for round in 0..50 {
            buffer.append(&[next, next + 1, next + 2]);
            next += 3;
            buffer.drop_front(2 + round % 2);
            first += 2 + u8::try_from(round % 2).unwrap();
            assert_eq!(buffer.bytes(), (first..next).collect::<Vec<_>>());
        }
        buffer.drop_front(1000);
        assert!(buffer.bytes().is_empty() && buffer.bytes.iter().all(|&b| b == 0));
    }
}
