//! Sandboxes that are born of a stem ([`super::stem`]): ahead, for whoever comes, or for a request that waits.

use std::os::fd::AsFd as _;

use stockade_policy::{Ground, Object};
use stockade_proto::Stdin;

use super::encode::Given;
use super::stem::{Awaited, Stem, Template};
use super::{Newborn, Parked, Running, StandsOn, Streams, control_pair, fault, refuse_limits, tree_kill};
use crate::Abort;
use crate::cgroup::{self, Entry, Group};
use crate::kept::Kept;

/// Whether a stem is there for some plan of that ground and workspace.
pub(crate) fn stem_stands(
    ground: &Ground,
    workspace: &Object,
    host: Option<&cgroup::Host>,
    kept: &Kept,
) -> bool {
    kept.stems.stand_on(ground, workspace, &kept.mounts) && can_be_born(ground, host)
}

/// Whether its groups can be entered so.
fn can_be_born(ground: &Ground, host: Option<&cgroup::Host>) -> bool {
    let entry = entry_of_the_born(Given::of_this_host(host, false));
    host.is_none_or(|host| host.takes(&ground.limits, tree_kill(ground), entry))
}

/// A sandbox that waits for its plan. None where no stem is for it, or that one can't do it; for a request that waits
/// none is made.
pub(crate) fn park_on(
    template: Template,
    stdin: Stdin,
    host: Option<&cgroup::Host>,
    kept: &Kept,
    awaited: Awaited,
) -> Option<Parked> {
    if !can_be_born(template.ground(), host) {
        return None;
    }
    let given = Given::of_this_host(host, false);
    let stem = match awaited {
        Awaited::Now => kept.stems.standing(&template, &kept.mounts),
        Awaited::Later => kept.stems.find(&template, given, &kept.mounts),
    }?;
    let (limits, tree) = (template.ground().limits.clone(), tree_kill(template.ground()));
    let entry = entry_of_the_born(given);
    let born = || {
        let group = host.map(|host| host.begin(&limits, tree, entry, Some(&kept.groups)));
        let group = group.transpose().map_err(refuse_limits)?;
        let (running, pid) = born_of(&stem, &template, group, stdin, awaited)?;
        let running = Some(running);
        let (mounts, stands_on) = (Some(stem.mounts), StandsOn::Template(template));
        let (walled, user_namespace, bears) = (None, None, false);
        let mut parked =
            Parked { running, stands_on, walled, stdin, given, mounts, user_namespace, bears, entry };
        parked.settle(pid)?;
        Ok::<_, Abort>(parked)
    };
    // What is wrong is told by the sandbox that is made in its place.
    let failed = |_: &Abort| {
        // Not for what the host has too little of at the moment.
        if !stem.is_well() {
            kept.stems.forget(&stem);
        }
    };
    born().inspect_err(failed).ok()
}

fn born_of(
    stem: &Stem,
    template: &Template,
    group: Option<Group>,
    stdin: Stdin,
    awaited: Awaited,
) -> Result<(Running, u32), Abort> {
    let streams = Streams::new(stdin)?;
    let (control, init_control) = control_pair()?;
    let network = stem.lend();
    let [stdin, stdout, stderr] = streams.theirs();
    let cgroup = group.as_ref().and_then(Group::clone_fd);
    let (pid, pidfd) = stem
        .bear([stdin, stdout, stderr, init_control.as_fd()], network.as_ref(), cgroup, awaited, template)
        .map_err(|error| fault("the sandbox process could not be created", &error))?;
    let running = Running { group, network, ..Running::new(Newborn { pid, pidfd, control }, streams) };
    Ok((running, pid))
}

/// A root's stem is the sandbox's user, who has no right to root's groups: its inits go in by themselves.
pub(super) const fn entry_of_the_born(given: Given) -> Entry {
    if given.is_root { Entry::Doors } else { Entry::Birth }
}
