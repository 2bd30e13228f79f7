//! `struct msghdr` and what hangs on it, copied once from the caller.

use rustix::io::Errno;

use crate::address::{self, STORAGE};
use crate::call::Call;

/// `UIO_MAXIOV`: more pieces, or more messages at once, the kernel does not take.
pub(crate) const PIECES_MAX: usize = 1024;
/// `struct msghdr`, and `struct mmsghdr` around it.
pub(crate) const HEAD: usize = 56;
pub(crate) const MANY_HEAD: usize = 64;
/// Where `msg_len` stands in the latter.
pub(crate) const MANY_LENGTH_AT: u64 = 56;
/// More than any control message for 253 descriptors and a few options. The kernel's own bound is a sysctl.
const CONTROL_MAX: usize = 64 * 1024;
/// `MAX_RW_COUNT`.
const BYTES_MAX: usize = 0x7fff_f000;

/// What a send call asks for.
#[derive(Debug)]
pub(crate) struct Outgoing {
    name: [u8; STORAGE],
    name_length: usize,
    /// Where the bytes are, in the caller.
    pub(crate) pieces: Vec<(u64, usize)>,
    pub(crate) total: usize,
    /// As written: the descriptors in it are the caller's.
    pub(crate) control: Vec<u8>,
    pub(crate) flags: i32,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map_or(0, |chunk| u64::from_ne_bytes(*chunk))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |chunk| u32::from_ne_bytes(*chunk))
}

impl Outgoing {
    pub(crate) fn name(&self) -> &[u8] {
        self.name.get(..self.name_length).unwrap_or_default()
    }

    /// `sendto(socket, bytes, length, flags, address, address length)`.
    pub(crate) fn of_sendto(call: &Call<'_>) -> Result<Self, Errno> {
        let mut name = [0; STORAGE];
        let name_length = call.address(call.arg(4), address::length(call.arg(5))?, &mut name)?;
        let total = usize::try_from(call.arg(2)).map_err(|_| Errno::FAULT)?.min(BYTES_MAX);
        let pieces = vec![(call.arg(1), total)];
        Ok(Self { name, name_length, pieces, total, control: Vec::new(), flags: call.int(3) })
    }

    /// The message that a `struct msghdr` describes.
    pub(crate) fn of_head(call: &Call<'_>, head: &[u8], flags: i32) -> Result<Self, Errno> {
        let mut name = [0; STORAGE];
        let mut name_length = 0;
        let pointer = word(head, 0);
        if pointer != 0 {
            name_length = address::message_length(half(head, 8))?;
            call.address(pointer, name_length, &mut name)?;
        }
        let (pieces, total) = pieces(call, word(head, 16), word(head, 24))?;
        let length = usize::try_from(word(head, 40)).map_err(|_| Errno::NOBUFS)?;
        if length > CONTROL_MAX {
            return Err(Errno::NOBUFS);
        }
        let mut control = vec![0; length];
        call.copy(word(head, 32), &mut control)?;
        Ok(Self { name, name_length, pieces, total, control, flags })
    }

    /// The pieces without the first `offset` bytes.
    pub(crate) fn after(&self, offset: usize) -> Vec<(u64, usize)> {
        let mut skip = offset;
        let mut rest = Vec::with_capacity(self.pieces.len());
        for (address, length) in &self.pieces {
            if skip >= *length {
                skip -= length;
                continue;
            }
            rest.push((address.wrapping_add(u64::try_from(skip).unwrap_or(0)), length - skip));
            skip = 0;
        }
        rest
    }
}

/// The array of `struct iovec`, with the total cut as the kernel cuts it.
fn pieces(call: &Call<'_>, pointer: u64, count: u64) -> Result<(Vec<(u64, usize)>, usize), Errno> {
    let count = usize::try_from(count).ok().filter(|count| *count <= PIECES_MAX).ok_or(Errno::MSGSIZE)?;
    let mut table = vec![0; count * 16];
    call.copy(pointer, &mut table)?;
    let mut total = 0;
    let mut pieces = Vec::with_capacity(count);
    for row in table.chunks_exact(16) {
        let length = isize::try_from(word(row, 8).cast_signed()).map_err(|_| Errno::INVAL)?;
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?.min(BYTES_MAX - total);
        total += length;
        pieces.push((word(row, 0), length));
    }
    Ok((pieces, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_skipped() {
        let outgoing = Outgoing {
            name: [0; STORAGE],
            name_length: 0,
            pieces: vec![(100, 3), (200, 0), (300, 4)],
            total: 7,
            control: vec![],
            flags: 0,
        };
        assert_eq!(outgoing.after(0), [(100, 3), (300, 4)], "an empty piece is no piece");
        assert_eq!(outgoing.after(2), [(102, 1), (300, 4)]);
        assert_eq!(outgoing.after(3), [(300, 4)]);
        assert_eq!(outgoing.after(5), [(302, 2)]);
        assert_eq!(outgoing.after(7), []);
    }
}
