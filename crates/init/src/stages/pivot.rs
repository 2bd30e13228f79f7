//! Enters the new root, lets go of the old one, and makes the root itself read-only.

use stockade_nolibc::{Attr, chdir, fchdir, pivot_here, set_attr, unmount_old};

use crate::context::{Context, Failure, NewRoot};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let Some(NewRoot { places, .. }) = context.root.take() else {
        return Ok(());
    };
    let root = places.root;
    fchdir(&root)?;
    pivot_here()?;
    unmount_old()?;
    set_attr(&root, Attr::RDONLY)?;
    // A working directory of the old world would be a door.
    chdir(c"/")?;
    Ok(())
}
