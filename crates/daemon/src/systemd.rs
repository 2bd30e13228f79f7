//! What the service manager hears from us, where there is one.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// `within` is what may pass before we are gone.
pub(crate) fn stopping(within: Duration) {
    let micros = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
    let status = NotifyState::Status("stopping: what runs may end");
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros), status]);
}

pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(reason) => warn!("the clock can't be read: {reason}"),
    }
}

/// Of a reload, too: `status` says how it went.
pub fn reloaded(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// As long as the runtime comes round to this, we are alive. Never comes back.
pub(crate) async fn watchdog() {
    let Some(within) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut beat = tokio::time::interval((within / 3).max(Duration::from_millis(10)));
    loop {
        beat.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(reason) = sd_notify::notify(states) {
        warn!("the service manager can't be told: {reason}");
    }
}
