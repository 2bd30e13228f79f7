//! The stages, in the order in which they are applied. The order is the security argument:
//! each row needs what the rows above it made and nothing that the rows below it take away.

mod egress;
mod exec;
mod identity;
mod landlock;
mod pivot;
mod place;
mod privileges;
mod root;
mod seccomp;
mod session;
mod settings;
mod verify;

use stockade_launch::Stage;

pub(crate) use place::{Places, ShortPath};
pub(crate) use session::{apply_to_the_born, hurry};

use crate::context::{Context, Failure};

type Apply = fn(&mut Context) -> Result<(), Failure>;

/// What inits of one stem have in common, and an init alone does first.
pub(crate) const GROUNDWORK: [(Stage, Apply); 5] = [
    // Before anything that can wait: if the executor dies, so do we; nobody may look into us.
    (Stage::Session, session::apply),
    // Everything below happens in them. They belong to the user namespace that we were born in.
    (Stage::Namespaces, session::namespaces),
    // The maps exist once the executor says so; ids decide what may be opened below.
    (Stage::Identity, identity::apply),
    (Stage::Hostname, settings::hostname),
    // Needs the host's paths and capabilities over the mount namespace.
    (Stage::Ground, root::ground),
];

/// What is one execution's alone.
pub(crate) const EXECUTION: [(Stage, Apply); 14] = [
    // While keyctl is still allowed.
    (Stage::Keyring, settings::keyring),
    // Needs capabilities over the network namespace.
    (Stage::Network, settings::network),
    // Needs the PID namespace for its proc; on an init alone the ground has all of it.
    (Stage::Own, root::own),
    // Everything above is the same for every plan of a host and profile; an init parks here.
    (Stage::Launch, session::launch),
    (Stage::Root, root::apply),
    // After this line no host path can be named.
    (Stage::Pivot, pivot::apply),
    // Into the cgroups that the executor has made meanwhile, before anything of the command's is charged to anybody; their namespace is made there.
    (Stage::Gate, session::gate),
    // Needs capabilities over the network namespace, and the ports of the plan.
    (Stage::Egress, egress::apply),
    // Everything above needed privilege, nothing below does.
    (Stage::Privileges, privileges::apply),
    // Needs no_new_privs, and the paths of the new root.
    (Stage::Landlock, landlock::apply),
    // Last wall: it refuses what the stages above did.
    (Stage::Seccomp, seccomp::apply),
    // Ask the kernel, don't trust the stages.
    (Stage::Verify, verify::apply),
    // All walls stand: an init may wait here, too, for a command that it knows nothing of.
    (Stage::Order, session::order),
    (Stage::Exec, exec::apply),
];
