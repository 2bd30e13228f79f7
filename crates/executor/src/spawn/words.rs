//! Words between the executor and its inits, over their control sockets: what is said, what is heard, and what is taken.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use stockade_launch::{FromInit, MAX_MESSAGE, MAX_ORDER, ToInit};

use super::{encode, fault};
use crate::Abort;

/// What an init or a stem has said; its next word is waited for so long.
pub(super) fn hear<T>(
    control: &OwnedFd,
    within: Duration,
    read: impl FnOnce(Option<FromInit<'_>>) -> io::Result<T>,
) -> io::Result<T> {
    wait_for_word(control, within)?;
    let mut packet = [0; MAX_MESSAGE];
    let length = receive(control, &mut packet, RecvFlags::empty())?;
    read(FromInit::decode(&packet[..length]))
}

/// What is there.
pub(super) fn receive(control: &OwnedFd, packet: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match recv(control, &mut *packet, flags | RecvFlags::DONTWAIT) {
            Ok((_, length)) => return Ok(length),
            // A reset comes before what was said: whoever said it left without reading our last message.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

pub(super) fn wait_for_word(control: &OwnedFd, within: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(within).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&timeout))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Descriptors that an init has shown.
pub(crate) fn take_offered(pidfd: &OwnedFd, numbers: &[i32]) -> Result<Vec<OwnedFd>, Errno> {
    numbers.iter().map(|number| pidfd_getfd(pidfd, *number, PidfdGetfdFlags::empty())).collect()
}

pub(super) fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(std::os::fd::AsFd::as_fd).collect()
}

pub(super) fn tell(control: &OwnedFd, message: ToInit, fds: &[BorrowedFd<'_>]) -> Result<(), Abort> {
    tell_more(control, message, &[], fds)
}

pub(super) fn tell_order(control: &OwnedFd, order: &[u8]) -> Result<(), Abort> {
    if order.len() <= MAX_ORDER {
        return tell_more(control, ToInit::Order, order, &[]);
    }
    tell(control, ToInit::Order, &[encode::sealed(order)?.as_fd()])
}

fn tell_more(control: &OwnedFd, message: ToInit, more: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Abort> {
    let packet = message.encode();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(fds.len()))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits, "the space was made for them");
    }
    let parts = [IoSlice::new(&packet), IoSlice::new(more)];
    match sendmsg(control, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
        // A closed socket: init failed and has said why; the supervisor reads it.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(fault("the sandbox's init can't be reached", &error)),
    }
}
