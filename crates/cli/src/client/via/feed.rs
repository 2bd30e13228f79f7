//! Our stdin to the command's. Read on a thread of its own, which ends with the process: not every stdin can be
//! waited for, and none is ours to change.

use std::convert::Infallible;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::de::IgnoredAny;
use stockade_executor::Abort;
use stockade_proto::door::{Execution, State, Which, Write, method};
use stockade_proto::{Bytes, Code, Fault};
use stockade_rpc::{BUSY, Error};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::client::door::{Door, NoAnswer, SOON};
use crate::say;

/// What a pipe holds.
const PIECE: usize = 64 * 1024;
/// Pieces that are read ahead.
const AHEAD: usize = 2;
const STACK: usize = 128 * 1024;
/// A command that does not read holds us up, for as long as it runs.
const TAKEN: Duration = Duration::from_secs(24 * 60 * 60);
/// Between two looks at an execution that does not run yet.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

pub(super) struct Feed(mpsc::Receiver<Vec<u8>>);

impl Feed {
    pub(super) fn begin() -> Result<Self, Abort> {
        let (pieces, fed) = mpsc::channel(AHEAD);
        let thread = std::thread::Builder::new().name("stdin".to_owned()).stack_size(STACK);
        thread.spawn(move || read(&pieces)).map_err(|error| {
            Fault::new(
                Code::SuperviseFailed,
                format!("a thread for stdin can't be started: {error}"),
                "Raise the number of processes (`ulimit -u`), or leave -i away.",
            )
        })?;
        Ok(Self(fed))
    }
}

/// Until it ends, or nobody wants it any more.
fn read(pieces: &mpsc::Sender<Vec<u8>>) {
    let stdin = std::io::stdin();
    let mut buffer = vec![0; PIECE];
    loop {
        match rustix::io::read(stdin.as_fd(), &mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if pieces.blocking_send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            },
            // A terminal that hung up, a directory: nothing comes from there.
            Err(_) => return,
        }
    }
}

/// Never comes back: whether the execution goes on is not for its stdin to say.
pub(super) async fn feed(door: &Door, id: &str, feed: Option<Feed>) -> Infallible {
    if let Some(Feed(mut pieces)) = feed {
        until_it_runs(door, id).await;
        let mut taken = true;
        while let Some(piece) = pieces.recv().await {
            taken = write(door, id, &piece).await;
            if !taken {
                break;
            }
        }
        if taken {
            ask(door, &Write { id: id.to_owned(), bytes: Bytes::default(), end: true }).await.ok();
        }
    }
    std::future::pending().await
}

/// What is written before there is a command finds nobody.
async fn until_it_runs(door: &Door, id: &str) {
    let [mut pause, longest] = PAUSES;
    loop {
        let which = Which { id: id.to_owned() };
        match door.ask::<_, Execution>(method::GET, &which, SOON).await {
            Ok(execution) if execution.state == State::Queued => sleep(pause).await,
            // Whoever follows the output hears of an error, too.
            Ok(_) | Err(_) => return,
        }
        pause = (pause * 2).min(longest);
    }
}

async fn ask(door: &Door, write: &Write) -> Result<IgnoredAny, NoAnswer> {
    // Once: bytes that were taken on a connection that then broke must not come twice.
    door.ask_once(method::WRITE, write, TAKEN).await
}

/// False where the command takes no more.
async fn write(door: &Door, id: &str, piece: &[u8]) -> bool {
    let mut rest = piece;
    while !rest.is_empty() {
        match ask(door, &Write { id: id.to_owned(), bytes: Bytes::from(rest), end: false }).await {
            Ok(_) => return true,
            Err(NoAnswer::Error(error)) if error.code == BUSY => {
                let (written, pause) = slow(&error);
                rest = rest.get(written..).unwrap_or_default();
                sleep(pause).await;
            }
            // It has ended, or closed it.
            Err(NoAnswer::Error(_)) => return false,
            Err(NoAnswer::Abort(abort)) => {
                say::warning(&format!("stdin is not passed on any more: {abort}"));
                return false;
            }
        }
    }
    true
}

/// How much a command took that reads slowly, and when to go on.
fn slow(error: &Error) -> (usize, Duration) {
    let number = |name: &str| error.data.as_ref().and_then(|data| data.get(name)?.as_u64());
    let written = number("written").and_then(|written| usize::try_from(written).ok());
    let pause = number("retry_after_ms").map_or(PAUSES[1], Duration::from_millis).min(Duration::from_secs(5));
    (written.unwrap_or(0), pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_command_says_how_much_it_took() {
        let busy = Error::busy("slow", Duration::from_millis(70));
        assert_eq!(slow(&busy), (0, Duration::from_millis(70)));
        let data = serde_json::json!({ "retry_after_ms": 9_000_000, "written": 5 });
        assert_eq!(slow(&busy.with_data(data)), (5, Duration::from_secs(5)));
    }
}
