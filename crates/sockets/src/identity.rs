//! Who a thread of the supervisor is. Where the executor is root and the sandbox is someone else, every
//! thread lives as the sandbox's user: files are checked, and peers see it, as if the command itself called.
//! Root is kept in the saved ids only: messages carry the real ones. It is used to show the executor's own
//! name to a socket of the host that a person allowed.

use std::cell::Cell;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use stockade_sys::notify::set_file_ids;

use crate::call::Owner;

thread_local! {
    /// Which side the calling thread shows.
    static SHOWN: Cell<Owner> = const { Cell::new(Owner::Execution) };
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    uid: Uid,
    gid: Gid,
    /// The executor's group; its user is root.
    executor_gid: Gid,
}

/// More tries than a machine short of memory needs; then something is wrong that must not go on.
const TRIES: u32 = 100;

impl Identity {
    /// Called before any thread has changed.
    pub(crate) fn new((uid, gid): (u32, u32)) -> Self {
        Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), executor_gid: rustix::process::getegid() }
    }

    pub(crate) fn ids(self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// Makes the calling thread the sandbox's user, before its first call.
    pub(crate) fn settle(self) -> Result<(), Errno> {
        // A thread that a settled one started has inherited what that one kept.
        let CapabilitySets { permitted, inheritable, .. } = capabilities(None)?;
        set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
        set_thread_groups(&[])?;
        self.become_sandbox()
    }

    /// Makes the calling thread show itself as the sandbox's user or as the executor, and stay so: calls to
    /// the same side follow each other, and a change costs as much as half a call. File permissions are
    /// those of the sandbox's user in both. As the executor only AF_UNIX sockets are reached, for which
    /// capabilities other than those over files mean nothing.
    pub(crate) fn show(self, side: Owner) -> Result<(), Errno> {
        if SHOWN.get() == side {
            return Ok(());
        }
        let changed = match side {
            Owner::Execution => self.become_sandbox(),
            Owner::Other => self.become_executor(),
        };
        if changed.is_err() {
            self.return_to_sandbox();
        }
        changed
    }

    fn become_sandbox(self) -> Result<(), Errno> {
        set_thread_res_gid(self.gid, self.gid, None)?;
        set_thread_res_uid(self.uid, self.uid, None)?;
        // Leaving uid 0 drops every effective capability. To read the command's memory and to take its
        // descriptors this one is needed back, and no other: what is done for the command is done without.
        let CapabilitySets { permitted, inheritable, .. } = capabilities(None)?;
        let effective = permitted & CapabilitySet::SYS_PTRACE;
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
        SHOWN.set(Owner::Execution);
        Ok(())
    }

    fn become_executor(self) -> Result<(), Errno> {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, None)?;
        set_thread_res_gid(self.executor_gid, self.executor_gid, None)?;
        // With them go the capabilities that override file permissions.
        let (uid, gid) = self.ids();
        set_file_ids(uid, gid);
        SHOWN.set(Owner::Other);
        Ok(())
    }

    fn return_to_sandbox(self) {
        for _ in 0..TRIES {
            if self.become_sandbox().is_ok() {
                return;
            }
        }
        // The next call of the command would be made as root. The tree dies with this process.
        std::process::abort();
    }
}
