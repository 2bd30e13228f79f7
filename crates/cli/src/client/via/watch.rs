//! Who wants the execution to end: whoever signals us, or our parent by its death. Waited for on a thread of its own,
//! which ends with the process.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use stockade_executor::Abort;
use stockade_proto::{Code, Fault};
use stockade_sys::{Signal, SignalFd, mask_for_descriptor};
use tokio::sync::{Mutex, mpsc};

use crate::run::{RunArguments, parent};

/// Wishes that nobody has heard yet; more say nothing new.
const WAITING: usize = 2;
const STACK: usize = 64 * 1024;

pub(super) struct Watch(Mutex<mpsc::Receiver<()>>);

impl Watch {
    /// Before any other thread is made: it has to leave the signals to this one.
    pub(super) fn begin(arguments: &RunArguments) -> Result<Self, Abort> {
        let failed = |error| {
            Fault::new(
                Code::SuperviseFailed,
                format!("signals could not be set up: {error}"),
                "Raise the number of open files (`ulimit -n`) and of processes (`ulimit -u`).",
            )
        };
        let wanted = [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit];
        let signals = mask_for_descriptor(&wanted).map_err(failed)?;
        let parent = if arguments.allow_orphan { None } else { parent() };
        let (wishes, heard) = mpsc::channel(WAITING);
        let thread = std::thread::Builder::new().name("signals".to_owned()).stack_size(STACK);
        thread.spawn(move || watch(&signals, parent, &wishes)).map_err(failed)?;
        Ok(Self(Mutex::new(heard)))
    }

    /// Until somebody wants it to end; each wish is told once.
    pub(super) async fn wanted(&self) {
        if self.0.lock().await.recv().await.is_none() {
            // Nothing can be waited for any more.
            std::future::pending().await
        }
    }
}

fn watch(signals: &SignalFd, mut parent: Option<OwnedFd>, wishes: &mpsc::Sender<()>) {
    loop {
        let mut waits = vec![PollFd::new(signals, PollFlags::IN)];
        waits.extend(parent.as_ref().map(|parent| PollFd::new(parent, PollFlags::IN)));
        match poll(&mut waits, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let gone = waits.get(1).is_some_and(|parent| !parent.revents().is_empty());
        drop(waits);
        if gone {
            parent = None;
        }
        if gone || matches!(signals.read(), Ok(Some(_))) {
            match wishes.try_send(()) {
                // Full: those before it say the same.
                Ok(()) | Err(_) => {}
            }
        }
    }
}
