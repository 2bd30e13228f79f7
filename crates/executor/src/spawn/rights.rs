//! Landlock's bits: what each access class means, cut to what the kernel's ABI knows. One table;
//! checked in a test against the `landlock` crate, which the libc-free init can't link.

use stockade_proto::{Access, LandlockRule};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

const ABI_1: u64 = (1 << 13) - 1;

/// Abstract Unix sockets and signals to outside the domain, from ABI 6.
const SCOPE_ALL: u64 = 0b11;

/// Every filesystem right that this ABI can refuse: handled means refused unless a rule allows it.
pub(crate) const fn handled(abi: u32) -> u64 {
    let mut rights = if abi >= 1 { ABI_1 } else { 0 };
    if abi >= 2 {
        rights |= REFER;
    }
    if abi >= 3 {
        rights |= TRUNCATE;
    }
    if abi >= 5 {
        rights |= IOCTL_DEV;
    }
    rights
}

pub(crate) const fn scoped(abi: u32) -> u64 {
    if abi >= 6 { SCOPE_ALL } else { 0 }
}

/// Rights that a rule on something other than a directory may hold: the kernel answers EINVAL to more.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

pub(crate) fn of_rule(rule: &LandlockRule, abi: u32) -> u64 {
    let allowed = allowed(rule.access, abi);
    if rule.is_dir { allowed } else { allowed & OF_FILES }
}

const fn allowed(access: Access, abi: u32) -> u64 {
    let wanted = match access {
        Access::List => READ_DIR,
        Access::Read => EXECUTE | READ_FILE | READ_DIR,
        // Everything but device nodes, and ioctl on those.
        Access::Write => (ABI_1 & !(MAKE_CHAR | MAKE_BLOCK)) | REFER | TRUNCATE,
        // `> /dev/null` is a write and a truncation; a terminal is nothing without its ioctls.
        Access::Device => READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV,
        Access::Proc => READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE,
    };
    wanted & handled(abi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landlock::{ABI, AccessFs, BitFlags, Scope};

    fn bits(flags: BitFlags<AccessFs>) -> u64 {
        flags.bits()
    }

    #[test]
    fn the_table_agrees_with_the_landlock_crate() {
        for (number, abi) in
            [(1, ABI::V1), (2, ABI::V2), (3, ABI::V3), (4, ABI::V4), (5, ABI::V5), (6, ABI::V6)]
        {
            assert_eq!(handled(number), bits(landlock::Access::from_all(abi)), "ABI {number}");
        }
        let scopes: BitFlags<Scope> = landlock::Access::from_all(ABI::V6);
        assert_eq!(scoped(6), scopes.bits());
        assert_eq!(scoped(5), 0);
        assert_eq!(OF_FILES, bits(AccessFs::from_file(ABI::V6)));
        let read: BitFlags<AccessFs> = AccessFs::from_read(ABI::V6);
        assert_eq!(allowed(Access::Read, 6), bits(read));
        assert_eq!(allowed(Access::Write, 6) & (MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV), 0);
    }
}
