//! sendto with an address, sendmsg and sendmmsg. The bytes go through a buffer of ours: a message whole, a
//! stream in chunks. Only a datagram can reach a socket by name; the other kinds ignore or refuse a name.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketType;
use stockade_proto::SocketOperation;
use stockade_sys::notify::{self, Message};

use crate::address;
use crate::call::{Call, Owner};
use crate::connect::{Found, find, reach};
use crate::control::Control;
use crate::family::Family;
use crate::message::{HEAD, MANY_HEAD, MANY_LENGTH_AT, Outgoing, PIECES_MAX};
use crate::process::Process;
use crate::queued;
use crate::status::Status;

/// Past every default of `wmem_max`; a longer message is answered as if the buffer were that large.
const MESSAGE_MAX: usize = 1024 * 1024;
/// Of a stream at a time.
const CHUNK: usize = 256 * 1024;

const MSG_NOSIGNAL: i32 = 0x4000;
const MSG_ZEROCOPY: i32 = 0x0400_0000;
const MSG_FASTOPEN: i32 = 0x2000_0000;
const SIGPIPE: i32 = 13;

/// A family and no path: to a stream, which refuses every name, as good as the real one.
const ANY_NAME: [u8; 2] = 1_u16.to_ne_bytes();

/// The caller's socket and what it is.
#[derive(Debug)]
struct Outlet<'a> {
    process: &'a Process,
    socket: &'a OwnedFd,
    family: Family,
    kind: SocketType,
}

impl<'a> Outlet<'a> {
    fn new(process: &'a Process, socket: &'a OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            process,
            socket,
            family: Family::of(socket)?,
            kind: rustix::net::sockopt::socket_type(socket)?,
        })
    }
}

fn value(count: usize) -> Result<i64, Errno> {
    i64::try_from(count).map_err(|_| Errno::INVAL)
}

pub(crate) fn sendto(call: &Call<'_>) -> Result<i64, Errno> {
    let (process, socket) = call.socket()?;
    let outlet = Outlet::new(&process, &socket)?;
    let outgoing = Outgoing::of_sendto(call)?;
    value(deliver(call, &outlet, &outgoing)?)
}

pub(crate) fn sendmsg(call: &Call<'_>) -> Result<i64, Errno> {
    let (process, socket) = call.socket()?;
    let outlet = Outlet::new(&process, &socket)?;
    let mut head = [0; HEAD];
    call.copy(call.arg(1), &mut head)?;
    let outgoing = Outgoing::of_head(call, &head, call.int(2))?;
    value(deliver(call, &outlet, &outgoing)?)
}

/// Message by message until one fails, or more time was used than there is: then the caller is told how far it got, and
/// waits with its next call. An error counts only if nothing was sent before it.
pub(crate) fn sendmmsg(call: &Call<'_>) -> Result<i64, Errno> {
    let (process, socket) = call.socket()?;
    let outlet = Outlet::new(&process, &socket)?;
    let [a, b, c, d] = call.int(2).to_ne_bytes();
    let count = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(PIECES_MAX).min(PIECES_MAX);
    let mut sent = 0;
    for at in 0..count {
        if sent > 0 && call.ground.charge.owes() {
            break;
        }
        if let Err(errno) = send_one(call, &outlet, at) {
            return if sent == 0 { Err(errno) } else { Ok(sent) };
        }
        sent += 1;
    }
    Ok(sent)
}

fn send_one(call: &Call<'_>, outlet: &Outlet<'_>, at: usize) -> Result<(), Errno> {
    let offset = u64::try_from(at * MANY_HEAD).map_err(|_| Errno::FAULT)?;
    let place = call.arg(1).checked_add(offset).ok_or(Errno::FAULT)?;
    let mut head = [0; MANY_HEAD];
    call.copy(place, &mut head)?;
    let outgoing = Outgoing::of_head(call, &head, call.int(3))?;
    let sent = deliver(call, outlet, &outgoing)?;
    write_length(call, place + MANY_LENGTH_AT, sent)
}

/// Tells the caller how much of a message was sent. By a file of its memory, not by its number: written to
/// another process that got the number meanwhile, four bytes are damage.
fn write_length(call: &Call<'_>, place: u64, sent: usize) -> Result<(), Errno> {
    let name = format!("{}/mem", call.note.tid);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let memory = rustix::fs::openat(call.ground.proc.as_fd(), name, flags, Mode::empty())?;
    call.check()?;
    let bytes = u32::try_from(sent).unwrap_or(u32::MAX).to_ne_bytes();
    match rustix::io::pwrite(&memory, &bytes, place) {
        Ok(4) => Ok(()),
        Ok(_) | Err(_) => Err(Errno::FAULT),
    }
}

/// Sends one message to where it is addressed.
fn deliver(call: &Call<'_>, outlet: &Outlet<'_>, outgoing: &Outgoing) -> Result<usize, Errno> {
    let flags = flags(outlet, outgoing.flags)?;
    let control = Control::translate(&outgoing.control, outlet.family, outlet.process, &call.ground.passing)?;
    let parcel = Parcel { outlet, outgoing, control: &control.bytes, flags };
    let _admitted = match outlet.family {
        Family::Unix => Some(queued::admit(call, outlet.socket, outlet.kind)?),
        Family::Inet | Family::Netlink => None,
    };
    let result = match (outlet.family, outlet.kind) {
        _ if outgoing.name().is_empty() => undecided(call, &parcel, b""),
        (Family::Inet, kind) => {
            call.pass(SocketOperation::Send, kind, outgoing.name());
            undecided(call, &parcel, outgoing.name())
        }
        (Family::Netlink, _) => undecided(call, &parcel, outlet.family.destination(outgoing.name())?),
        (Family::Unix, SocketType::DGRAM) => to_name(call, &parcel),
        // A packet goes to the peer, whatever the name says.
        (Family::Unix, SocketType::SEQPACKET) => undecided(call, &parcel, b""),
        (Family::Unix, _) => undecided(call, &parcel, &ANY_NAME),
    };
    if result == Err(Errno::PIPE) && outlet.kind == SocketType::STREAM && outgoing.flags & MSG_NOSIGNAL == 0 {
        break_pipe(call);
    }
    result
}

/// What the kernel would keep of our memory, or connect on the way, is not passed on.
fn flags(outlet: &Outlet<'_>, asked: i32) -> Result<i32, Errno> {
    match outlet.family {
        Family::Unix => Ok(asked & !(MSG_ZEROCOPY | MSG_FASTOPEN)),
        Family::Inet | Family::Netlink if asked & MSG_FASTOPEN != 0 => Err(Errno::OPNOTSUPP),
        Family::Inet | Family::Netlink if asked & MSG_ZEROCOPY != 0 => Err(Errno::NOBUFS),
        Family::Inet | Family::Netlink => Ok(asked),
    }
}

struct Parcel<'a> {
    outlet: &'a Outlet<'a>,
    outgoing: &'a Outgoing,
    control: &'a [u8],
    flags: i32,
}

/// To the peer of the socket, or over a network that another wall confines.
fn undecided(call: &Call<'_>, parcel: &Parcel<'_>, name: &[u8]) -> Result<usize, Errno> {
    if parcel.outlet.kind == SocketType::STREAM {
        return stream(call, parcel, name);
    }
    let bytes = whole(call, parcel.outgoing)?;
    parcel.outlet.family.may_send(&bytes)?;
    call.check()?;
    send_bytes(call, parcel, &Message { name, bytes: &bytes, control: parcel.control }, Owner::Execution)
}

fn to_name(call: &Call<'_>, parcel: &Parcel<'_>) -> Result<usize, Errno> {
    let raw = parcel.outgoing.name();
    let process = parcel.outlet.process;
    let found = find(call, process, address::parse(raw)?, SocketOperation::Send)?;
    let bytes = whole(call, parcel.outgoing)?;
    reach(call, process, SocketOperation::Send, &found, |owner| {
        let made;
        let name = match &found {
            Found::Object(object) => {
                made = object.address();
                made.as_slice()
            }
            Found::Abstract(_) => raw,
        };
        send_bytes(call, parcel, &Message { name, bytes: &bytes, control: parcel.control }, owner)
    })
}

fn send_bytes(
    call: &Call<'_>,
    parcel: &Parcel<'_>,
    message: &Message<'_>,
    owner: Owner,
) -> Result<usize, Errno> {
    call.wait_as(owner, || notify::send(parcel.outlet.socket.as_fd(), message, parcel.flags))
}

/// All bytes of a message, or none.
fn whole(call: &Call<'_>, outgoing: &Outgoing) -> Result<Vec<u8>, Errno> {
    if outgoing.total > MESSAGE_MAX {
        return Err(Errno::MSGSIZE);
    }
    let mut bytes = vec![0; outgoing.total];
    if !bytes.is_empty() {
        let copied = notify::read_memory_vectors(call.note.tid, &outgoing.pieces, &mut bytes)
            .map_err(|error| call.unread(&error))?;
        if copied != bytes.len() {
            return Err(Errno::FAULT);
        }
    }
    Ok(bytes)
}

/// Chunk by chunk. The kernel takes all of a chunk, unless the socket does not block or the call is
/// interrupted: then the caller is told how far it got, as it always is. Each is paid for before the next.
fn stream(call: &Call<'_>, parcel: &Parcel<'_>, name: &[u8]) -> Result<usize, Errno> {
    let total = parcel.outgoing.total;
    let mut buffer = vec![0; total.min(CHUNK)];
    let mut sent = 0;
    loop {
        let control = if sent == 0 { parcel.control } else { &[] };
        let result = chunk(call, &parcel.outgoing.after(sent), total - sent, &mut buffer).and_then(|bytes| {
            let message = Message { name, bytes, control };
            Ok((bytes.len(), send_bytes(call, parcel, &message, Owner::Execution)?))
        });
        match result {
            Err(errno) => return if sent == 0 { Err(errno) } else { Ok(sent) },
            Ok((asked, taken)) => {
                sent += taken;
                if taken < asked || sent >= total {
                    return Ok(sent);
                }
                call.pay();
            }
        }
    }
}

/// The next bytes, as far as they are mapped; a bad address only where there are none.
fn chunk<'b>(
    call: &Call<'_>,
    pieces: &[(u64, usize)],
    left: usize,
    buffer: &'b mut [u8],
) -> Result<&'b [u8], Errno> {
    let wanted = left.min(buffer.len());
    let room = buffer.get_mut(..wanted).unwrap_or_default();
    let copied = if room.is_empty() {
        0
    } else {
        match notify::read_memory_vectors(call.note.tid, pieces, room) {
            Ok(0) => return Err(Errno::FAULT),
            Ok(copied) => copied,
            Err(error) => return Err(call.unread(&error)),
        }
    };
    call.check()?;
    Ok(room.get(..copied).unwrap_or_default())
}

/// The kernel would have sent it to the caller; it waits for an answer, so it takes it right after.
fn break_pipe(call: &Call<'_>) {
    let Ok(status) = Status::read(call.ground.proc.as_fd(), call.note.tid) else { return };
    if call.check().is_ok() && notify::signal_thread(status.process, call.note.tid, SIGPIPE).is_err() {
        // It died meanwhile: nobody is left to be told.
    }
}
