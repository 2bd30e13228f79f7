//! Memory that several connections have together: what one user sends and does not finish is bounded over all of that
//! user's connections, so that many of them are not many times as much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of an unfinished frame that count for nothing: small calls are taken whatever else is under way.
const FREE: usize = 64 * 1024;

/// A bound, and what is used of it. Clones are the same.
#[derive(Debug, Clone)]
pub struct Share {
    used: Arc<AtomicUsize>,
    bound: usize,
}

impl Share {
    pub fn new(bound: usize) -> Self {
        Self { used: Arc::default(), bound }
    }
}

/// One connection's part of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    of: Option<Share>,
    bytes: usize,
}

impl Part {
    pub(crate) fn new(of: Option<Share>) -> Self {
        Self { of, bytes: 0 }
    }

    /// So many bytes lack their end; the bound, where that is too much.
    pub(crate) fn set(&mut self, unfinished: usize) -> Result<(), usize> {
        let Some(share) = &self.of else { return Ok(()) };
        let bytes = unfinished.saturating_sub(FREE);
        let before = std::mem::replace(&mut self.bytes, bytes);
        let used = match bytes.checked_sub(before) {
            Some(0) => return Ok(()),
            Some(more) => share.used.fetch_add(more, Ordering::Relaxed).saturating_add(more),
            None => {
                share.used.fetch_sub(before - bytes, Ordering::Relaxed);
                return Ok(());
            }
        };
        if used <= share.bound { Ok(()) } else { Err(share.bound) }
    }

    pub(crate) fn clear(&mut self) {
        if let Some(share) = &self.of {
            share.used.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_together_and_come_back() {
        let share = Share::new(1000);
        let part = || Part::new(Some(share.clone()));
        let (mut one, mut two, mut small) = (part(), part(), part());
        assert_eq!(one.set(FREE + 600), Ok(()));
        assert_eq!(two.set(FREE + 400), Ok(()));
        assert_eq!(two.set(FREE + 401), Err(1000));
        assert_eq!(small.set(FREE), Ok(()), "small ones are free");
        drop(two);
        assert_eq!(small.set(FREE + 400), Ok(()));
        assert_eq!(one.set(0), Ok(()));
        assert_eq!(share.used.load(Ordering::Relaxed), 400);
        drop((one, small));
        assert_eq!(share.used.load(Ordering::Relaxed), 0);
    }
}
