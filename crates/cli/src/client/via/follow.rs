//! What the command writes, to where the caller wants it, while it comes. Written on a thread of its own: a reader
//! that takes nothing must not keep anybody from pressing Ctrl-C.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use stockade_executor::Abort;
use stockade_proto::door::{Rest, Stream};
use stockade_proto::{Bytes, Code, Fault};
use tokio::sync::{mpsc, oneshot};

use crate::client::door::Door;
use crate::client::logs::{Reading, damaged};
use crate::client::output::{self, Reader};
use crate::client::stop;
use crate::run::{RunArguments, destination};
use crate::say;

const STACK: usize = 128 * 1024;

struct Piece {
    stream: Stream,
    bytes: Bytes,
    written: oneshot::Sender<io::Result<Reader>>,
}

pub(super) struct Outlet(mpsc::Sender<Piece>);

impl Outlet {
    pub(super) fn open(arguments: &RunArguments) -> Result<Self, Abort> {
        let (stdout, stderr) =
            (destination(arguments.stdout.as_ref())?, destination(arguments.stderr.as_ref())?);
        let (pieces, mut queued) = mpsc::channel::<Piece>(1);
        let thread = std::thread::Builder::new().name("output".to_owned()).stack_size(STACK);
        let write = move || {
            while let Some(Piece { stream, bytes, written }) = queued.blocking_recv() {
                let done = put(stream, bytes.as_slice(), stdout.as_ref(), stderr.as_ref());
                match written.send(done) {
                    // An error: nobody waits for it any more.
                    Ok(()) | Err(_) => {}
                }
            }
        };
        thread.spawn(write).map_err(|error| {
            Fault::new(
                Code::SuperviseFailed,
                format!("a thread for the output can't be started: {error}"),
                "Raise the number of processes (`ulimit -u`) and try again.",
            )
        })?;
        Ok(Self(pieces))
    }

    async fn write(&self, stream: Stream, bytes: Bytes) -> io::Result<Reader> {
        let (written, done) = oneshot::channel();
        // An error of either: the thread is gone.
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.send(Piece { stream, bytes, written }).await.map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }
}

fn put(
    stream: Stream,
    bytes: &[u8],
    stdout: Option<&OwnedFd>,
    stderr: Option<&OwnedFd>,
) -> io::Result<Reader> {
    match stream {
        Stream::Stdout => output::put(stdout.map_or(io::stdout().as_fd(), AsFd::as_fd), bytes),
        Stream::Stderr => output::put(stderr.map_or(io::stderr().as_fd(), AsFd::as_fd), bytes),
        // For `stockade logs`.
        Stream::Event => Ok(Reader::There),
    }
}

/// To the end of the output, or until it can't be passed on. A reader that goes away ends the command, as in a
/// pipeline; so does a disk that is full, and that is told.
pub(super) async fn follow(door: &Door, id: &str, outlet: &Outlet) -> Result<Option<Fault>, Abort> {
    let mut reading = Reading { id: id.to_owned(), after: 0 };
    loop {
        let piece = reading.follow(door).await?;
        for chunk in piece.chunks {
            let lost = match outlet.write(chunk.stream, chunk.bytes).await {
                Ok(Reader::There) => continue,
                Ok(Reader::Gone) => None,
                Err(error) => Some(output::failed(&error)),
            };
            stop::ask(door, id).await?;
            return Ok(lost);
        }
        match piece.rest {
            Rest::More | Rest::Open => {}
            Rest::Ended => return Ok(None),
            Rest::Damaged => {
                say::warning(&damaged(id).message);
                return Ok(None);
            }
        }
    }
}
