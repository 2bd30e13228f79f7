//! The door: get ready, start over a listener, be told of a failure, stop.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use stockade_charge::Charge;
use stockade_sys::notify;
use thiserror::Error;

use crate::call::Ground;
use crate::crew::{Crew, found_at};
use crate::decide::{Decide, Witness};
use crate::identity::Identity;
use crate::own::Own;
use crate::process::Processes;
use crate::queued::Queued;

/// Threads are interrupted in their calls, so only a file system that hangs needs this long.
const STOP: Duration = Duration::from_secs(3);
/// An interrupt that comes just before a call begins is not heard, so it is repeated.
const STOP_STEP: Duration = Duration::from_millis(2);

/// What is known before the sandbox is ready.
pub struct Config {
    pub execution: String,
    pub decide: Arc<dyn Decide>,
    pub witness: Arc<dyn Witness>,
    /// Who pays for the threads' time.
    pub charge: Arc<Charge>,
    /// Host user and group of the sandbox, and never root's: needed where the executor is root.
    pub identity: Option<(u32, u32)>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("execution", &self.execution)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// What the sandbox gives.
#[derive(Debug)]
pub struct Sandbox {
    /// Made by the `sockets` filter, with SECCOMP_FILTER_FLAG_NEW_LISTENER and WAIT_KILLABLE_RECV.
    pub listener: OwnedFd,
    /// Its Landlock ruleset: what it may not make by itself it may not bind either.
    pub landlock: Option<OwnedFd>,
    /// A [`crate::diagnosis`] of its network namespace.
    pub diagnosis: OwnedFd,
}

/// A supervisor without a sandbox.
#[derive(Debug)]
pub struct Prepared {
    config: Config,
    identity: Option<Identity>,
}

#[derive(Debug, Error)]
pub enum StartError {
    #[error("{path} can't be opened")]
    Proc { path: &'static str, source: Errno },
    #[error("the supervisor's own descriptors can't be made")]
    Descriptors { source: Errno },
    #[error("the supervisor's signal can't be set up")]
    Signal { source: io::Error },
    #[error("as root, the supervisor must be told which ordinary user the command is")]
    Root,
    #[error("the supervisor's threads can't be started")]
    Threads { source: io::Error },
}

#[derive(Debug, Error)]
pub enum StopError {
    /// They hold a call that nothing interrupts; they end with it.
    #[error("threads of the socket supervisor are still in a call")]
    StillBusy,
}

/// Answers the waiting calls of one execution, once it is awake. Kill the tree before this goes: calls that nobody answers
/// are ENOSYS.
#[derive(Debug)]
pub struct Supervisor {
    state: State,
}

/// Many commands never call: what answering takes is made for those that do.
#[derive(Debug)]
enum State {
    Asleep(Box<(Prepared, Sandbox)>),
    Awake(Arc<Crew>),
    /// Nobody is left who could call.
    Needless,
}

/// What the threads share.
struct Tools {
    proc: OwnedFd,
    descriptors: OwnedFd,
    signals: [OwnedFd; 3],
}

impl Tools {
    fn new() -> Result<Self, StartError> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let alarm =
            || timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK);
        let signals = || Ok([event()?, event()?, alarm()?]);
        Ok(Self {
            proc: open_proc("/proc")?,
            descriptors: open_proc("/proc/self/fd")?,
            signals: signals().map_err(|source| StartError::Descriptors { source })?,
        })
    }
}

fn open_proc(path: &'static str) -> Result<OwnedFd, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|source| StartError::Proc { path, source })
}

/// The cookie of the network namespace that we are in.
fn own_network() -> Option<u64> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()?;
    notify::network_cookie(socket.as_fd()).ok()
}

impl Prepared {
    /// Stands ready for the calls of this sandbox.
    pub fn start(self, sandbox: Sandbox) -> Supervisor {
        if notify::switch_on_one_cpu(sandbox.listener.as_fd()).is_err() {
            // Before 6.6: the same answers, a little later.
        }
        Supervisor { state: State::Asleep(Box::new((self, sandbox))) }
    }

    fn crew(self, sandbox: Sandbox, tools: Tools) -> Crew {
        let Self { config, identity } = self;
        let ground = Ground {
            listener: sandbox.listener,
            proc: tools.proc,
            descriptors: Arc::new(tools.descriptors),
            execution: config.execution,
            decide: config.decide,
            witness: config.witness,
            charge: config.charge,
            identity,
            network: own_network(),
            landlock: sandbox.landlock,
            processes: Mutex::new(Processes::new()),
            own: Mutex::new(Own::new()),
            queued: Mutex::new(Queued::new(sandbox.diagnosis)),
            passing: AtomicUsize::new(0),
        };
        Crew::new(ground, tools.signals)
    }
}

impl Supervisor {
    /// What needs no sandbox: do it while that is being built.
    pub fn prepare(config: Config) -> Result<Prepared, StartError> {
        // What is done for the command is done as the command's user; root's name would open everything.
        let named = config.identity.is_some_and(|(uid, _)| uid != 0);
        if !named && (rustix::process::geteuid().is_root() || config.identity.is_some()) {
            return Err(StartError::Root);
        }
        notify::ready_for_interrupts().map_err(|source| StartError::Signal { source })?;
        let identity = config.identity.map(Identity::new);
        Ok(Prepared { config, identity })
    }

    /// While it sleeps: readable once [`Self::rise`] has something to do.
    pub fn asleep(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Asleep(sleeping) => Some(sleeping.1.listener.as_fd()),
            State::Awake(_) | State::Needless => None,
        }
    }

    /// Wakes it if a call waits; lets it sleep for good if there will be none.
    pub fn rise(&mut self) -> Result<(), StartError> {
        let Some(listener) = self.asleep() else { return Ok(()) };
        let found = found_at(listener).map_err(|source| StartError::Descriptors { source })?;
        if found.contains(PollFlags::IN) {
            return self.wake();
        }
        if found.contains(PollFlags::HUP) {
            self.state = State::Needless;
        }
        Ok(())
    }

    /// Starts the threads that answer. If that fails the tree must be killed, as [`Self::failed`] may say.
    pub fn wake(&mut self) -> Result<(), StartError> {
        let State::Asleep(_) = self.state else { return Ok(()) };
        // Before the listener changes hands: as long as somebody has it, calls wait.
        let tools = Tools::new()?;
        let State::Asleep(sleeping) = std::mem::replace(&mut self.state, State::Needless) else {
            return Ok(());
        };
        let (prepared, sandbox) = *sleeping;
        let crew = Arc::new(prepared.crew(sandbox, tools));
        self.state = State::Awake(Arc::clone(&crew));
        crew.begin().map_err(|source| {
            crew.fail();
            StartError::Threads { source }
        })
    }

    fn crew(&self) -> Option<&Crew> {
        match &self.state {
            State::Awake(crew) => Some(crew),
            State::Asleep(_) | State::Needless => None,
        }
    }

    /// Awake: readable once the supervisor can't do its duty any more. Then the tree must be killed.
    pub fn failed(&self) -> Option<BorrowedFd<'_>> {
        self.crew().map(|crew| crew.failed.as_fd())
    }

    /// Whether a socket was bound where others may have found it.
    pub fn bound_a_file(&self) -> bool {
        self.crew().is_some_and(|crew| crew.ground.own().had_file)
    }

    /// Ends every thread. Calls that wait are answered EINTR if they were received; ENOSYS if not, once this is dropped.
    pub fn stop(&self) -> Result<(), StopError> {
        if self.wind_down() { Ok(()) } else { Err(StopError::StillBusy) }
    }

    fn wind_down(&self) -> bool {
        let Some(crew) = self.crew() else { return true };
        crew.end();
        let deadline = Instant::now() + STOP;
        loop {
            if crew.wind_down(STOP_STEP) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // After `stop` nothing is left to do. Otherwise whoever dropped it has an error of its own to report.
        if self.crew().is_some_and(|crew| !crew.stopping.load(Ordering::SeqCst)) {
            self.wind_down();
        }
    }
}
