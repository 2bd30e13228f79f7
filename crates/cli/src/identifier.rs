//! A name for one execution: time first, so that names sort; then enough randomness to be unique.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn execution() -> String {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let mut random = [0; 8];
    // A short read leaves zeros: the time and the pid still tell executions apart.
    let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    debug_assert_eq!(filled, random.len());
    format!("{millis:012x}-{:08x}-{:016x}", std::process::id(), u64::from_ne_bytes(random))
}
