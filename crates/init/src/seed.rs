//! A seed: an init that is started without a ground, before anybody knows what for. It makes the namespaces that every sandbox has, and waits
//! for its ground; then it goes on as one that was started with it. Where it is not PID 1 already, a cgroup to be born in may
//! come with the ground: then the init is a copy of it, as PID 1 of a new namespace and a child of the executor's, and the
//! seed ends, as it does with its control socket.

use stockade_launch::{Birth, BirthNetwork, CONTROL_FD, FromInit, GROUND_FD, MAX_MESSAGE, Stage, ToInit};
use stockade_nolibc::{
    Errno, Fd, Inherited, Namespaces, bear, drop_bounding_set, enter_new, exit, getpid, inherited,
    loopback_up, receive, send, set_death_signal, setsid,
};

use crate::context::{Failure, Origin};

/// stdin, stdout, stderr, ground, cgroup.
const MOST_DONATIONS: usize = 5;

/// Comes back in what has become the init, and with a failure.
pub(crate) fn until_born() -> Result<(Origin, Inherited), (Stage, Failure)> {
    let at = |stage| move |errno: Errno| (stage, Failure::from(errno));
    setsid().and_then(|()| set_death_signal()).map_err(at(Stage::Session))?;
    let shared = Namespaces::MOUNT.and(Namespaces::UTS).and(Namespaces::IPC).and(Namespaces::NET);
    enter_new(shared).map_err(at(Stage::Namespaces))?;
    loopback_up().map_err(at(Stage::Network))?;
    // Nothing is exec'd here but commands, and those are to gain none: capabilities that we have stay.
    drop_bounding_set().map_err(at(Stage::Privileges))?;
    let inherited = inherited().map_err(at(Stage::Verify))?;
    Ok((born().map_err(at(Stage::Bear))?, inherited))
}

fn born() -> Result<Origin, Errno> {
    let control = Fd::inherited(CONTROL_FD);
    let mut donations = [const { None }; MOST_DONATIONS];
    let mut packet = [0; 64];
    let received = receive(&control, &mut packet, &mut donations)?;
    if received.length == 0 {
        // Nobody needs it.
        exit(0);
    }
    let Some(ToInit::Bear(Birth { network: BirthNetwork::Inherited, cgroup, .. })) =
        ToInit::decode(&packet[..received.length])
    else {
        return Err(Errno::BADMSG);
    };
    let [stdin, stdout, stderr, ground, group] = donations;
    let origin = if getpid() == 1 { Origin::Seed } else { Origin::Born };
    // Who is there already can't be born anywhere.
    if cgroup != group.is_some() || (cgroup && origin == Origin::Seed) {
        return Err(Errno::BADMSG);
    }
    if origin == Origin::Born
        && let Some(pid) = bear(Namespaces::PID, group.as_ref())?
    {
        let mut buffer = [0; MAX_MESSAGE];
        let length = FromInit::Born { pid }.encode(&mut buffer);
        match send(&control, &buffer[..length]) {
            Ok(()) | Err(_) => exit(0),
        }
    }
    for (donation, number) in [(stdin, 0), (stdout, 1), (stderr, 2), (ground, GROUND_FD)] {
        donation.ok_or(Errno::BADMSG)?.become_number(number)?;
    }
    Ok(origin)
}
