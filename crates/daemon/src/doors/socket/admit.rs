//! Who may come in: our own user and root, and the users and groups that the configuration names. What the kernel
//! says of a socket's other end is its user and first group. Its other groups can't be asked for without unsafe
//! code, so the user's groups are those of /etc/group, as for whoever logs in anew.

use stockade_proto::Code;
use stockade_rpc::{Caller, Error};
use tracing::info;

use crate::config::names;
use crate::core::Core;
use crate::denied::Denied;
use crate::pipeline::Door;
use crate::principal::{Principal, Scope};

const ROOT: u32 = 0;

pub(super) fn admit(core: &Core, caller: Caller) -> Result<Principal, Error> {
    let own = rustix::process::geteuid().as_raw();
    if [ROOT, own].contains(&caller.uid) {
        return Ok(Principal::new(name(caller.uid), [Scope::Admin, Scope::Execute, Scope::Read]));
    }
    let config = core.config();
    let Some(door) = &config.socket else { return Err(refused(core, caller)) };
    let by_group = || names::groups_of(caller.uid).iter().any(|gid| door.gids.contains(gid));
    let listed = door.uids.contains(&caller.uid) || door.gids.contains(&caller.gid);
    if listed || (!door.gids.is_empty() && by_group()) {
        Ok(Principal::new(name(caller.uid), [Scope::Execute, Scope::Read]))
    } else {
        Err(refused(core, caller))
    }
}

fn name(uid: u32) -> String {
    format!("uid:{uid}")
}

fn refused(core: &Core, caller: Caller) -> Error {
    info!(uid = caller.uid, gid = caller.gid, pid = caller.pid, "a caller was turned away");
    let Caller { uid, gid, .. } = caller;
    let (message, remedy) = (
        format!("uid {uid} (gid {gid}) may not use this service"),
        "add it to `uids` or `gids` of `[socket]` in its configuration",
    );
    let told = Error::refused(format!("{message}: {remedy}"));
    core.refused(Door::Socket, &name(uid), &Denied::refuse(Code::NotPermitted, message, remedy));
    told
}
