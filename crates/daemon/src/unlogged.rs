//! What is written when it can be: ends that a full disk did not take, and into the audit log, of which the service is the
//! only writer while it runs, what people change at the command line.

use std::sync::Weak;
use std::time::Duration;

use crate::core::Core;

/// Between two looks at a table that is nearly always empty.
const LOOK: Duration = Duration::from_secs(2);

/// Until the core is gone.
pub(crate) async fn log(core: Weak<Core>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(core) = core.upgrade() else { return };
        core.record.catch_up().await;
        if !core.record.is_failing() {
            core.record.log_changes().await;
        }
    }
}
