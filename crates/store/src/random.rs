//! Random bytes from the kernel.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use crate::error::StoreError;

/// Never short: for up to 256 bytes the kernel gives all or an error, and only a signal before it is ready is one.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, StoreError> {
    let mut bytes = Zeroizing::new([0; N]);
    match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(length) if length == N => Ok(bytes),
        Ok(_) => Err(StoreError::Random { source: Errno::AGAIN.into() }),
        Err(error) => Err(StoreError::Random { source: error.into() }),
    }
}
