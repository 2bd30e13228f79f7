//! What this process is born with, checked before anything else, and what it makes of itself: no terminal, no
//! core, signals to read, room for descriptors.

use std::io::{self, Write as _};
use std::os::fd::{OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::DumpableBehavior;
use stockade_executor::{LayerFact, raise_descriptors, settle_limits};
use stockade_proto::link;
use stockade_sys::{Signal, SignalFd, borrow_inherited, mask_for_descriptor};
use tokio::sync::oneshot;

/// As `stockade-init` has it.
const BY_HAND: u8 = 64;
const FAILED: u8 = 70;

/// Descriptors are numbered up to about here by a busy executor: the table grows once, before there is a thread
/// to make that slow.
const BUSY_TABLE: RawFd = 4095;
/// For a thread that only waits.
const SMALL_STACK: usize = 64 * 1024;

pub(super) struct Born {
    pub(super) link: OwnedFd,
    pub(super) donations: OwnedFd,
    pub(super) signals: Masked,
    pub(super) limits: LayerFact,
}

/// Why there is no executor.
pub(super) enum Refused {
    ByHand,
    Failed(&'static str, io::Error),
}

impl Refused {
    pub(super) fn say(self) -> u8 {
        match self {
            Self::ByHand => say(
                "stockade-executor is started by stockaded, with its link as stdin; use `stockade run -- COMMAND`",
                BY_HAND,
            ),
            Self::Failed(what, error) => say(&format!("{what}: {error}"), FAILED),
        }
    }
}

pub(super) fn say(sentence: &str, code: u8) -> u8 {
    match writeln!(io::stderr(), "{sentence}") {
        // Without a stderr there is only the code.
        Ok(()) | Err(_) => code,
    }
}

pub(super) fn receive() -> Result<Born, Refused> {
    if std::env::args_os().nth(1).is_some() {
        return Err(Refused::ByHand);
    }
    let link = socket(link::LINK_FD, SocketType::STREAM)?;
    let donations = socket(link::DONATIONS_FD, SocketType::SEQPACKET)?;
    let failed = |what| move |error| Refused::Failed(what, error);
    leave_stdio().map_err(failed("the link could not be set up"))?;
    let signals = mask_for_descriptor(&[Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit])
        .map_err(failed("signals could not be set up"))?;
    match rustix::process::setsid() {
        // Already the first of its session: whoever started us saw to it.
        Ok(_) | Err(_) => {}
    }
    // Secrets and other executions' output are in this memory; processes of the same user are what we run.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| Refused::Failed("this memory could not be closed to others", errno.into()))?;
    raise_descriptors();
    match rustix::io::fcntl_dupfd_cloexec(&link, BUSY_TABLE) {
        // Only for the size of the table.
        Ok(_) | Err(_) => {}
    }
    Ok(Born { link, donations, signals: Masked(signals), limits: settle_limits() })
}

/// One of the two descriptors, as one that no child inherits.
fn socket(number: RawFd, kind: SocketType) -> Result<OwnedFd, Refused> {
    let inherited = borrow_inherited(number).map_err(|_| Refused::ByHand)?;
    let is = sockopt::socket_domain(inherited) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(inherited) == Ok(kind)
        && rustix::net::getpeername(inherited).is_ok();
    if !is {
        return Err(Refused::ByHand);
    }
    let own = || {
        let own = rustix::io::fcntl_dupfd_cloexec(inherited, link::DONATIONS_FD + 1)?;
        rustix::io::ioctl_fionbio(&own, true)?;
        Ok(own)
    };
    own().map_err(|errno: Errno| Refused::Failed("the link could not be set up", errno.into()))
}

/// Nothing that is printed or read by mistake may reach the link.
fn leave_stdio() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

/// Blocked in every thread from here on.
#[derive(Debug)]
pub(super) struct Masked(SignalFd);

impl Masked {
    /// Only one of them ends us; Ctrl-C at a terminal that runs the daemon is the daemon's to act on. Waited for on
    /// a thread, which ends with the process.
    pub(super) fn when_terminated(self) -> io::Result<oneshot::Receiver<()>> {
        let (tell, told) = oneshot::channel();
        let thread = std::thread::Builder::new().name("signals".to_owned()).stack_size(SMALL_STACK);
        thread.spawn(move || {
            if self.wait_for_terminate().is_ok() {
                match tell.send(()) {
                    // An error: we are ending already.
                    Ok(()) | Err(()) => {}
                }
            }
        })?;
        Ok(told)
    }

    fn wait_for_terminate(&self) -> io::Result<()> {
        loop {
            match self.0.read()? {
                Some(Signal::Terminate) => return Ok(()),
                Some(Signal::Interrupt | Signal::Hangup | Signal::Quit | Signal::WindowChange) => {}
                None => match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                },
            }
        }
    }
}
