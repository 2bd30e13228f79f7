//! A stem: an init that stands on its ground and starts other inits there, each in PID, mount, IPC and network namespaces
//! of its own and as a child of the executor's. What it has in common with them, the user namespace and the mounts, is
//! made once. It holds nothing of any execution, and ends with its control socket.

use stockade_launch::{Birth, BirthNetwork, CONTROL_FD, FromInit, Stage, ToInit, wall};
use stockade_nolibc::{
    Eagerness, Errno, Namespaces, bear, change_eagerness, close_all_from, drop_bounding_set, enter_network,
    enter_new, exit, inherited, loopback_up, receive,
};

use crate::context::{Context, Failure};
use crate::stages::{apply_to_the_born, hurry};

/// Comes back in each init that is born, and in the stem itself only with a failure.
pub(crate) fn until_born(context: &mut Context) -> Result<(), Failure> {
    if context.ground.has(wall::PRIVILEGES) {
        // Nothing is exec'd here but commands, and those are to gain none: capabilities that we have stay.
        drop_bounding_set()?;
    }
    context.inherited = Some(inherited()?);
    // Somebody waits for an answer; for what is made here nobody does yet. No wall: where the host does not allow it,
    // nobody is less eager than others.
    context.is_patient = change_eagerness(Eagerness::Usual, Eagerness::Patient).unwrap_or_default();
    context.say(FromInit::Done)?;
    loop {
        let mut packet = [0; 64];
        let received = receive(&context.control, &mut packet, &mut context.donations)?;
        if received.length == 0 {
            exit(0);
        }
        let done = match ToInit::decode(&packet[..received.length]) {
            Some(ToInit::Network) => enter_new_network(),
            Some(ToInit::Bear(birth)) if received.donations == birth.descriptors() => {
                match give_birth(context, birth) {
                    Ok(None) => return be_born(context, birth),
                    Ok(Some(pid)) => Ok(FromInit::Born { pid }),
                    Err(errno) => Err(errno),
                }
            }
            Some(_) | None => return Err(Errno::BADMSG.into()),
        };
        for donation in &mut context.donations[..received.donations] {
            drop(donation.take());
        }
        context.say(done.unwrap_or_else(|errno| FromInit::Failed {
            stage: Stage::Bear,
            errno: errno.0,
            subject: b"",
        }))?;
    }
}

fn enter_new_network() -> Result<FromInit<'static>, Errno> {
    enter_new(Namespaces::NET)?;
    loopback_up()?;
    Ok(FromInit::Done)
}

/// `None` in the child.
fn give_birth(context: &Context, birth: Birth) -> Result<Option<i32>, Errno> {
    let own = Namespaces::PID.and(Namespaces::MOUNT).and(Namespaces::IPC);
    let namespaces = match birth.network {
        BirthNetwork::Inherited => own,
        BirthNetwork::New => own.and(Namespaces::NET),
        BirthNetwork::Given => {
            enter_network(context.donations.get(4).and_then(Option::as_ref).ok_or(Errno::BADMSG)?)?;
            own
        }
    };
    let last = context.donations.get(birth.descriptors() - 1).and_then(Option::as_ref);
    bear(namespaces, last.filter(|_| birth.cgroup))
}

/// Child: PID 1 of new namespaces, with the stem's memory and capabilities. Its descriptors become the usual ones.
fn be_born(context: &mut Context, birth: Birth) -> Result<(), Failure> {
    for (donation, number) in context.donations[..4].iter_mut().zip(0..=CONTROL_FD) {
        let donation = donation.take().ok_or(Errno::BADMSG)?;
        // Its own number is above these, and closed below.
        donation.become_number(number)?;
    }
    context.donations[4..birth.descriptors()].iter_mut().for_each(|donation| drop(donation.take()));
    close_all_from(CONTROL_FD.cast_unsigned() + 1)?;
    context.loopback_down = birth.network == BirthNetwork::New;
    context.keeps_stash = birth.hides;
    if birth.awaited {
        hurry(context)?;
    }
    apply_to_the_born(context)
}
