//! The thread's time is the execution's. Whatever ran since, the runtime's own work and other tasks among it, is charged
//! when a task has had its turn; while more was used than there is, the thread rests, and with it all that it carries.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use stockade_charge::Charge;

/// Inside the runtime.
pub(crate) fn spawn(charge: &Arc<Charge>, task: impl Future<Output = ()> + Send + 'static) {
    let charge = Arc::clone(charge);
    tokio::spawn(async move {
        let mut task = pin!(task);
        poll_fn(|context| {
            let polled = task.as_mut().poll(context);
            // No lock is held between two turns. The end of the execution closes the account.
            charge.pass(|| false);
            polled
        })
        .await;
    });
}
