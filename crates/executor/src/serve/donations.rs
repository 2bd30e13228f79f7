//! Files for output, which the daemon sends ahead of each `execute`: one packet, the execution's id and one
//! descriptor. Whatever else comes is closed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use stockade_proto::link::ID_LIMIT;

/// Files whose `execute` did not come yet. Beyond it the oldest is closed.
const MOST_WAITING: usize = 1024;
/// Packets looked at for one `execute`, so that a flood of them holds nobody up.
const MOST_AT_ONCE: usize = 4096;

#[derive(Debug)]
pub(super) struct Donations {
    socket: OwnedFd,
    waiting: VecDeque<(String, OwnedFd)>,
}

impl Donations {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: VecDeque::new() }
    }

    /// The file that was sent for this execution, or why there is none.
    pub(super) fn take(&mut self, execution: &str) -> Result<File, &'static str> {
        for _ in 0..MOST_AT_ONCE {
            match self.receive() {
                Ok(Some(donation)) => {
                    if self.waiting.len() >= MOST_WAITING {
                        self.waiting.pop_front();
                    }
                    self.waiting.push_back(donation);
                }
                Ok(None) => {}
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let at = self.waiting.iter().rposition(|(id, _)| id == execution);
        let (_, file) = at.and_then(|at| self.waiting.remove(at)).ok_or("no file for its output was sent")?;
        fit(file)
    }

    /// None for a packet that is no donation.
    fn receive(&self) -> Result<Option<(String, OwnedFd)>, Errno> {
        // One byte more than an id may have: a longer packet is told by it.
        let mut text = [0; ID_LIMIT + 1];
        // One descriptor more than there may be; the kernel closes what is beyond that.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let packet = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        if packet.bytes == 0 && files.is_empty() {
            // The other end is closed; the link says so too.
            return Err(Errno::NOTCONN);
        }
        let whole = packet.bytes <= ID_LIMIT && !packet.flags.contains(ReturnFlags::CTRUNC);
        let id = str::from_utf8(&text[..packet.bytes]).ok().filter(|_| whole);
        let only = files.pop().filter(|_| files.is_empty());
        Ok(id.map(str::to_owned).zip(only))
    }
}

/// Frames are appended, and taken back only where one could not be written whole: nothing else may be in there.
fn fit(file: OwnedFd) -> Result<File, &'static str> {
    let stat = fstat(&file).map_err(|_| "the file for its output can't be examined")?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("what was sent for its output is no regular file");
    }
    if stat.st_size != 0 {
        return Err("the file for its output is not empty");
    }
    let flags = fcntl_getfl(&file).map_err(|_| "the file for its output can't be examined")?;
    let mode = flags & OFlags::ACCMODE;
    if !flags.contains(OFlags::APPEND) || (mode != OFlags::WRONLY && mode != OFlags::RDWR) {
        return Err("the file for its output is not open for appending");
    }
    Ok(File::from(file))
}
