//! Addresses as the kernel reads them. Pure: bytes in, meaning or errno out.

use rustix::io::Errno;

/// `struct sockaddr_storage`: the most that the kernel copies.
pub(crate) const STORAGE: usize = 128;
/// `struct sockaddr_un`.
const UNIX_MAX: usize = 110;
/// `offsetof(struct sockaddr_un, sun_path)`.
const PATH_AT: usize = 2;

const AF_UNSPEC: u16 = 0;
const AF_UNIX: u16 = 1;

/// What an address names for an AF_UNIX socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    /// Up to the first NUL or the end.
    Path(&'a [u8]),
    /// All bytes after the leading NUL.
    Abstract(&'a [u8]),
    /// A family and nothing else.
    Unnamed,
    /// AF_UNSPEC: ends the connection of a datagram socket, and is an error elsewhere.
    Unspecified,
}

/// The length of a `connect`, `bind` or `sendto`: an `int`, whatever the register has above it.
pub(crate) fn length(register: u64) -> Result<usize, Errno> {
    let low = u32::try_from(register & 0xffff_ffff).map_err(|_| Errno::INVAL)?;
    usize::try_from(low).ok().filter(|length| *length <= STORAGE).ok_or(Errno::INVAL)
}

/// The length in a `struct msghdr`: negative is an error, too long is cut.
pub(crate) fn message_length(field: u32) -> Result<usize, Errno> {
    let signed = i32::try_from(field).map_err(|_| Errno::INVAL)?;
    Ok(usize::try_from(signed).map_err(|_| Errno::INVAL)?.min(STORAGE))
}

/// What the bytes mean to an AF_UNIX socket.
pub(crate) fn parse(bytes: &[u8]) -> Result<Named<'_>, Errno> {
    let (Some(family), Some(path)) = (bytes.first_chunk::<PATH_AT>(), bytes.get(PATH_AT..)) else {
        return Err(Errno::INVAL);
    };
    match u16::from_ne_bytes(*family) {
        AF_UNSPEC => Ok(Named::Unspecified),
        AF_UNIX if bytes.len() > UNIX_MAX => Err(Errno::INVAL),
        AF_UNIX => Ok(match path {
            [] => Named::Unnamed,
            [0, name @ ..] => Named::Abstract(name),
            path => Named::Path(path.split(|byte| *byte == 0).next().unwrap_or(path)),
        }),
        _ => Err(Errno::INVAL),
    }
}

/// An address made here, on the stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    bytes: [u8; 16],
    length: usize,
}

impl Own {
    /// The object behind one of our descriptors, by the only name that can't come to mean another: its
    /// number, for a thread that stands in `/proc/self/fd`.
    pub(crate) fn of_descriptor(number: i32) -> Self {
        let digits = DecimalBytes::of(number.unsigned_abs());
        let family = AF_UNIX.to_ne_bytes();
        let mut bytes = [0; 16];
        let text = family.iter().chain(digits.as_slice());
        for (slot, byte) in bytes.iter_mut().zip(text) {
            *slot = *byte;
        }
        Self { bytes, length: PATH_AT + digits.as_slice().len() + 1 }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A number in text without an allocation.
#[derive(Debug)]
pub(crate) struct DecimalBytes {
    bytes: [u8; 10],
    start: usize,
}

impl DecimalBytes {
    pub(crate) fn of(mut number: u32) -> Self {
        let mut made = Self { bytes: [b'0'; 10], start: 10 };
        for slot in made.bytes.iter_mut().rev() {
            *slot = b'0' + u8::try_from(number % 10).unwrap_or(0);
            made.start -= 1;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        made
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
