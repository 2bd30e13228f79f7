//! What the kernel says about this process. Asked call by call: to print `/proc/self/status` takes the kernel longer than a
//! hundred such answers.

use crate::call::{call, nr};
use crate::identity::{CAPABILITY_NUMBERS, CAPABILITY_VERSION_3, CapabilityHead, CapabilitySets, prctl};
use crate::{CWD, Errno, Fd};

/// Sets are bits, numbered as the kernel numbers capabilities and, from bit 0, signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Inheritable, permitted and effective capabilities together. An ambient one is in the first two of these.
    pub capabilities: u64,
    /// Capabilities that an `execve` could give: the bounding set.
    pub to_gain: u64,
    pub no_new_privs: bool,
    /// 0 none, 2 filter.
    pub seccomp: usize,
    /// Bit 0 is signal 1.
    pub ignored_signals: u64,
}

const PR_GET_SECCOMP: usize = 21;
const PR_CAPBSET_READ: usize = 23;
const PR_GET_NO_NEW_PRIVS: usize = 39;
const SIGNALS: core::ops::RangeInclusive<usize> = 1..=64;

/// What a process has from the one that it is a copy of. The bounding set only ever shrinks, and signals are as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inherited {
    to_gain: u64,
    ignored_signals: u64,
}

/// An answer that does not come is an error: what is not proven does not hold.
pub fn inherited() -> Result<Inherited, Errno> {
    Ok(Inherited { to_gain: bounding_set()?, ignored_signals: ignored_signals()? })
}

/// `before` is what the process that this is a copy of was told, and saves asking again.
pub fn own_status(before: Option<Inherited>) -> Result<Status, Errno> {
    let Inherited { to_gain, ignored_signals } = before.map_or_else(inherited, Ok)?;
    Ok(Status {
        capabilities: capabilities()?,
        to_gain,
        no_new_privs: prctl([PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0])? == 1,
        seccomp: prctl([PR_GET_SECCOMP, 0, 0, 0, 0])?,
        ignored_signals,
    })
}

fn capabilities() -> Result<u64, Errno> {
    let head = CapabilityHead { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut sets: CapabilitySets = [0; 6];
    let arguments = [&raw const head as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: version 3 takes a header, which is read, and two sets of three words, which are written.
    unsafe { call(nr::CAPGET, arguments) }?;
    let all = |words: &[u32]| words.iter().fold(0, |all, word| all | u64::from(*word));
    Ok(all(&sets[..3]) | (all(&sets[3..]) << 32))
}

fn bounding_set() -> Result<u64, Errno> {
    let mut set = 0;
    for capability in CAPABILITY_NUMBERS {
        match prctl([PR_CAPBSET_READ, capability, 0, 0, 0]) {
            Ok(has) => set |= (has as u64 & 1) << capability,
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(set)
}

fn ignored_signals() -> Result<u64, Errno> {
    const SIG_IGN: u64 = 1;
    const SET_SIZE: usize = 8;
    let mut set = 0;
    for signal in SIGNALS {
        let mut action = [0_u64; 4];
        // SAFETY: the kernel writes a `struct sigaction` of its own, four words; nothing is changed.
        unsafe { call(nr::RT_SIGACTION, [signal, 0, action.as_mut_ptr() as usize, SET_SIZE, 0, 0]) }?;
        set |= u64::from(action[0] == SIG_IGN) << (signal - 1);
    }
    Ok(set)
}

/// Whether there is a descriptor of that number.
pub fn is_open(number: i32) -> bool {
    const F_GETFD: usize = 1;
    // SAFETY: numbers only.
    unsafe { call(nr::FCNTL, [crate::call::int(number), F_GETFD, 0, 0, 0, 0]) }.is_ok()
}

/// Whether a descriptor above `allowed` is open that is none of `others`, which are. Needs `/proc`.
pub fn has_foreign_fd(allowed: i32, others: &[i32]) -> Result<bool, Errno> {
    let known = (0..=allowed).chain(others.iter().copied()).map(|number| u64::from(is_open(number))).sum();
    match crate::file::length(c"/proc/self/fd")? {
        // Before Linux 6.2 it is not told.
        0 => listed_foreign_fd(allowed, others),
        count => Ok(count > known),
    }
}

fn listed_foreign_fd(allowed: i32, others: &[i32]) -> Result<bool, Errno> {
    let directory: Fd = crate::openat(&CWD, c"/proc/self/fd")?;
    let mut foreign = false;
    crate::numeric_entries(&directory, |number| {
        foreign |= number > allowed && number != directory.number() && !others.contains(&number);
    })?;
    Ok(foreign)
}
