//! The words between the executor and `stockade-init`: the ground (what a sandbox is made of before its
//! plan is known), the launch (the rest of the plan in kernel terms) and the order (what runs), handed over in sealed memfds,
//! and the messages of their control socket. `no_std`, no
//! allocation, no dependency: the reader runs as PID 1 of every sandbox. Next: `init/src/main.rs`.

#![no_std]
#![forbid(unsafe_code)]

use core::ffi::CStr;

mod control;
mod read;
mod stage;
mod write;

pub use control::{
    Birth, BirthNetwork, FromInit, HEAD, MAX_INSIDE, MAX_MESSAGE, MAX_OFFERED, MAX_ORDER, Offer, Offered,
    ToInit,
};
pub use read::{Ground, Items, Launch, Malformed, Mounts, Order, Reader};
pub use stage::Stage;
pub use write::{Sink, Writer};

/// The walls that an init begins with that is started without a ground: one that does not have all of these is for another
/// init.
pub const SEEDED: u32 = wall::USER | wall::MOUNT | wall::PID | wall::NET | wall::UTS;

/// Fds that the init is born with, beside stdin, stdout and stderr.
pub const CONTROL_FD: i32 = 3;
pub const GROUND_FD: i32 = 4;

/// The limit on core dumps, as resource and value. What crashes would be written, or fed to a handler, by the host's core_pattern, outside
/// every wall. At zero, files are not written and handlers are fed all the same; at one byte the kernel starts none.
pub const NO_CORE: (u32, u64) = (4, 1);

/// The kernel takes at most 253 fds in one SCM_RIGHTS message; a plan with more binds is refused.
pub const MAX_DONATIONS: usize = 240;

/// "STKD" and the version of this format: init and executor are installed together, and say so if not.
pub const MAGIC: u32 = 0x444b_5453;
pub const VERSION: u32 = 8;

/// What the sandbox consists of; bits of `Ground::walls`.
pub mod wall {
    /// A user namespace: wait for the maps, then take on the identity.
    pub const USER: u32 = 1 << 0;
    /// A mount namespace: build the root and pivot into it.
    pub const MOUNT: u32 = 1 << 1;
    /// A PID namespace: we are PID 1 and `kill(-1)` is ours alone.
    pub const PID: u32 = 1 << 2;
    /// A network namespace: bring its loopback up.
    pub const NET: u32 = 1 << 3;
    /// A UTS namespace: set the host name.
    pub const UTS: u32 = 1 << 4;
    /// Drop every capability and set no_new_privs. Only mode `host` goes without.
    pub const PRIVILEGES: u32 = 1 << 5;
    /// A cgroup namespace, made once we are in our cgroup so that it is the namespace's root.
    pub const CGROUP: u32 = 1 << 6;
}

/// One step of building the root. The operand of each is in `MountStep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountStep<'a> {
    Dir {
        mode: u32,
    },
    File {
        mode: u32,
        contents: &'a [u8],
    },
    Symlink {
        to: &'a CStr,
    },
    Scratch {
        mode: u32,
    },
    /// A host path, opened by init itself and compared with `dev`/`ino`.
    BindPath {
        source: &'a CStr,
        dev: u64,
        ino: u64,
        is_dir: bool,
        writable: bool,
    },
    /// A detached tree that the executor donates (host root only).
    BindDonated {
        is_dir: bool,
        writable: bool,
    },
    Proc,
    DevPts,
    Device,
    Mask {
        is_dir: bool,
        optional: bool,
    },
    Cover {
        contents: &'a [u8],
    },
    Protect {
        optional: bool,
    },
    Pin,
}
