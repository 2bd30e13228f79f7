//! Leaves the caller's session, ties our life to the executor's, waits for the plan and at the gate.

use stockade_launch::{Launch, ToInit, wall};
use stockade_nolibc::{
    Errno, block_all, map_file, new_cgroup_namespace, set_death_signal, set_subreaper, setsid, umask, write,
};

use crate::context::{About, Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    // A shared process group would let `kill(0)` cross the PID namespace.
    setsid()?;
    if context.ground.has(wall::PID) {
        // Our death is the tree's.
        set_death_signal()?;
    } else {
        // Without a namespace of our own we must live to end the tree: the control socket's end tells us.
        set_subreaper()?;
    }
    // Signals are read from a descriptor; as PID 1 we get none from inside that we don't handle.
    block_all()?;
    // Modes in the launch are exact.
    umask(0);
    Ok(())
}

/// Where a parked init waits. Everything above needs no plan.
pub(crate) fn launch(context: &mut Context) -> Result<(), Failure> {
    context.expect(ToInit::Launch)?;
    let memfd = context.donations.first_mut().and_then(Option::take).ok_or(Errno::BADMSG)?;
    let bytes = map_file(&memfd).about(b"launch")?;
    let launch = Launch::read(bytes)
        .map_err(|_| Failure { errno: Errno::BADMSG, subject: b"launch of another version" })?;
    context.launch = Some(launch);
    Ok(())
}

pub(crate) fn gate(context: &mut Context) -> Result<(), Failure> {
    let doors = context.expect(ToInit::Go)?;
    for door in context.donations.iter_mut().take(doors).filter_map(Option::take) {
        // We have one thread and no child yet: all of the tree will be inside.
        write(&door, b"0").about(b"cgroup")?;
    }
    if context.ground.has(wall::CGROUP) {
        new_cgroup_namespace()?;
    }
    Ok(())
}
