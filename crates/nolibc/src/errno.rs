//! The kernel's error numbers.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    pub const PERM: Self = Self(1);
    pub const NOENT: Self = Self(2);
    pub const INTR: Self = Self(4);
    pub const NOEXEC: Self = Self(8);
    pub const CHILD: Self = Self(10);
    pub const AGAIN: Self = Self(11);
    pub const ACCES: Self = Self(13);
    pub const EXIST: Self = Self(17);
    pub const DQUOT: Self = Self(122);
    pub const NOTDIR: Self = Self(20);
    pub const INVAL: Self = Self(22);
    pub const MFILE: Self = Self(24);
    pub const NAMETOOLONG: Self = Self(36);
    pub const BADMSG: Self = Self(74);
    pub const STALE: Self = Self(116);
    pub const PIPE: Self = Self(32);
}
