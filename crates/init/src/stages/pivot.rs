//! Enters the new root, lets go of the old one, and makes the root itself read-only. An init that was born of a stem is
//! in there already, and lets go of what the stem kept for it.

use stockade_nolibc::{Attr, Fd, chdir, fchdir, pivot_here, set_attr, unmount, unmount_old};

use crate::context::{About, Context, Failure, NewRoot};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let Some(NewRoot { places, .. }) = context.root.take() else {
        return Ok(());
    };
    if !context.ground.is_stems() {
        return enter(&places.root);
    }
    if context.keeps_stash { let_go_of_stash(context) } else { Ok(()) }
}

pub(super) fn let_go_of_stash(context: &Context) -> Result<(), Failure> {
    unmount(context.ground.stash).about(context.ground.stash.to_bytes())
}

pub(super) fn enter(root: &Fd) -> Result<(), Failure> {
    fchdir(root)?;
    pivot_here()?;
    unmount_old()?;
    set_attr(root, Attr::RDONLY)?;
    // A working directory of the old world would be a door.
    chdir(c"/")?;
    Ok(())
}
