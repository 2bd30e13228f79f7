//! The kernel's socket diagnosis. What lies in a socket's queues; and the file that it is bound to, for sockets of our own
//! network namespace, where SIOCUNIXFILE asks for a capability that an ordinary user has not. The kernel
//! tells numbers, so a file is found by its name and then compared.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send};

use crate::call::Call;
use crate::resolve::Object;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_DONE: u16 = 3;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_RQLEN: u16 = 4;
const STATE_LISTEN: u8 = 10;

/// What to tell of a socket.
#[derive(Debug, Clone, Copy)]
enum Show {
    File,
    /// How much lies in its queues.
    Queues,
}

impl Show {
    fn bits(self) -> u32 {
        match self {
            Self::File => 1 << 1,
            Self::Queues => 1 << 4,
        }
    }
}

/// One socket among all of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) cookie: u64,
    pub(crate) listens: bool,
    /// Of one that listens: connections that nobody has accepted yet. Of others: bytes that were not read.
    pub(crate) received: u32,
    /// Not read by others yet; with the kernel's overhead.
    pub(crate) sent: u32,
}

const NLMSG_HEAD: usize = 16;
/// `struct unix_diag_msg`, before the attributes.
const MESSAGE: usize = 16;
const ANSWER_MAX: usize = 4096;
/// Parts of a list; each holds at least one socket, and a machine has not as many.
const PARTS_MAX: usize = 1 << 20;
const PART: usize = 32 * 1024;
/// More than the table of mounts of any sandbox.
const MOUNTS_MAX: u64 = 1024 * 1024;

/// What the kernel says of the file. Its number is cut to 32 bits, and the device is the file system's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    dev: u64,
    low_ino: u32,
}

/// Answers for sockets of the network namespace that it is made in.
pub fn diagnosis() -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))
}

/// Asks by number and cookie: the cookie is never used again, so the answer is about this socket.
pub(crate) fn file_of(socket: &OwnedFd) -> Result<Told, Errno> {
    let number = u32::try_from(rustix::fs::fstat(socket)?.st_ino).map_err(|_| Errno::OVERFLOW)?;
    let cookie = rustix::net::sockopt::socket_cookie(socket)?;
    let diagnosis = diagnosis()?;
    send(&diagnosis, &request(NLM_F_REQUEST, number, cookie, Show::File), SendFlags::empty())?;
    let mut answer = [0; ANSWER_MAX];
    // It was made while we sent.
    let (length, _) = recv(&diagnosis, &mut answer, RecvFlags::DONTWAIT)?;
    told(answer.get(..length).unwrap_or_default()).ok_or(Errno::NOENT)
}

fn request(flags: u16, number: u32, cookie: u64, show: Show) -> [u8; 40] {
    let mut bytes = [0; 40];
    let head = [40_u32.to_ne_bytes(), two(SOCK_DIAG_BY_FAMILY, flags), [0; 4], [0; 4]];
    let [c0, c1, c2, c3, c4, c5, c6, c7] = cookie.to_le_bytes();
    let low = u32::from_le_bytes([c0, c1, c2, c3]).to_ne_bytes();
    let high = u32::from_le_bytes([c4, c5, c6, c7]).to_ne_bytes();
    // AF_UNIX, then: in every state, by that number.
    let body =
        [[1, 0, 0, 0], u32::MAX.to_ne_bytes(), number.to_ne_bytes(), show.bits().to_ne_bytes(), low, high];
    for (slot, byte) in bytes.iter_mut().zip(head.iter().chain(&body).flatten()) {
        *slot = *byte;
    }
    bytes
}

fn two(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d]
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|found| u16::from_ne_bytes(*found))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|found| u32::from_ne_bytes(*found))
}

/// An attribute of an answer, from its head on; none in an error or where there is no such.
fn attribute(answer: &[u8], wanted: u16) -> Option<&[u8]> {
    if half(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut rest = answer.get(NLMSG_HEAD + MESSAGE..)?;
    while let (Some(length), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        let length = usize::from(length);
        if length < 4 {
            return None;
        }
        if kind == wanted {
            return rest.get(..length);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// The file in an answer.
fn told(answer: &[u8]) -> Option<Told> {
    let file = attribute(answer, UNIX_DIAG_VFS)?;
    let (low_ino, dev) = (word(file, 4)?, word(file, 8)?);
    // As the kernel has it inside: twelve bits and twenty.
    Some(Told { dev: rustix::fs::makedev(dev >> 20, dev & 0xf_ffff), low_ino })
}

/// Every socket of the network namespace that a descriptor belongs to, one call of `each` per socket. Connections
/// that nobody has accepted are not among them.
pub(crate) fn for_each(diagnosis: &OwnedFd, mut each: impl FnMut(Seen)) -> Result<(), Errno> {
    send(diagnosis, &request(NLM_F_REQUEST | NLM_F_DUMP, 0, 0, Show::Queues), SendFlags::empty())?;
    let mut part = vec![0; PART];
    for _ in 0..PARTS_MAX {
        // The kernel makes the next part while we take this one.
        let (length, _) = recv(diagnosis, &mut part[..], RecvFlags::DONTWAIT)?;
        if is_last(part.get(..length).unwrap_or_default(), &mut each)? {
            return Ok(());
        }
    }
    Err(Errno::OVERFLOW)
}

/// Reads the messages of one part; whether no other follows.
fn is_last(mut part: &[u8], each: &mut impl FnMut(Seen)) -> Result<bool, Errno> {
    while !part.is_empty() {
        let length = word(part, 0).and_then(|length| usize::try_from(length).ok()).ok_or(Errno::BADMSG)?;
        let message = part.get(..length).filter(|_| length >= NLMSG_HEAD).ok_or(Errno::BADMSG)?;
        match half(message, 4) {
            Some(SOCK_DIAG_BY_FAMILY) => each(seen(message).ok_or(Errno::BADMSG)?),
            Some(NLMSG_DONE) => return Ok(true),
            // An error, or a word that we don't know: then the list is not whole.
            Some(_) | None => return Err(Errno::BADMSG),
        }
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn seen(message: &[u8]) -> Option<Seen> {
    let (low, high) = (word(message, NLMSG_HEAD + 8)?, word(message, NLMSG_HEAD + 12)?);
    let lengths = attribute(message, UNIX_DIAG_RQLEN)?;
    Some(Seen {
        cookie: u64::from(high) << 32 | u64::from(low),
        listens: *message.get(NLMSG_HEAD + 2)? == STATE_LISTEN,
        received: word(lengths, 4)?,
        sent: word(lengths, 8)?,
    })
}

impl Told {
    /// Whether that is the very file. `begun` is a time before the bind: where the number is too long to be
    /// told whole, a file that is older is another.
    pub(crate) fn is(self, call: &Call<'_>, object: &Object, begun: (i64, u32)) -> bool {
        let whole = object.id.ino == u64::from(self.low_ino);
        let same_end = object.id.ino & u64::from(u32::MAX) == u64::from(self.low_ino);
        let same_number = whole || same_end && object.born.is_some_and(|born| born >= begun);
        object.is_socket
            && same_number
            && (object.id.dev == self.dev || file_system(call, object.as_fd()) == Some(self.dev))
    }
}

/// The device of the file system, which some (btrfs) do not show in their files.
fn file_system(call: &Call<'_>, fd: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return None;
    }
    let name = format!("{}/mountinfo", call.note.tid);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(call.ground.proc.as_fd(), name, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    File::from(file).take(MOUNTS_MAX).read_to_end(&mut text).ok()?;
    device_of_mount(&text, stat.stx_mnt_id)
}

/// `ID PARENT MAJOR:MINOR ...`, a mount a line.
fn device_of_mount(text: &[u8], mount: u64) -> Option<u64> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ').map(|word| std::str::from_utf8(word).ok());
        let id: u64 = words.next()??.parse().ok()?;
        let (major, minor) = words.nth(1)??.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        (id == mount).then_some(device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::fs::MetadataExt as _;

    #[test]
    fn a_socket_tells_its_file() {
        let place = tempfile::tempdir().expect("made");
        let path = place.path().join("s");
        let bound = OwnedFd::from(std::os::unix::net::UnixDatagram::bind(&path).expect("bound"));
        let told = match file_of(&bound) {
            Ok(told) => told,
            // A kernel without it: then no socket is the execution's own.
            Err(errno) => return assert_eq!(errno, Errno::NOENT),
        };
        let meta = std::fs::symlink_metadata(&path).expect("there");
        assert_eq!(u64::from(told.low_ino), meta.st_ino() & u64::from(u32::MAX));
        let unbound = OwnedFd::from(std::os::unix::net::UnixDatagram::unbound().expect("made"));
        assert_eq!(file_of(&unbound), Err(Errno::NOENT));
    }

    #[test]
    fn queues_are_told() {
        use std::io::{Read as _, Write as _};
        let diagnosis = diagnosis().expect("the kernel has it");
        let (mut from, mut to) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let cookie = rustix::net::sockopt::socket_cookie(&from).expect("a cookie");
        let sent = || {
            let mut sent = None;
            for_each(&diagnosis, |seen| {
                if seen.cookie == cookie {
                    sent = Some(seen.sent > 0);
                }
            })
            .expect("a whole list");
            sent
        };
        assert_eq!(sent(), Some(false));
        from.write_all(b"x").expect("sent");
        assert_eq!(sent(), Some(true));
        to.read_exact(&mut [0]).expect("read");
        assert_eq!(sent(), Some(false));
        drop(from);
        assert_eq!(sent(), None);
    }

    #[test]
    fn answers_are_read_within_their_bounds() {
        assert_eq!(is_last(&[], &mut |_| ()), Ok(false));
        for length in 1..64 {
            assert!(is_last(&vec![0; length], &mut |_| ()).is_err(), "{length}");
        }
        for length in 0..64 {
            assert_eq!(told(&vec![0; length]), None);
            let mut bytes = vec![0; length];
            for (slot, byte) in bytes.iter_mut().skip(4).zip(SOCK_DIAG_BY_FAMILY.to_ne_bytes()) {
                *slot = byte;
            }
            assert_eq!(told(&bytes), None, "{length}");
        }
    }

    #[test]
    fn mounts_are_found_by_number() {
        let text = b"21 1 8:1 / / rw - ext4 x rw\n22 21 0:27 / /a\\040b rw - btrfs \xff rw\n";
        assert_eq!(device_of_mount(text, 22), Some(rustix::fs::makedev(0, 27)));
        assert_eq!(device_of_mount(text, 1), None);
    }
}
