//! Which Landlock this kernel has.

use crate::checked;

const CREATE_RULESET_VERSION: libc::c_uint = 1;

/// The ABI version, or 0 where Landlock is absent or switched off at boot.
pub fn landlock_abi() -> u32 {
    // SAFETY: a null attribute of size zero with the version flag asks a question and makes nothing.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    checked(answer).ok().and_then(|version| u32::try_from(version).ok()).unwrap_or(0)
}
