//! Gives up every capability, for good, and the ways to gain one.

use stockade_launch::wall;
use stockade_nolibc::{drop_capabilities, no_new_privs};

use crate::context::{Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    if !context.launch.has(wall::PRIVILEGES) {
        return Ok(());
    }
    no_new_privs()?;
    // Without a user namespace an ordinary user has nothing to drop, and may not touch the bounding set.
    if context.launch.has(wall::USER) {
        drop_capabilities()?;
    }
    Ok(())
}
