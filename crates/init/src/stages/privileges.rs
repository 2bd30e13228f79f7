//! Gives up every capability, for good, and the ways to gain one.

use stockade_launch::wall;
use stockade_nolibc::{drop_bounding_set, drop_capabilities, no_new_privs};

use super::identity::take_on;
use crate::context::{Context, Failure, Origin};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    if !context.ground.has(wall::PRIVILEGES) {
        return Ok(());
    }
    no_new_privs()?;
    if context.ground.has(wall::USER) {
        // A stem has done it for all that are born of it, and a seed for itself: they only hold what they have.
        if !context.ground.is_stems() && context.origin == Origin::Exec {
            drop_bounding_set()?;
        }
        drop_capabilities()?;
    } else if context.ground.is_root {
        // Leaving uid 0 empties the sets; the bounding set must go while we may still touch it.
        drop_bounding_set()?;
        take_on(context)?;
    }
    // An ordinary user without a namespace has nothing to drop, and verify says whether that is true.
    Ok(())
}
