//! Takes on the sandbox's ids. Child, inside the user namespace, all capabilities over it; as host
//! root started us, our own ids are unmapped until here.

use stockade_launch::{ToInit, wall};
use stockade_nolibc::{clear_groups, set_gid, set_uid};

use crate::context::{Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    if !context.launch.has(wall::USER) {
        return Ok(());
    }
    context.expect(ToInit::Mapped)?;
    if context.launch.clear_groups {
        clear_groups()?;
    }
    set_gid(context.launch.gid)?;
    set_uid(context.launch.uid)?;
    Ok(())
}
