//! Sandboxes whose namespaces were begun before this program was (`stockade_sys::ahead`): their seed is told who it is, and
//! becomes the init of the sandbox or bears it. Next: `Parked::launch`, which hears of a birth.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use stockade_launch::{Birth, BirthNetwork, FromInit, MAX_MESSAGE, SEEDED, Stage, ToInit};
use stockade_policy::Ground;
use stockade_proto::Stdin;
use stockade_sys::ahead::{Ahead, Ends};

use super::encode::{self, Given};
use super::identity::{give_identity, has_news, has_spoken, open_proc};
use super::stem::{PATIENCE, end, no_answer, pidfd_of};
use super::{
    Newborn, Parked, Running, StandsOn, Streams, hear, receive, refuse_limits, refuse_spawn, tell, tree_kill,
    wait_for_word,
};
use crate::Abort;
use crate::cgroup::{self, Entry, Group};

/// None where it is not for that ground, or does not work: then there is nothing left of it, and what is wrong is said by the
/// init that is started in its place.
pub(crate) fn park_on_seed(
    seed: Ahead,
    ground: &Arc<Ground>,
    stdin: Stdin,
    host: Option<&cgroup::Host>,
) -> Result<Option<Parked>, Abort> {
    let entry = if seed.is_first() { Entry::Doors } else { Entry::Birth };
    let (limits, tree) = (&ground.limits, tree_kill(ground));
    let enters = host.is_none_or(|host| host.takes(limits, tree, entry));
    if encode::walls(ground) & SEEDED != SEEDED || !enters {
        return Ok(None);
    }
    let given = Given::of_this_host(host, false);
    let memfd = encode::ground(ground, given)?;
    let streams = Streams::new(stdin)?;
    let group = host.map(|host| host.begin(limits, tree, entry, None));
    let group = group.transpose().map_err(refuse_limits)?;
    let bears = !seed.is_first();
    let Some((newborn, user_namespace)) = identify(seed, ground, given) else { return Ok(None) };
    let cgroup = group.as_ref().and_then(Group::clone_fd);
    let birth =
        Birth { network: BirthNetwork::Inherited, cgroup: cgroup.is_some(), awaited: true, hides: false };
    let [stdin_end, stdout, stderr] = streams.theirs();
    let mut fds = vec![stdin_end, stdout, stderr, memfd.as_fd()];
    fds.extend(cgroup);
    let told = tell(&newborn.control, ToInit::Bear(birth), &fds);
    let running = Some(Running { group, ..Running::new(newborn, streams) });
    let (stands_on, walled, mounts) = (StandsOn::Ground(Arc::clone(ground)), None, None);
    let parked = Parked { running, stands_on, walled, stdin, given, mounts, user_namespace, bears, entry };
    told?;
    parked.show_ground()?;
    Ok(Some(parked))
}

/// With the user namespace, as `give_identity` has it.
fn identify(seed: Ahead, ground: &Ground, given: Given) -> Option<(Newborn, Option<OwnedFd>)> {
    let pid = seed.pid();
    let Ends { pidfd, control } = seed.hand_over()?;
    let lives = || (has_news(pidfd.as_fd()) == Ok(false) && !has_spoken(control.as_fd())).then_some(());
    let identified = || {
        let proc = open_proc(pid).ok()?;
        // Or the number was somebody else's already.
        lives()?;
        let user_namespace = give_identity(ground, proc.as_fd(), given).ok()?;
        // Host root can map the ids of a dead one, too.
        lives()?;
        Some(user_namespace)
    };
    let Some(user_namespace) = identified() else {
        drop(control);
        end(&pidfd);
        return None;
    };
    Some((Newborn { pid, pidfd, control }, user_namespace))
}

fn birth(word: Option<FromInit<'_>>) -> io::Result<u32> {
    match word {
        Some(FromInit::Born { pid }) => u32::try_from(pid).map_err(|_| no_answer()),
        Some(
            FromInit::Failed { .. }
            | FromInit::Done
            | FromInit::Started
            | FromInit::Offered { .. }
            | FromInit::Ended { .. },
        )
        | None => Err(no_answer()),
    }
}

/// The init that the seed in `running` has borne takes its place there, unless it has failed: what it says of that is the
/// supervisor's to hear. That it can't be borne is as if it could not be started.
pub(super) fn be_born(running: &mut Running) -> Result<(), Abort> {
    if next_is_a_failure(&running.control).map_err(|error| refuse_spawn(&error))? {
        return Ok(());
    }
    let born = hear(&running.control, PATIENCE, birth).and_then(pidfd_of);
    let seed = std::mem::replace(&mut running.pidfd, born.map_err(|error| refuse_spawn(&error))?);
    // It has said its last word.
    match waitid(WaitId::PidFd(seed.as_fd()), WaitIdOptions::EXITED) {
        Ok(_) | Err(_) => Ok(()),
    }
}

fn next_is_a_failure(control: &OwnedFd) -> io::Result<bool> {
    wait_for_word(control, PATIENCE)?;
    let mut packet = [0; MAX_MESSAGE];
    let length = receive(control, &mut packet, RecvFlags::PEEK)?;
    match FromInit::decode(&packet[..length]) {
        Some(FromInit::Failed { stage: Stage::Bear, errno, .. }) => Err(io::Error::from_raw_os_error(errno)),
        Some(FromInit::Failed { .. }) => Ok(true),
        Some(_) | None => Ok(false),
    }
}

/// What the seed in `running`, which is dead, has borne before: it says so, unless it was ended before it could. Then it is
/// known by its group, and elsewhere ends by itself when our end of its socket is closed.
pub(super) fn end_the_born(running: &Running) {
    let said = |word: Option<FromInit<'_>>| match word {
        Some(FromInit::Born { pid }) => Ok(u32::try_from(pid).ok()),
        Some(_) => Ok(None),
        None => Err(no_answer()),
    };
    while let Ok(word) = hear(&running.control, Duration::ZERO, said) {
        if let Some(born) = word.and_then(|pid| pidfd_of(pid).ok()) {
            end(&born);
        }
    }
    let Some(group) = &running.group else { return };
    match group.kill().and_then(|()| group.wait_empty(Instant::now() + PATIENCE)) {
        // What is left is swept by whoever comes next.
        Ok(_) | Err(_) => {}
    }
}
