//! One life of the service: take the state directory, outlive an earlier executor, open the store, start our own
//! executor, open the doors, serve until told to stop, drain.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stockade_proto::link;
use stockade_redact::{Redactor, SecretError};
use stockade_rpc::ListenError;
use stockade_store::{OpenError, Store};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::admission::Admission;
use crate::config::Config;
use crate::core::{Core, Current};
use crate::dispatch::{Dispatch, Terms, keep};
use crate::doors::{http, socket};
use crate::events::Events;
use crate::execution::InHand;
use crate::inherited::Inherited;
use crate::metrics::Metrics;
use crate::pipeline::PLANS;
use crate::record::{Record, chain};
use crate::refusals::Refusals;
use crate::stray::Mark;
use crate::telemetry::Telemetry;
use crate::{noting, retention, systemd, unlogged};

/// For the first executor. Without one the doors open all the same, and say so to callers.
const FIRST_EXECUTOR: Duration = Duration::from_secs(10);
/// For the last answers, when nothing runs any more.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// For an executor that is told to end everything at once.
const AT_ONCE: Duration = Duration::from_millis(500);
/// What ending the executor takes beyond the time that executions have.
const LEAVING: Duration = Duration::from_secs(60);

/// Told at the start, and when a reload takes the secret away.
pub const NO_SECRET: &str =
    "NO SECRET: everybody on this machine can run commands through the HTTP door; set EXECUTOR_SECRET";

/// How often it is looked whether what was admitted runs by now.
const ADMITTED: Duration = Duration::from_millis(10);

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    No,
    /// What runs may end, within the configured time.
    Drain,
    AtOnce,
}

/// What a service is told while it runs.
#[derive(Debug)]
pub struct Orders {
    pub stop: watch::Receiver<Stop>,
    /// Configurations to go on with.
    pub reload: mpsc::Receiver<Config>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the directory {} can't be made", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the store can't be opened")]
    Store(#[from] OpenError),
    #[error("the socket door can't be opened")]
    Socket(#[from] ListenError),
    #[error("the HTTP door can't be opened")]
    Http(#[from] http::BindError),
    #[error("the shapes of tokens can't be compiled")]
    Redactor(#[source] SecretError),
    #[error("spans can't be sent")]
    Telemetry(#[source] opentelemetry_otlp::ExporterBuildError),
    #[error("there is no executor to start")]
    Executor(#[source] io::Error),
    #[error("an executor of an earlier run does not end")]
    Stray(#[source] io::Error),
}

/// Serves until it is told to stop, and then until what runs has ended or its time is over.
pub async fn serve(config: Config, inherited: Inherited, mut orders: Orders) -> Result<(), ServeError> {
    let program = Terms::find().map_err(ServeError::Executor)?;
    make_directories(&config)?;
    let mark = Mark::new(&config.state);
    let record = open_record(&config, &mark)?;
    let (links, link) = watch::channel(None);
    let (service, service_view) = watch::channel(config.service.clone());
    let (end, ended) = watch::channel(false);
    let metrics = Metrics::default();
    let telemetry = Telemetry::start(config.telemetry.as_ref(), metrics.spans_dropped.clone())
        .map_err(ServeError::Telemetry)?;
    let core = Arc::new(Core {
        telemetry,
        admission: Admission::new(config.capacity),
        dispatch: Dispatch::new(link),
        record,
        in_hand: InHand::default(),
        begun: Arc::default(),
        plans: Arc::new(Semaphore::new(PLANS)),
        events: Events::default(),
        metrics,
        refusals: Refusals::default(),
        redactor: Redactor::new(&[], true).map_err(ServeError::Redactor)?,
        current: Current::new(config),
    });
    let terms = Terms { program, service: service_view, mark };
    let keeping = tokio::spawn(keep(Arc::downgrade(&core), terms, links, ended));
    core.dispatch.await_executor(FIRST_EXECUTOR).await;
    let (close, closed) = watch::channel(false);
    let doors = open_doors(&core, inherited, &closed)?;
    let noting = tokio::spawn(noting::note(Arc::downgrade(&core), Arc::clone(&core.begun)));
    let forgetting = tokio::spawn(retention::forget(Arc::downgrade(&core)));
    let logging = tokio::spawn(unlogged::log(Arc::downgrade(&core)));
    let beating = tokio::spawn(systemd::watchdog());
    systemd::ready();
    info!("serving");
    until_stopped(&core, &service, &mut orders).await;
    systemd::stopping(core.config().drain + LEAVING);
    drain(&core, &mut orders.stop).await;
    close.send_replace(true);
    finish(doors).await;
    end.send_replace(true);
    match keeping.await {
        Ok(()) | Err(_) => {}
    }
    // What the disk takes again is not to be called lost by the next start.
    core.record.catch_up().await;
    noting.abort();
    forgetting.abort();
    logging.abort();
    beating.abort();
    core.telemetry.finish().await;
    info!("stopped");
    Ok(())
}

/// Each door: bind, say where, serve until `closed`.
fn open_doors(
    core: &Arc<Core>,
    inherited: Inherited,
    closed: &watch::Receiver<bool>,
) -> Result<JoinSet<()>, ServeError> {
    let config = core.config();
    let mut doors = JoinSet::new();
    if let Some(door) = &config.socket {
        let listener = socket::bind(door, inherited.socket)?;
        info!("socket: listening on {}", door.path.display());
        doors.spawn(socket::serve(Arc::clone(core), listener, closed.clone()));
    }
    if let Some(door) = &config.http {
        let listening = match inherited.http {
            Some(socket) => http::inherit(door, socket.into())?,
            None => http::bind(door)?,
        };
        info!("http: listening on {}", listening.address());
        let serving = http::serve(Arc::clone(core), listening, closed.clone());
        doors.spawn(async move {
            if let Err(reason) = serving.await {
                error!("the HTTP door is closed: {reason}");
            }
        });
    }
    Ok(doors)
}

/// The state directory is made by the store.
fn make_directories(config: &Config) -> Result<(), ServeError> {
    let make = |path: &Path| {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| ServeError::Directory { path: path.to_owned(), source })
    };
    // Who may come in is the socket's own to say, so that others pass where others are named.
    let socket = config.socket.as_ref();
    let private = socket.is_some_and(|door| door.uids.is_empty() && door.gids.is_empty());
    if let Some(parent) = socket.and_then(|door| door.path.parent()).filter(|_| private) {
        make(parent)?;
    }
    if config.workspaces.default.starts_with(&config.state) {
        make(&config.workspaces.default)
    } else {
        Ok(())
    }
}

/// The lock first: only who has it may say that an earlier executor is a stray one, and only when that is gone are
/// its executions over.
fn open_record(config: &Config, mark: &Mark) -> Result<Record, ServeError> {
    let locked = Store::lock(&config.state)?.with_credential(config.secrets_key.clone());
    mark.outlive().map_err(ServeError::Stray)?;
    let (record, lost) = Record::take(locked)?;
    if !lost.is_empty() {
        warn!(
            count = lost.len(),
            "executions of an earlier run were lost; they are on record as UZ-EXEC-003"
        );
    }
    Ok(record)
}

async fn until_stopped(core: &Core, service: &watch::Sender<link::Terms>, orders: &mut Orders) {
    loop {
        tokio::select! {
            stop = orders.stop.wait_for(|stop| *stop > Stop::No) => return drop(stop),
            Some(config) = orders.reload.recv() => {
                service.send_if_modified(|now| {
                    let changed = *now != config.service;
                    now.clone_from(&config.service);
                    changed
                });
                let (config, waits) = config.following(&core.config());
                if !waits.is_empty() {
                    warn!("changed, and in force after a restart only: {}", waits.join(", "));
                }
                let guarded = |config: &Config| config.http.as_ref().is_none_or(|door| door.secret.is_some());
                if guarded(&core.config()) && !guarded(&config) {
                    warn!("{NO_SECRET}");
                }
                if core.config().telemetry != config.telemetry
                    && let Err(error) = core.telemetry.follow(config.telemetry.as_ref())
                {
                    error!("spans go where they went: {}", chain(&error));
                }
                core.current.replace(config);
            }
        }
    }
}

/// Nobody is admitted any more; until nothing runs, or the time for that is over, or there is no time.
async fn drain(core: &Core, stop: &mut watch::Receiver<Stop>) {
    core.admission.drain();
    let within = core.config().drain;
    info!(running = core.in_hand.all().len(), "stopping: no more executions are taken");
    let all = async {
        // Who has a seat may not be in hand yet, and has been told that it is taken.
        while core.admission.load().running > 0 {
            for execution in core.in_hand.all() {
                execution.ended().await;
            }
            tokio::time::sleep(ADMITTED).await;
        }
    };
    let left = tokio::select! {
        drained = tokio::time::timeout(within, all) => {
            if drained.is_err() {
                warn!("executions still run after {within:?}: they are stopped");
            }
            None
        }
        at_once = stop.wait_for(|stop| *stop == Stop::AtOnce) => {
            drop(at_once);
            warn!("told again: what runs is stopped at once");
            Some(AT_ONCE)
        }
    };
    core.dispatch.shutdown(left.unwrap_or(LAST_ANSWERS)).await;
}

async fn finish(mut doors: JoinSet<()>) {
    let all = async { while doors.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS, all).await.is_err() {
        warn!("a door still has callers: they are cut off");
    }
}
