//! `stockaded`: the service, in the foreground. Settles what the process is, and turns signals into orders.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use stockade_daemon::config::{self, Scope, Settings, Surroundings};
use stockade_daemon::logging::{self, Logging};
use stockade_daemon::record::chain;
use stockade_daemon::{Inherited, NO_SECRET, Orders, Stop, seat, serve, systemd};
use stockade_policy::ProfileError;
use stockade_proto::exit;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

/// Each may wait for the disk. More would wait for the same one.
const BLOCKING: usize = 24;
const STACK: usize = 512 * 1024;
/// Signals that come faster than they are taken up.
const RELOADS: usize = 4;

/// The Stockade service: HTTP and JSON-RPC doors before executions that the kernel walls in.
#[derive(Debug, Parser)]
#[command(name = "stockaded", version)]
struct Arguments {
    /// The configuration to use [default: /etc/stockade/config.toml for root and with --system, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Be the system's service: its directories, and no HTTP door that nobody asked for
    #[arg(long)]
    system: bool,
    /// Be a person's service that a service manager keeps: a directory of its own to work in, and no HTTP door that
    /// nobody asked for
    #[arg(long, conflicts_with = "system")]
    unit: bool,
    /// Only see whether the configuration can be used
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let printed = error.print();
            let failed = error.use_stderr() || printed.is_err();
            return ExitCode::from(if failed { exit::REFUSED } else { 0 });
        }
    };
    match stockaded(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Refused(problem)) => {
            say(stockade_policy::render(&problem, std::io::stderr().is_terminal()).trim_end());
            ExitCode::from(exit::REFUSED)
        }
        Err(Failure::Failed(error)) => {
            say(&format!("stockaded failed: {}", chain(&*error)));
            ExitCode::from(exit::FAULT)
        }
    }
}

enum Failure {
    Refused(Box<ProfileError>),
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl From<ProfileError> for Failure {
    fn from(problem: ProfileError) -> Self {
        Self::Refused(Box::new(problem))
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Failed(Box::new(error))
}

/// For people at the start and the end, past the log.
fn say(text: &str) {
    match writeln!(std::io::stderr(), "{text}") {
        // Without a stderr there is nobody to tell.
        Ok(()) | Err(_) => {}
    }
}

fn stockaded(arguments: &Arguments) -> Result<(), Failure> {
    // Whoever may look into this process has its secret and its tokens.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed)?;
    // It may start us again.
    let secret = config::secret::take().map_err(failed)?;
    let scope = match (arguments.system, arguments.unit, rustix::process::geteuid().is_root()) {
        (true, ..) => Scope::System,
        (false, true, _) => Scope::Unit,
        (false, false, true) => Scope::Root,
        (false, false, false) => Scope::Person,
    };
    let around = Surroundings::of_this_process(scope, secret);
    let settings = config::load(arguments.config.as_deref(), &around)?;
    if arguments.check {
        say("the configuration can be used");
        return Ok(());
    }
    // Before anything is opened: passed sockets are known by their numbers.
    let inherited = Inherited::receive().map_err(failed)?;
    let logging = logging::start(settings.format, settings.level).map_err(failed)?;
    raise_descriptors();
    if let Err(reason) = seat::settle() {
        warn!("the cgroup that is delegated to this service can't be divided: {reason}");
    }
    announce(&settings);
    // The work is waiting: one thread does it, and wakes no other for it. What takes time is on those that may block.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .map_err(failed)?;
    let reread = || config::load(arguments.config.as_deref(), &around);
    runtime.block_on(live(settings, inherited, &logging, reread))
}

fn announce(settings: &Settings) {
    let Some(http) = &settings.config.http else { return };
    if http.secret.is_some() {
        return say("Auth: enabled");
    }
    say("Auth: disabled");
    warn!("{NO_SECRET}");
}

/// Every connection and every output file is a descriptor.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        warn!("the number of open files stays {:?}: {errno}", limit.current);
    }
}

async fn live(
    settings: Settings,
    inherited: Inherited,
    logging: &Logging,
    reread: impl Fn() -> Result<Settings, ProfileError>,
) -> Result<(), Failure> {
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let (stop, stopped) = watch::channel(Stop::No);
    let (reload, reloads) = mpsc::channel(RELOADS);
    let orders = Orders { stop: stopped, reload: reloads };
    let mut serving = tokio::spawn(serve(settings.config, inherited, orders));
    loop {
        tokio::select! {
            served = &mut serving => return served.map_err(failed)?.map_err(failed),
            _ = terminate.recv() => stop.send_modify(further),
            _ = interrupt.recv() => stop.send_modify(further),
            _ = hangup.recv() => {
                if *stop.borrow() > Stop::No {
                    warn!("the service is stopping: nothing is read again");
                    continue;
                }
                systemd::reloading();
                let status = match reread() {
                    Ok(settings) => {
                        // Signals are heard while the last ones are taken up: the second that says stop means at once.
                        match reload.try_send(settings.config) {
                            Ok(()) => {
                                logging.set_level(settings.level);
                                info!("reloaded");
                            }
                            Err(_) => warn!("too many reloads at once: this one changes nothing; send it again"),
                        }
                        "serving"
                    }
                    Err(problem) => {
                        let refusal = &problem.refusal;
                        error!("the configuration in force stays: {refusal}: {}", refusal.remedy);
                        "serving; the last reload failed, and the configuration before it stays"
                    }
                };
                systemd::reloaded(status);
            }
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(failed)
}

/// The first signal lets executions end, the second does not.
fn further(stop: &mut Stop) {
    *stop = match stop {
        Stop::No => Stop::Drain,
        Stop::Drain | Stop::AtOnce => Stop::AtOnce,
    };
}
