//! The control socket with its donated descriptors, and the loopback device.

use crate::call::{call, nr};
use crate::{Errno, Fd};

const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CTRUNC: i32 = 8;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const CMSG_HEAD: usize = 16;

#[repr(C)]
struct IoVec {
    base: usize,
    length: usize,
}

#[repr(C)]
struct MessageHead {
    name: usize,
    name_length: u32,
    iov: usize,
    iov_length: usize,
    control: usize,
    control_length: usize,
    flags: i32,
}

pub fn send(socket: &Fd, packet: &[u8]) -> Result<(), Errno> {
    let arguments = [socket.raw(), packet.as_ptr() as usize, packet.len(), MSG_NOSIGNAL, 0, 0];
    // SAFETY: the kernel reads `packet.len()` bytes; there is no destination.
    let sent = unsafe { call(nr::SENDTO, arguments) };
    sent.map(drop)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Zero: the other side is gone.
    pub length: usize,
    pub donations: usize,
}

/// Receives one packet; descriptors that come with it fill `donations` from the front.
pub fn receive(socket: &Fd, packet: &mut [u8], donations: &mut [Option<Fd>]) -> Result<Received, Errno> {
    // Room for a header and 253 descriptors, the most that the kernel puts into one packet.
    let mut control = [0_u64; 132];
    let mut iov = IoVec { base: packet.as_mut_ptr() as usize, length: packet.len() };
    let mut head = MessageHead {
        name: 0,
        name_length: 0,
        iov: &raw mut iov as usize,
        iov_length: 1,
        control: control.as_mut_ptr() as usize,
        control_length: size_of_val(&control),
        flags: 0,
    };
    let length = loop {
        // SAFETY: all of `head`, what it points to and their lengths are ours for the whole call.
        match unsafe { call(nr::RECVMSG, [socket.raw(), &raw mut head as usize, MSG_CMSG_CLOEXEC, 0, 0, 0]) }
        {
            Ok(length) => break length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    let count = take_rights(&control, head.control_length, donations)?;
    // There was no room for one of them: they are not all here.
    if head.flags & MSG_CTRUNC != 0 {
        return Err(Errno::MFILE);
    }
    Ok(Received { length, donations: count })
}

/// One control message is all the executor sends: length u64, level i32, type i32, then the ints.
fn take_rights(control: &[u64], filled: usize, donations: &mut [Option<Fd>]) -> Result<usize, Errno> {
    if filled < CMSG_HEAD {
        return Ok(0);
    }
    let length = usize::try_from(control[0]).map_err(|_| Errno::BADMSG)?;
    let kind = control[1];
    let expected = u64::from(SOL_SOCKET.cast_unsigned()) | (u64::from(SCM_RIGHTS.cast_unsigned()) << 32);
    if kind != expected || length > filled || length < CMSG_HEAD {
        return Err(Errno::BADMSG);
    }
    let count = (length - CMSG_HEAD) / 4;
    if count > donations.len() {
        return Err(Errno::BADMSG);
    }
    for (index, slot) in donations.iter_mut().enumerate().take(count) {
        let word = control[2 + index / 2];
        let number = if index % 2 == 0 { word & 0xffff_ffff } else { word >> 32 };
        *slot = Some(Fd::from_kernel(i32::try_from(number).map_err(|_| Errno::BADMSG)?));
    }
    Ok(count)
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// A fresh network namespace has a loopback device, down.
pub fn loopback_up() -> Result<(), Errno> {
    const AF_INET: usize = 2;
    const SOCK_DGRAM_CLOEXEC: usize = 2 | 0o2_000_000;
    const SIOCSIFFLAGS: usize = 0x8914;
    const IFF_UP_RUNNING: i16 = 0x1 | 0x40;
    // SAFETY: three numbers.
    let socket = unsafe { call(nr::SOCKET, [AF_INET, SOCK_DGRAM_CLOEXEC, 0, 0, 0, 0]) };
    let socket = Fd::from_result(socket?)?;
    let mut name = [0; 16];
    name[..2].copy_from_slice(b"lo");
    let request = InterfaceRequest { name, flags: IFF_UP_RUNNING, rest: [0; 22] };
    // SAFETY: a whole `struct ifreq`, which the kernel reads.
    let set = unsafe { call(nr::IOCTL, [socket.raw(), SIOCSIFFLAGS, &raw const request as usize, 0, 0, 0]) };
    set.map(drop)
}
