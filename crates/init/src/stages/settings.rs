//! Three small settings: keyring, host name, loopback.

use stockade_launch::wall;
use stockade_nolibc::{join_new_keyring, loopback_up, set_hostname};

use crate::context::{About, Context, Failure};

/// Session keyrings are inherited, and with them the caller's keys.
pub(crate) fn keyring(context: &mut Context) -> Result<(), Failure> {
    if context.ground.has(wall::PRIVILEGES) {
        join_new_keyring()?;
    }
    Ok(())
}

pub(crate) fn hostname(context: &mut Context) -> Result<(), Failure> {
    if context.ground.has(wall::UTS) {
        set_hostname(context.ground.hostname).about(context.ground.hostname)?;
    }
    Ok(())
}

pub(crate) fn network(context: &mut Context) -> Result<(), Failure> {
    if context.ground.has(wall::NET) {
        loopback_up().about(b"lo")?;
    }
    Ok(())
}
