//! Leaves the caller's session and namespaces, ties our life to the executor's, waits for the plan, at the gate, and for
//! the command.

use stockade_launch::{FromInit, HEAD, Launch, MAX_ORDER, Order, ToInit, wall};
use stockade_nolibc::{
    Eagerness, Errno, Namespaces, block_all, change_eagerness, enter_new, heed_children, lasting_bytes,
    map_file, set_death_signal, set_own_group, set_subreaper, setsid, umask, write,
};

use super::verify::are_mounted;
use crate::context::{About, Context, Failure, Origin};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    // A shared process group would let `kill(0)` cross the PID namespace.
    if context.origin != Origin::Seed {
        setsid()?;
    }
    tie(context)
}

/// Of an init that is born of a stem: the stem's session is nobody's but theirs, and has no terminal. The kernel takes longer
/// for a session than for all the rest of this.
pub(crate) fn apply_to_the_born(context: &mut Context) -> Result<(), Failure> {
    set_own_group()?;
    tie(context)
}

fn tie(context: &Context) -> Result<(), Failure> {
    if context.ground.has(wall::PID) {
        // Our death is the tree's.
        set_death_signal()?;
    } else {
        // Without a namespace of our own we must live to end the tree: the control socket's end tells us.
        set_subreaper()?;
    }
    // Signals are read from a descriptor; as PID 1 we get none from inside that we don't handle.
    block_all()?;
    heed_children()?;
    // Modes in the launch are exact.
    umask(0);
    Ok(())
}

/// What we were not born in. The executor, which waits for our birth, goes on while these are made: a network
/// namespace takes longer than the rest of us together.
pub(crate) fn namespaces(context: &mut Context) -> Result<(), Failure> {
    if context.origin != Origin::Exec {
        return Ok(());
    }
    let shared = [(wall::MOUNT, Namespaces::MOUNT), (wall::UTS, Namespaces::UTS)];
    // Those of a stem's inits they are born in.
    let own = [(wall::NET, Namespaces::NET), (wall::PID, Namespaces::IPC)];
    let own = own.into_iter().filter(|_| !context.ground.is_stems());
    let wanted = shared.into_iter().chain(own).filter(|(wall, _)| context.ground.has(*wall));
    let wanted = wanted.fold(Namespaces::NONE, |all, (_, one)| all.and(one));
    if wanted != Namespaces::NONE {
        enter_new(wanted)?;
    }
    Ok(())
}

/// Where a parked init waits. Everything above needs no plan.
pub(crate) fn launch(context: &mut Context) -> Result<(), Failure> {
    context.expect(ToInit::Launch)?;
    let launch = Launch::read(donated_file(context, b"launch")?)
        .map_err(|_| Failure { errno: Errno::BADMSG, subject: b"launch of another version" })?;
    if launch.order.is_some() {
        hurry(context)?;
    }
    context.launch = Some(launch);
    Ok(())
}

/// Where an init waits whose walls were built for whatever comes. Then they are looked at again: what a mount of the plan
/// stands on is the workspace's, and if that was taken away meanwhile so was the mount.
pub(crate) fn order(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    if launch.order.is_some() {
        context.order = launch.order;
        return Ok(());
    }
    // As later: what can't be seen from here can't be waited with.
    still_mounted(context, launch)?;
    let packet = lasting_bytes(HEAD + MAX_ORDER)?;
    // The order says that it was taken.
    if context.offered[0].is_some() {
        context.offer_sockets()?;
    } else {
        context.say(FromInit::Done)?;
    }
    let (ToInit::Order, received) = context.next_into(packet)? else { return Err(Errno::BADMSG.into()) };
    hurry(context)?;
    let bytes = match received.donations {
        0 => packet.get(HEAD..received.length).ok_or(Errno::BADMSG)?,
        _ => donated_file(context, b"order")?,
    };
    let order = Order::read(bytes)
        .map_err(|_| Failure { errno: Errno::BADMSG, subject: b"order of another version" })?;
    context.order = Some(order);
    context.offered = [None, None, None];
    still_mounted(context, launch)
}

fn still_mounted(context: &Context, launch: Launch<'static>) -> Result<(), Failure> {
    if context.ground.has(wall::MOUNT) { are_mounted(launch.mounts) } else { Ok(()) }
}

/// The first descriptor of a packet.
fn donated_file(context: &mut Context, name: &'static [u8]) -> Result<&'static [u8], Failure> {
    let memfd = context.donations.first_mut().and_then(Option::take).ok_or(Errno::BADMSG)?;
    map_file(&memfd).about(name)
}

/// From here on somebody waits: as eager as the executor is, and so the command.
pub(crate) fn hurry(context: &mut Context) -> Result<(), Failure> {
    if core::mem::take(&mut context.is_patient) {
        change_eagerness(Eagerness::Patient, Eagerness::Usual)?;
    }
    Ok(())
}

pub(crate) fn gate(context: &mut Context) -> Result<(), Failure> {
    let (ToInit::Go(wanted), doors) = context.next()? else { return Err(Errno::BADMSG.into()) };
    // One that is not there would be a limit that does not hold.
    if usize::try_from(wanted) != Ok(doors) {
        return Err(Failure { errno: Errno::BADMSG, subject: b"a cgroup's door is missing" });
    }
    for door in context.donations.iter_mut().take(doors).filter_map(Option::take) {
        // We have one thread and no child yet: all of the tree will be inside.
        write(&door, b"0").about(b"cgroup")?;
    }
    if context.ground.has(wall::CGROUP) {
        enter_new(Namespaces::CGROUP)?;
    }
    Ok(())
}
