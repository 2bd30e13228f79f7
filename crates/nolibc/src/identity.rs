//! Who we are: ids, capabilities, keyring, host name.

use crate::Errno;
use crate::call::{call, ignore, nr};

const PR_SET_DUMPABLE: usize = 4;
const PR_CAPBSET_DROP: usize = 24;
const PR_SET_SECUREBITS: usize = 28;
const PR_CAP_AMBIENT: usize = 47;
const PR_CAP_AMBIENT_CLEAR_ALL: usize = 4;

/// NOROOT, NO_SETUID_FIXUP and KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each with its lock.
const SECUREBITS: usize = 0b1110_1111;
const KEYCTL_JOIN_SESSION_KEYRING: usize = 1;
pub(crate) const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// The kernel knows 41 capabilities today; asking beyond the last gives EINVAL, which ends the loop.
pub(crate) const CAPABILITY_NUMBERS: core::ops::Range<usize> = 0..64;

pub(crate) fn prctl(arguments: [usize; 5]) -> Result<usize, Errno> {
    let [option, a, b, c, d] = arguments;
    // SAFETY: callers in this crate use options that take numbers, never pointers.
    unsafe { call(nr::PRCTL, [option, a, b, c, d, 0]) }
}

pub fn set_dumpable(dumpable: bool) -> Result<(), Errno> {
    prctl([PR_SET_DUMPABLE, usize::from(dumpable), 0, 0, 0]).map(drop)
}

pub fn umask(mask: u32) {
    // SAFETY: umask takes a number and can't fail.
    let before = unsafe { call(nr::UMASK, [mask as usize, 0, 0, 0, 0, 0]) };
    ignore(before);
}

pub fn clear_groups() -> Result<(), Errno> {
    // SAFETY: a list of zero groups is never read.
    let set = unsafe { call(nr::SETGROUPS, [0; 6]) };
    set.map(drop)
}

pub fn set_gid(gid: u32) -> Result<(), Errno> {
    let gid = gid as usize;
    // SAFETY: three numbers.
    let set = unsafe { call(nr::SETRESGID, [gid, gid, gid, 0, 0, 0]) };
    set.map(drop)
}

/// Keeps capabilities: moving between non-zero ids never clears them, and moving away from an
/// in-namespace 0 is not done.
pub fn set_uid(uid: u32) -> Result<(), Errno> {
    let uid = uid as usize;
    // SAFETY: three numbers.
    let set = unsafe { call(nr::SETRESUID, [uid, uid, uid, 0, 0, 0]) };
    set.map(drop)
}

pub fn join_new_keyring() -> Result<(), Errno> {
    // SAFETY: a null name asks for a new anonymous keyring.
    let joined = unsafe { call(nr::KEYCTL, [KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0, 0]) };
    joined.map(drop)
}

pub fn set_hostname(name: &[u8]) -> Result<(), Errno> {
    // SAFETY: the kernel reads `name.len()` bytes of `name`.
    let set = unsafe { call(nr::SETHOSTNAME, [name.as_ptr() as usize, name.len(), 0, 0, 0, 0]) };
    set.map(drop)
}

#[repr(C)]
pub(crate) struct CapabilityHead {
    pub(crate) version: u32,
    pub(crate) pid: i32,
}

pub(crate) type CapabilitySets = [u32; 6];

/// No `execve` gives a capability that is not in this set.
pub fn drop_bounding_set() -> Result<(), Errno> {
    for capability in CAPABILITY_NUMBERS {
        match prctl([PR_CAPBSET_DROP, capability, 0, 0, 0]) {
            Ok(_) => {}
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Ambient, inheritable, permitted and effective sets: all empty, and the way back locked.
pub fn drop_capabilities() -> Result<(), Errno> {
    prctl([PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0])?;
    prctl([PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0])?;
    let head = CapabilityHead { version: CAPABILITY_VERSION_3, pid: 0 };
    let none: CapabilitySets = [0; 6];
    let arguments = [&raw const head as usize, none.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: version 3 takes a header and two sets of three words, which the kernel reads.
    let set = unsafe { call(nr::CAPSET, arguments) };
    set.map(drop)
}
