//! Takes what people change at the command line into the audit log, of which the service is the only writer while it runs.

use std::sync::Weak;
use std::time::Duration;

use tracing::error;

use crate::core::Core;
use crate::denied::Denied;
use crate::record::chain;

/// Between two looks at a table that is nearly always empty.
const LOOK: Duration = Duration::from_secs(2);
/// After a failure: a full disk is not helped by haste, nor is the log by its being told.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Until the core is gone.
pub(crate) async fn log(core: Weak<Core>) {
    let mut pause = LOOK;
    loop {
        tokio::time::sleep(pause).await;
        let Some(core) = core.upgrade() else { return };
        let logged = core.record.blocking(|store| {
            let logged = store.unlogged.log(&store.audit);
            Ok::<_, Denied>(logged.map_err(|reason| error!("{}", chain(&reason))).is_ok())
        });
        pause = if logged.await == Ok(true) { LOOK } else { AFTER_FAILURE };
    }
}
