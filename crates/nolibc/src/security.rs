//! no_new_privs, Landlock, seccomp.

use crate::call::{call, nr};
use crate::identity::prctl;
use crate::{Errno, Fd};

const PR_SET_NO_NEW_PRIVS: usize = 38;
const RULE_PATH_BENEATH: usize = 1;
const SECCOMP_SET_MODE_FILTER: usize = 1;

pub fn no_new_privs() -> Result<(), Errno> {
    prctl([PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0]).map(drop)
}

/// `handled_access_fs`, `handled_access_net`, `scoped`.
#[repr(C)]
struct RulesetAttr {
    fs: u64,
    net: u64,
    scoped: u64,
}

/// Older kernels take a shorter struct: bytes that they don't know must not be passed.
pub fn create_ruleset(fs: u64, scoped: u64) -> Result<Fd, Errno> {
    let attr = RulesetAttr { fs, net: 0, scoped };
    let size = if scoped == 0 { 8 } else { size_of::<RulesetAttr>() };
    // SAFETY: the kernel reads `size` bytes of `attr`.
    let made = unsafe { call(nr::LANDLOCK_CREATE_RULESET, [&raw const attr as usize, size, 0, 0, 0, 0]) };
    Fd::from_result(made?)
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

pub fn add_path_rule(ruleset: &Fd, place: &Fd, allowed: u64) -> Result<(), Errno> {
    let rule = PathBeneath { allowed, parent: place.number() };
    let arguments = [ruleset.raw(), RULE_PATH_BENEATH, &raw const rule as usize, 0, 0, 0];
    // SAFETY: a whole struct, only read.
    let added = unsafe { call(nr::LANDLOCK_ADD_RULE, arguments) };
    added.map(drop)
}

pub fn restrict_self(ruleset: &Fd) -> Result<(), Errno> {
    // SAFETY: two numbers.
    let restricted = unsafe { call(nr::LANDLOCK_RESTRICT_SELF, [ruleset.raw(), 0, 0, 0, 0, 0]) };
    restricted.map(drop)
}

#[repr(C)]
struct FilterProgram {
    length: u16,
    filter: *const u8,
}

/// `program` is an array of `struct sock_filter`, eight bytes each.
pub fn install_filter(program: &[u8]) -> Result<(), Errno> {
    install(program, 0).map(drop)
}

/// As above, with a listener for the calls that the filter traps. A trapped call that has been received is only
/// interrupted by a fatal signal: a restarted one would be performed twice.
pub fn install_supervised_filter(program: &[u8]) -> Result<Fd, Errno> {
    const NEW_LISTENER: usize = 1 << 3;
    const WAIT_KILLABLE_RECV: usize = 1 << 5;
    Fd::from_result(install(program, NEW_LISTENER | WAIT_KILLABLE_RECV)?)
}

fn install(program: &[u8], flags: usize) -> Result<usize, Errno> {
    let length = u16::try_from(program.len() / 8).map_err(|_| Errno::INVAL)?;
    let head = FilterProgram { length, filter: program.as_ptr() };
    // SAFETY: the kernel reads `length` instructions from `filter`, all inside `program`.
    unsafe { call(nr::SECCOMP, [SECCOMP_SET_MODE_FILTER, flags, &raw const head as usize, 0, 0, 0]) }
}
