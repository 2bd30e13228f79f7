//! Forgets executions by age and size, a step at a time, so that nobody waits behind it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::info;

use crate::core::Core;
use crate::record::failed;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(60);
/// Between two steps of one look.
const BREATH: Duration = Duration::from_millis(100);
/// After a failure, which the record has logged: a full disk is not helped by haste.
const AFTER_FAILURE: Duration = Duration::from_secs(600);

/// Until the core is gone.
pub(crate) async fn forget(core: Weak<Core>) {
    let mut pause = LOOK;
    loop {
        tokio::time::sleep(pause).await;
        let Some(core) = core.upgrade() else { return };
        pause = step(&core).await;
    }
}

async fn step(core: &Arc<Core>) -> Duration {
    let keep = core.config().keep;
    let removed = core
        .record
        .blocking(move |store| store.executions.retain(keep).map_err(|error| failed(&error)))
        .await;
    match removed {
        Ok(removed) => {
            if removed.executions > 0 {
                info!(executions = removed.executions, bytes = removed.bytes, "old executions were removed");
            }
            if removed.more { BREATH } else { LOOK }
        }
        Err(_) => AFTER_FAILURE,
    }
}
