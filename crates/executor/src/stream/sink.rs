//! Writing without blocking to a descriptor that is not ours to make non-blocking: the flag belongs
//! to the open file, which a shell shares.

use std::cell::RefCell;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use stockade_frames::{FRAME_LIMIT, Frames, Stream};

use super::Destination;

/// POLLOUT promises this much room in a pipe, and nothing beyond.
const PROMISED: usize = 4096;

#[derive(Debug)]
pub(crate) enum Sink<'a> {
    /// Our own open file on the same pipe or terminal, non-blocking.
    Reopened(OwnedFd),
    Socket(BorrowedFd<'a>),
    /// A regular file: writes don't wait for a reader.
    File(BorrowedFd<'a>),
    /// Could not be reopened (another user's terminal after `su`): small writes after POLLOUT.
    Careful(BorrowedFd<'a>),
    /// One frame per write, into a regular file.
    Frames(&'a RefCell<Frames>, Stream),
    Discard,
    /// The reader has gone away.
    Closed,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Bytes(usize),
    Full,
    /// Nobody reads any more, as in a pipeline.
    Gone,
    /// The disk is full, the terminal hung up: output is lost.
    Failed(Errno),
}

impl<'a> Sink<'a> {
    pub(crate) fn new(destination: Destination<'a>) -> Self {
        match destination {
            Destination::Descriptor(fd) => Self::of(fd),
            Destination::Frames(frames, stream) => Self::Frames(frames, stream),
            Destination::Discard => Self::Discard,
        }
    }

    fn of(fd: BorrowedFd<'a>) -> Self {
        let kind = fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Self::Socket(fd),
            Ok(FileType::RegularFile) => Self::File(fd),
            _ => {
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                match open(path, flags, Mode::empty()) {
                    Ok(own) => Self::Reopened(own),
                    Err(_) => Self::Careful(fd),
                }
            }
        }
    }

    /// What to poll for room; nothing where there is always room.
    pub(crate) fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Reopened(fd) => Some(fd.as_fd()),
            Self::Socket(fd) | Self::Careful(fd) => Some(*fd),
            Self::File(_) | Self::Frames(..) | Self::Discard | Self::Closed => None,
        }
    }

    /// Both in one write, in this order; at least one is not empty.
    pub(crate) fn write(&mut self, first: &[u8], second: &[u8]) -> Written {
        let both = [IoSlice::new(first), IoSlice::new(second)];
        let answer = match self {
            Self::Reopened(fd) => rustix::io::writev(fd, &both),
            Self::Socket(fd) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                sendmsg(*fd, &both, &mut SendAncillaryBuffer::default(), flags)
            }
            Self::File(fd) => rustix::io::writev(*fd, &both),
            Self::Careful(fd) => careful(*fd, if first.is_empty() { second } else { first }),
            Self::Frames(frames, stream) => frame(frames, *stream, first, second),
            Self::Discard => return Written::Bytes(first.len() + second.len()),
            Self::Closed => return Written::Gone,
        };
        match answer {
            Ok(count) => Written::Bytes(count),
            Err(Errno::AGAIN | Errno::INTR) => Written::Full,
            Err(errno) => {
                *self = Self::Closed;
                if errno == Errno::PIPE || errno == Errno::CONNRESET {
                    Written::Gone
                } else {
                    Written::Failed(errno)
                }
            }
        }
    }
}

fn careful(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    let mut poll = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::OUT)];
    if rustix::event::poll(&mut poll, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
        return Err(Errno::AGAIN);
    }
    rustix::io::write(fd, &bytes[..bytes.len().min(PROMISED)])
}

/// Both as one frame where they fit one, the first alone otherwise.
fn frame(frames: &RefCell<Frames>, stream: Stream, first: &[u8], second: &[u8]) -> Result<usize, Errno> {
    let joined;
    let bytes = match (first, second) {
        ([], one) | (one, []) => one,
        (first, second) if first.len() + second.len() <= FRAME_LIMIT => {
            joined = [first, second].concat();
            &joined
        }
        (first, _) => first,
    };
    let bytes = &bytes[..bytes.len().min(FRAME_LIMIT)];
    // One thread, and nobody borrows it for longer than a write.
    let mut frames = frames.try_borrow_mut().map_err(|_| Errno::BUSY)?;
    match frames.append(stream, bytes) {
        Ok(_) => Ok(bytes.len()),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}
