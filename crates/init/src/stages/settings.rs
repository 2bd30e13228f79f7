//! Three small settings: keyring, host name, loopback.

use stockade_launch::wall;
use stockade_nolibc::{Errno, join_new_keyring, loopback_up, pause, set_hostname};

use crate::context::{About, Context, Failure};

/// A user has 200 keys, and the kernel takes those of executions that have ended back when it has the time: on a busy
/// machine another one waits for that, two seconds at most.
const TRIES: u32 = 200;
const PAUSE_MS: u32 = 10;

/// Session keyrings are inherited, and with them the caller's keys.
pub(crate) fn keyring(context: &mut Context) -> Result<(), Failure> {
    if !context.ground.has(wall::PRIVILEGES) {
        return Ok(());
    }
    for _ in 0..TRIES {
        match join_new_keyring() {
            Err(Errno::DQUOT) => pause(PAUSE_MS)?,
            joined => return Ok(joined?),
        }
    }
    Err(Errno::DQUOT.into())
}

pub(crate) fn hostname(context: &mut Context) -> Result<(), Failure> {
    if context.ground.has(wall::UTS) {
        set_hostname(context.ground.hostname).about(context.ground.hostname)?;
    }
    Ok(())
}

pub(crate) fn network(context: &mut Context) -> Result<(), Failure> {
    if context.loopback_down {
        loopback_up().about(b"lo")?;
    }
    Ok(())
}
