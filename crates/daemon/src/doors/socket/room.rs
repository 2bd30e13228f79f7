//! Memory for long answers. A caller that asks for much and reads nothing holds what it asked for; so each connection
//! has so much, and each principal on all of its connections, and waits for its own, and nobody else does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// In [`UNIT`]s: of one connection, which is enough for the longest answer, and of one principal.
pub(super) const CONNECTION: usize = 256;
const EACH: usize = 2048;
const UNIT: usize = 64 << 10;

pub(super) fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).clamp(1, CONNECTION)).unwrap_or(1)
}

#[derive(Debug, Default)]
pub(super) struct Room {
    of: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Room {
    /// As soon as there is some; nothing if the service is going.
    pub(super) async fn take(&self, principal: &str, units: u32) -> Option<OwnedSemaphorePermit> {
        let room = self.room_of(principal);
        room.acquire_many_owned(units).await.ok()
    }

    fn room_of(&self, principal: &str) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        // Users come and go; those of whom nothing is held are made anew.
        of.retain(|name, room| {
            name == principal || room.available_permits() < EACH || Arc::strong_count(room) > 1
        });
        Arc::clone(of.entry(principal.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(EACH))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn each_waits_for_its_own() {
        let room = Room::default();
        let all = room.take("ana", u32::try_from(EACH).unwrap()).await;
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, room.take("ana", 1)).await.is_err());
        assert!(tokio::time::timeout(soon, room.take("ben", 1)).await.is_ok());
        drop(all);
        assert!(room.take("ana", 1).await.is_some());
        drop(room.take("eve", units(usize::MAX)).await);
        assert_eq!(room.of.lock().unwrap().len(), 1, "those that hold nothing are forgotten");
    }
}
