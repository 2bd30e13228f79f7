//! The words of the link, one function each. Nothing is decided here: a request goes to an execution's thread, an
//! order to the execution it names.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use stockade_executor::survey::ServiceProfiles;
use stockade_executor::{Abort, LayerFact, layer_facts, orders};
use stockade_proto::link::{
    self, Ended, Execute, Greeting, Hello, ID_LIMIT, LayerState, NotRun, Shutdown, Started, Stop, Terms,
    Write, error, method,
};
use stockade_proto::{Bytes, Cancel, Code, Fault, Layer, Stdin as Piping};
use stockade_redact::Redactor;
use stockade_rpc::{Context, Error, Limits, Params, RawValue, Service, to_raw_value};
use tokio::sync::oneshot;

use super::carry::{Carriage, Tell};
use super::donations::Donations;
use super::executions::{Entry, Executions, MOST, NoPlace};
use super::source::Source;
use super::stdin::{NotWritten, Stdin};
use super::workers::{Job, Workers};

/// That one has begun is told with its result, if that takes no longer: each word wakes two processes.
const PATIENCE: Duration = Duration::from_millis(20);
/// When one of many executions may have ended.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// A service has a handful.
const MOST_PROFILES: usize = 256;
/// For killed trees, after the time that the daemon gave.
const KILLED: Duration = Duration::from_secs(5);
/// No more than this is waited for, whatever the daemon says.
const LONGEST_SHUTDOWN: Duration = Duration::from_secs(60 * 60);
/// What a response has around its result.
const ENVELOPE: usize = 4096;

#[derive(Debug)]
pub(super) struct Link {
    executions: Arc<Executions>,
    donations: Arc<Donations>,
    redactor: Redactor,
    limits: LayerFact,
    /// Once hello was said; another one with other terms.
    source: Mutex<Option<Arc<Source>>>,
    workers: Arc<Workers>,
}

impl Service for Link {
    type Answer = Text;

    async fn call(&self, method: &str, params: Params, context: Context) -> Result<Text, Error> {
        if method == method::HELLO {
            return self.hello(&params, &context);
        }
        let Some(source) = self.source().clone() else {
            return Err(Error::refused("`hello` comes first"));
        };
        match method {
            method::PING => done(),
            method::EXECUTE => self.execute(params.read()?, source, &context).await,
            method::STOP => self.stop(&params.read()?),
            method::WRITE => self.write(params.read()?).await,
            method::TERMS => self.terms(params.read()?),
            method::SHUTDOWN => self.shutdown(&params.read()?, &context).await,
            _ => Err(Error::unknown_method(method)),
        }
    }

    fn urgent(&self, method: &str) -> bool {
        matches!(method, method::HELLO | method::PING | method::STOP | method::SHUTDOWN)
    }
}

impl Link {
    pub(super) fn new(
        executions: Arc<Executions>,
        workers: Arc<Workers>,
        donations: Arc<Donations>,
        redactor: Redactor,
        limits: LayerFact,
    ) -> Self {
        Self { executions, donations, redactor, limits, source: Mutex::new(None), workers }
    }

    fn hello(&self, params: &Params, context: &Context) -> Result<Text, Error> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = params.read()?;
        if version != link::VERSION {
            context.peer().close();
            let message = format!("this executor speaks version {}, not {version}", link::VERSION);
            return Err(Error::new(error::VERSION, message));
        }
        let Hello { terms, .. } = params.read()?;
        if self.source().is_some() {
            return Err(Error::refused("`hello` was said already"));
        }
        self.terms(terms)?;
        text(&Greeting { version: link::VERSION, pid: std::process::id(), layers: self.layers() })
    }

    fn source(&self) -> MutexGuard<'_, Option<Arc<Source>>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What runs goes on under the terms that it began with.
    fn terms(&self, terms: Terms) -> Result<Text, Error> {
        let Terms { profiles, walls_required } = terms;
        if profiles.len() > MOST_PROFILES {
            return Err(Error::bad_params("profiles", format!("more than {MOST_PROFILES}")));
        }
        let profiles = ServiceProfiles::new(profiles)
            .map_err(|refusal| Error::bad_params("profiles", refusal.message))?;
        let profiles = if walls_required { profiles.with_walls_required() } else { profiles };
        *self.source() = Some(Arc::new(Source::new(profiles)));
        done()
    }

    fn layers(&self) -> Vec<LayerState> {
        let facts = layer_facts().into_iter().map(|fact| match fact.layer {
            Layer::Limits => self.limits.clone(),
            Layer::Filesystem
            | Layer::Landlock
            | Layer::Process
            | Layer::Network
            | Layer::Seccomp
            | Layer::Sockets => fact,
        });
        let missing = |fact: LayerFact| fact.unavailable.map(|(why, _)| why);
        facts.map(|fact| LayerState { layer: fact.layer, missing: missing(fact) }).collect()
    }

    async fn execute(&self, asked: Execute, source: Arc<Source>, context: &Context) -> Result<Text, Error> {
        let (tell, started, mut ended) = {
            let (started, hear_started) = oneshot::channel();
            let (ended, hear_ended) = oneshot::channel();
            (Tell { started, ended }, hear_started, hear_ended)
        };
        self.begin(asked, source, tell)?;
        let early = tokio::time::timeout(PATIENCE, &mut ended).await;
        // An error: it was not run.
        let started = started.await.ok().map(|(word, since)| {
            let ago_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            Started { ago_us, ..word }
        });
        let (started, ended) = match early {
            Ok(ended @ Ok(Ok(_))) => (started, ended),
            other => {
                if let Some(word) = started {
                    match context.peer().notify(method::STARTED, &word).await {
                        // An error: the link is over, and so is the execution.
                        Ok(()) | Err(_) => {}
                    }
                }
                let ended = match other {
                    Ok(ended) => ended,
                    Err(_) => ended.await,
                };
                (None, ended)
            }
        };
        match ended {
            Ok(Ok(result)) => fitting(Ended { started, result }),
            Ok(Err(abort)) => Err(not_run(abort)),
            // Its thread ended without a word.
            Err(_) => Err(Error::internal()),
        }
    }

    fn begin(&self, asked: Execute, source: Arc<Source>, tell: Tell) -> Result<(), Error> {
        let Execute { execution, request, place: workspace } = asked;
        if execution.is_empty()
            || execution.len() > ID_LIMIT
            || !execution.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(Error::bad_params("execution", "not an id"));
        }
        // First: dropped with any failure below, and what comes for it is closed.
        let output = self.donations.expect(&execution);
        let (orders, heard) = orders().map_err(|error| fault("orders can't be given to it", &error))?;
        let (stdin, read) = match request.stdin {
            Piping::Null => (None, None),
            Piping::Piped => {
                let (stdin, read) = Stdin::new().map_err(|error| fault("its stdin can't be made", &error))?;
                (Some(stdin), Some(read))
            }
        };
        let place = self.executions.enter(&execution, Entry::new(orders, stdin)).map_err(no_place)?;
        let redactor = self.redactor.clone();
        let carriage = Carriage {
            execution,
            request,
            place: workspace,
            source,
            redactor,
            output,
            stdin: read,
            orders: heard,
        };
        let begun = self.workers.run(Job { carriage, tell, place });
        begun.map_err(|error| fault("a thread for it can't be started", &error))
    }

    fn entry(&self, execution: &str) -> Result<Arc<Entry>, Error> {
        let unknown = || {
            let id = Bytes::from(execution.get(..ID_LIMIT).unwrap_or(execution));
            Error::new(error::UNKNOWN_EXECUTION, format!("no execution {id} runs here"))
        };
        self.executions.get(execution).ok_or_else(unknown)
    }

    fn stop(&self, asked: &Stop) -> Result<Text, Error> {
        self.entry(&asked.execution)?.stop(asked.by);
        done()
    }

    async fn write(&self, asked: Write) -> Result<Text, Error> {
        let entry = self.entry(&asked.execution)?;
        let closed = |why| Err(Error::new(error::STDIN_CLOSED, why));
        let Some(stdin) = &entry.stdin else { return closed("its stdin was not asked for") };
        match stdin.write(asked.bytes.as_slice(), asked.end).await {
            Ok(()) => done(),
            Err(NotWritten::Ended) => closed("its stdin was ended by an earlier write"),
            Err(NotWritten::Closed) => closed("the command has closed its stdin"),
            Err(NotWritten::Busy) => Err(Error::busy("too many writes wait for this command", RETRY_AFTER)),
            Err(NotWritten::Slow { written }) => {
                let busy = Error::busy("the command does not read its stdin", RETRY_AFTER);
                let retry_after_ms = u64::try_from(RETRY_AFTER.as_millis()).unwrap_or(u64::MAX);
                Err(busy.with_data(json!({ "retry_after_ms": retry_after_ms, "written": written })))
            }
        }
    }

    async fn shutdown(&self, asked: &Shutdown, context: &Context) -> Result<Text, Error> {
        let grace = Duration::from_millis(asked.timeout_ms).min(LONGEST_SHUTDOWN);
        self.executions.end(Cancel::Terminate, grace, KILLED).await;
        // What ended is answered first, then this.
        context.peer().close();
        done()
    }
}

/// An answer as it goes over the link: written once.
type Text = Box<RawValue>;

fn text(answer: &impl Serialize) -> Result<Text, Error> {
    to_raw_value(answer).map_err(|_| Error::internal())
}

fn done() -> Result<Text, Error> {
    text(&json!({}))
}

/// An answer has to fit a frame: the daemon knows the command that it sent, and events tell all that was blocked.
fn fitting(mut ended: Ended) -> Result<Text, Error> {
    const MOST_BLOCKED: usize = 64;
    let fits = |text: &RawValue| text.get().len() + ENVELOPE <= Limits::link().frame;
    let whole = text(&ended)?;
    if fits(&whole) {
        return Ok(whole);
    }
    ended.result.command.truncate(1);
    let short = text(&ended)?;
    if fits(&short) {
        return Ok(short);
    }
    ended.result.command.clear();
    ended.result.blocked.truncate(MOST_BLOCKED);
    ended.result.traffic.truncate(MOST_BLOCKED);
    ended.result.unreached.truncate(MOST_BLOCKED);
    text(&ended)
}

fn no_place(why: NoPlace) -> Error {
    match why {
        NoPlace::Full => Error::busy(format!("{MOST} executions run already"), RETRY_AFTER),
        NoPlace::Taken => Error::bad_params("execution", "one of that id runs already"),
        NoPlace::Closing => Error::refused("this executor is ending"),
    }
}

fn fault(what: &str, error: &std::io::Error) -> Error {
    not_run(
        Fault::new(
            Code::SuperviseFailed,
            format!("{what}: {error}"),
            "Raise the number of open files (`ulimit -n`) and of processes (`ulimit -u`).",
        )
        .into(),
    )
}

fn not_run(abort: Abort) -> Error {
    let message = abort.to_string();
    let not_run = match abort {
        Abort::Refusal(refusal) => NotRun::Refusal(refusal),
        Abort::Profile(error) => NotRun::Refusal(error.refusal),
        Abort::Fault(fault) => NotRun::Fault(fault),
    };
    match serde_json::to_value(&not_run) {
        Ok(data) => Error::new(error::NOT_RUN, message).with_data(data),
        Err(_) => Error::internal(),
    }
}
