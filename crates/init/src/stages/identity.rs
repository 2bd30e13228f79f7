//! Takes on the sandbox's ids. Child, inside the user namespace, all capabilities over it; as host
//! root started us, our own ids are unmapped until here.

use stockade_launch::{ToInit, wall};
use stockade_nolibc::{clear_groups, set_death_signal, set_gid, set_uid};

use crate::context::{Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    if !context.ground.has(wall::USER) {
        return Ok(());
    }
    context.expect(ToInit::Mapped)?;
    take_on(context)?;
    if context.ground.has(wall::PID) {
        // The kernel forgets it when ids change.
        set_death_signal()?;
    }
    Ok(())
}

/// Host root may clear the groups; for an ordinary user the kernel forbids it, and they stay.
pub(super) fn take_on(context: &Context) -> Result<(), Failure> {
    if context.ground.is_root {
        clear_groups()?;
    }
    set_gid(context.ground.gid)?;
    set_uid(context.ground.uid)?;
    Ok(())
}
