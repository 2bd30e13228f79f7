//! The note that an execution runs, for those that run for a while: the record of a short one says so with its end, which is
//! one transaction less for each. One task looks after all of them, so that a short one costs no timer either.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::core::Core;
use crate::execution::Age;

/// How long an execution runs at least before its row says so, and after twice as much it does. Whoever looks at it
/// sooner sees it all the same.
const WORTH_A_NOTE: Duration = Duration::from_millis(100);

/// Until the core is gone. `begun` is told of each one that begins to run.
pub(crate) async fn note(core: Weak<Core>, begun: Arc<Notify>) {
    loop {
        begun.notified().await;
        tokio::time::sleep(WORTH_A_NOTE).await;
        let Some(core) = core.upgrade() else { return };
        for execution in core.in_hand.all() {
            match execution.age(WORTH_A_NOTE) {
                Age::Old { started_ms } => {
                    let record = core.record.clone();
                    tokio::spawn(async move { record.running(execution.id, started_ms).await });
                }
                Age::Young => begun.notify_one(),
                Age::Known => {}
            }
        }
    }
}
