//! Keeps one executor alive: start, hello, watch, start again. Its authority is the socketpair it is born with; its
//! environment is built from a list, so that nothing of the daemon's own reaches it or what it runs.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use stockade_proto::install;
use stockade_proto::link::{self, Greeting, Hello, Started, VERSION, method};
use stockade_rpc::{CallError, Connection, Context, Error, Framing, Limits, Params, Peer, Service, Speak};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{ANSWER, Link, donate::Donations, wire};
use crate::core::Core;
use crate::pipeline;
use crate::record::chain;
use crate::stray::Mark;

const NAME: &str = "stockade-executor";
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// An executor that lived this long had no trouble starting.
const SETTLED: Duration = Duration::from_secs(10);
/// From a closed link to the end of the process: it stops what runs, by force if it must.
const LEAVING: Duration = Duration::from_secs(15);
/// How often it is asked whether it is there, and how long it may take to say so: it answers in milliseconds under any load of its
/// own. One that stands still would keep the seats of everything that it was given.
const ASKED_EVERY: Duration = Duration::from_secs(5);
const STANDS_STILL: Duration = Duration::from_secs(10);
/// Times in a row: a machine that was paused as a whole finds its clocks ahead of what it had to say.
const UNANSWERED: u32 = 2;

/// Variables of the daemon's that an executor may know, and through it the profile's own allowlist.
const PASSED: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TERM",
    "TZ",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "PYENV_ROOT",
    "NVM_DIR",
];

/// What an executor is started with.
#[derive(Debug, Clone)]
pub struct Terms {
    pub program: PathBuf,
    /// May change with a reload: the executor is told.
    pub service: watch::Receiver<link::Terms>,
    /// Where a later daemon finds which process it is.
    pub mark: Mark,
}

impl Terms {
    pub fn find() -> io::Result<PathBuf> {
        let own = std::env::current_exe()?;
        install::places(&own, NAME).into_iter().find(|place| place.is_file()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{NAME} is not beside {}: build or install it there", own.display()),
            )
        })
    }
}

/// What the executor may say to us.
struct FromExecutor {
    core: Weak<Core>,
}

impl Service for FromExecutor {
    type Answer = Value;

    async fn call(&self, method: &str, _: Params, _: Context) -> Result<Value, Error> {
        Err(Error::unknown_method(method))
    }

    async fn notified(&self, method: &str, params: Params, _: Context) {
        match (method, params.read::<Started>(), self.core.upgrade()) {
            (method::STARTED, Ok(started), Some(core)) => pipeline::started(&core, started),
            (method::STARTED, Ok(_), None) => {}
            (other, _, _) => warn!("the executor says {other:?}, which nobody understands"),
        }
    }
}

/// Until the core is gone or `stop` is set. Every link that stands is in `links`.
pub(crate) async fn keep(
    core: Weak<Core>,
    terms: Terms,
    links: watch::Sender<Option<Link>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = FIRST_PAUSE;
    while !*stop.borrow() {
        let started = tokio::time::Instant::now();
        match start(&core, &terms).await {
            Ok(running) => {
                info!(pid = running.link.greeting.pid, "executor started");
                links.send_replace(Some(running.link.clone()));
                running.until_gone(&terms, &links, &mut stop).await;
                terms.mark.clear();
            }
            Err(reason) => error!("the executor could not be started: {}", chain(&reason)),
        }
        if *stop.borrow() {
            break;
        }
        pause = if started.elapsed() > SETTLED { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        if let Some(core) = core.upgrade() {
            core.metrics.restarted();
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = stop.changed() => drop(changed),
        }
    }
}

struct Running {
    child: Child,
    link: Link,
    served: tokio::task::JoinHandle<()>,
    gone: watch::Sender<bool>,
}

impl Running {
    async fn until_gone(
        mut self,
        terms: &Terms,
        links: &watch::Sender<Option<Link>>,
        stop: &mut watch::Receiver<bool>,
    ) {
        let peer = self.link.peer.clone();
        let mut leaving = LEAVING;
        let ended = tokio::select! {
            ended = self.child.wait() => Some(ended),
            () = peer.closed() => None,
            () = tell_terms(&peer, terms.service.clone()) => None,
            () = until_it_stands_still(&peer) => { leaving = Duration::ZERO; None }
            changed = stop.wait_for(|stop| *stop) => { drop(changed); None }
        };
        links.send_replace(None);
        // Whoever waits for an answer is told now.
        self.served.abort();
        drop(self.link);
        let ended = match ended {
            Some(ended) => ended,
            None => match tokio::time::timeout(leaving, self.child.wait()).await {
                Ok(ended) => ended,
                Err(_) => {
                    warn!("the executor does not leave: killed");
                    self.child.kill().await.and(self.child.wait().await)
                }
            },
        };
        self.gone.send_replace(true);
        match ended {
            Ok(status) if status.success() => info!("executor ended"),
            Ok(status) => error!("the executor ended: {status}"),
            Err(reason) => error!("the executor's end can't be read: {reason}"),
        }
    }
}

/// Stopped, or at something that does not end. Comes back when nothing is to be expected of it any more; what it runs dies with it.
async fn until_it_stands_still(peer: &Peer) {
    let mut unanswered = 0;
    while unanswered < UNANSWERED {
        tokio::time::sleep(ASKED_EVERY).await;
        match peer.call(method::PING, &json!({}), STANDS_STILL).await {
            Err(CallError::TimedOut { .. }) => unanswered += 1,
            // That is seen by others, who give it time to leave.
            Err(CallError::Closed) => return std::future::pending().await,
            // Whatever it says, it says something; and what we could not ask says nothing about it.
            Ok(_)
            | Err(
                CallError::Answered(_)
                | CallError::TooMany { .. }
                | CallError::TooLong { .. }
                | CallError::NotJson,
            ) => unanswered = 0,
        }
    }
    error!("the executor does not say that it is there, and is started again");
}

/// Whenever they change. Only comes back if they were not taken.
async fn tell_terms(peer: &Peer, mut terms: watch::Receiver<link::Terms>) {
    // Those of now are in hello; a change between the two is told twice at worst.
    while terms.changed().await.is_ok() {
        let now = terms.borrow_and_update().clone();
        match peer.call(method::TERMS, &now, ANSWER).await {
            Ok(_) => info!("the executor has the new terms"),
            // What begins under old terms may be what the new ones forbid: another executor is told with its hello.
            Err(reason) => {
                return error!("the executor does not take the new terms, and is started again: {reason}");
            }
        }
    }
    std::future::pending().await
}

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("its sockets can't be made")]
    Sockets(#[source] io::Error),
    #[error("{} can't be run", .program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("which process it is can't be written down")]
    Mark(#[source] io::Error),
    #[error("it did not answer to hello")]
    Hello(#[source] stockade_rpc::CallError),
    #[error("its greeting can't be read")]
    Greeting(#[source] serde_json::Error),
    #[error("it speaks version {theirs}, and we {VERSION}: install both from one build")]
    Version { theirs: u32 },
}

async fn start(core: &Weak<Core>, terms: &Terms) -> Result<Running, StartError> {
    let (ours, theirs) = pair(SocketType::STREAM).map_err(StartError::Sockets)?;
    let (donations, their_donations) = pair(SocketType::SEQPACKET).map_err(StartError::Sockets)?;
    let child = spawn(&terms.program, theirs, their_donations)
        .map_err(|source| StartError::Spawn { program: terms.program.clone(), source })?;
    // Before hello, and so before it runs anything that a later daemon would have to wait for.
    terms.mark.set(child.id()).map_err(StartError::Mark)?;
    let halves = wire::halves(ours).map_err(StartError::Sockets)?;
    let donations = Arc::new(Donations::new(donations));
    let service = FromExecutor { core: Weak::clone(core) };
    let connection = Connection::new(halves, Speak::This(Framing::Lines), limits(), service);
    let peer = connection.peer().clone();
    let served = tokio::spawn(async move {
        let ending = connection.run().await;
        info!("the link to the executor is over: {ending:?}");
    });
    let hello = Hello { version: VERSION, terms: terms.service.borrow().clone() };
    let answer = peer.call(method::HELLO, &hello, ANSWER).await.map_err(StartError::Hello)?;
    let greeting: Greeting = serde_json::from_str(answer.get()).map_err(StartError::Greeting)?;
    if greeting.version != VERSION {
        return Err(StartError::Version { theirs: greeting.version });
    }
    let (gone, is_gone) = watch::channel(false);
    let link = Link { peer, donations, gone: is_gone, greeting: Arc::new(greeting) };
    Ok(Running { child, link, served, gone })
}

/// As between two processes of ours, and the executor may be silent for as long as nothing runs.
fn limits() -> Limits {
    Limits { first_frame: None, ..Limits::link() }
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// A process group of its own: Ctrl-C at the terminal is ours to handle.
fn spawn(program: &Path, link: OwnedFd, donations: OwnedFd) -> io::Result<Child> {
    let passed = PASSED.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value)));
    Command::new(program)
        .env_clear()
        .envs(passed)
        .stdin(Stdio::from(link))
        .stdout(Stdio::from(donations))
        .stderr(Stdio::inherit())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

const _: () = assert!(link::LINK_FD == 0 && link::DONATIONS_FD == 1);
