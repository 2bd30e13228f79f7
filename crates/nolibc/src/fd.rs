//! A file descriptor that is closed once.

use core::mem::ManuallyDrop;

use crate::Errno;
use crate::call::{call, ignore, int, nr};

#[derive(Debug)]
pub struct Fd(i32);

/// The current directory as a base for relative paths. Never closed: it is not a descriptor.
pub static CWD: ManuallyDrop<Fd> = ManuallyDrop::new(Fd(-100));

impl Fd {
    /// A descriptor this process was born with (0 to 4), borrowed for good: dropping it would close it.
    pub const fn inherited(number: i32) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self(number))
    }

    pub(crate) fn from_result(result: usize) -> Result<Self, Errno> {
        i32::try_from(result).map(Self).map_err(|_| Errno::BADMSG)
    }

    pub(crate) const fn from_kernel(number: i32) -> Self {
        Self(number)
    }

    pub const fn number(&self) -> i32 {
        self.0
    }

    /// Becomes the descriptor of that number, which is borrowed for good.
    pub fn become_number(self, number: i32) -> Result<ManuallyDrop<Self>, Errno> {
        // SAFETY: numbers only; whoever owned `number` does not use it again.
        unsafe { call(nr::DUP2, [self.raw(), int(number), 0, 0, 0, 0]) }?;
        Ok(Self::inherited(number))
    }

    /// As a system call argument: the kernel reads the low 32 bits as a signed int.
    pub(crate) const fn raw(&self) -> usize {
        int(self.0)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: closes a descriptor that this value owns; no memory is involved.
        let closed = unsafe { call(nr::CLOSE, [self.raw(), 0, 0, 0, 0, 0]) };
        // The descriptor is gone whatever close answers.
        ignore(closed);
    }
}
