//! The line of the service, one verb per line: receive (a door) → admit → plan → open → dispatch → stream → close →
//! record. Every door comes through [`start`]; there is no other way to an executor. An executor plans while the record
//! is opened, and runs nothing before it has the file for the output, which only an opened record has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_proto::link::{Ended, Execute, Place, Started, Stop};
use stockade_proto::{Code, Command, Request};
use stockade_store::ExecutionId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::admission::{Offered, Seat};
use crate::attached::Attached;
use crate::core::Core;
use crate::denied::Denied;
use crate::dispatch::Ordered;
use crate::ending::Ending;
use crate::execution::{Execution, Phase};
use crate::principal::Principal;
use crate::record::{Open, OpenedAs};
use crate::telling;

/// How a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    Http,
    V1,
    Socket,
}

impl Door {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::V1 => "v1",
            Self::Socket => "socket",
        }
    }
}

/// What a door made of a caller's bytes.
#[derive(Debug, Clone)]
pub struct Ask {
    pub door: Door,
    pub principal: Principal,
    pub request: Request,
    /// The same principal with the same key means the same execution.
    pub key: Option<String>,
}

/// A request that has a seat.
#[derive(Debug)]
struct Admitted {
    asked: Instant,
    waited: Duration,
    ask: Ask,
    seat: Offered,
}

/// An admitted request, complete: what the executor gets, and how records name it.
#[derive(Debug)]
pub struct Order {
    pub id: ExecutionId,
    pub asked: Instant,
    /// For its seat.
    pub waited: Duration,
    pub seat: Seat,
    pub door: Door,
    pub principal: String,
    pub request: Request,
    /// The workspace that was checked: the executor takes no other.
    pub place: Place,
    pub key: Option<String>,
    /// The command as text, with what looks like a token taken out.
    pub shown: String,
}

/// What became of asking.
#[derive(Debug, Clone)]
pub enum Start {
    New(Arc<Execution>),
    /// Of an earlier request with the same key; it may have ended long ago.
    Known(ExecutionId),
}

/// The same, for a caller that waits for the end.
#[derive(Debug)]
pub enum AttachedStart {
    New(Attached),
    Known(ExecutionId),
}

/// Returns when the execution is on record and on its way; it goes on whether or not the caller does.
pub async fn start(core: &Arc<Core>, ask: Ask) -> Result<Start, Denied> {
    begin(core, ask, |_, start| start).await
}

/// A caller that leaves takes its execution along, also before it hears of it: what nobody took is ended.
pub async fn start_attached(core: &Arc<Core>, ask: Ask) -> Result<AttachedStart, Denied> {
    begin(core, ask, |core, start| match start {
        Start::New(execution) => AttachedStart::New(Attached::new(core, execution)),
        Start::Known(known) => AttachedStart::Known(known),
    })
    .await
}

async fn begin<T: Send + 'static>(
    core: &Arc<Core>,
    ask: Ask,
    hand: fn(&Arc<Core>, Start) -> T,
) -> Result<T, Denied> {
    let (door, principal) = (ask.door, ask.principal.clone());
    let begun = admitted(core, ask, hand).await;
    begun.inspect_err(|denied| core.refused(door, principal.name(), denied))
}

async fn admitted<T: Send + 'static>(
    core: &Arc<Core>,
    ask: Ask,
    hand: fn(&Arc<Core>, Start) -> T,
) -> Result<T, Denied> {
    // What no kernel takes waits for no place.
    stockade_policy::check_length(&ask.request.command).map_err(Denied::from)?;
    if let Some(known) = known(core, &ask).await? {
        return Ok(hand(core, Start::Known(known)));
    }
    let asked = Instant::now();
    let seat = core.admission.admit(&ask.principal).await;
    let waited = asked.elapsed();
    core.metrics.waited(waited);
    let seat = seat?;
    let place = place_to_plan(core).await?;
    // Its seat is the caller's to give back until the execution is put on record.
    let (offer, seat) = seat.offer();
    let admitted = Admitted { asked, waited, ask, seat };
    let (tell, told) = oneshot::channel();
    // A task of its own: a caller that leaves now would leave half an execution on record.
    let core = Arc::clone(core);
    tokio::spawn(async move {
        let opened = open(&core, admitted, place).await.map(|start| hand(&core, start));
        // Unheard, or never taken out again: dropped, and with it what hangs on it.
        drop(tell.send(opened));
    });
    let told = told.await.unwrap_or_else(|_| Err(Denied::stopping()));
    drop(offer);
    told
}

/// Plans and puts on record, on a thread that may wait: a caller names the path, and what answers there may be a network
/// file system that does not. A caller that has left by then is not put on record. An executor makes its plan meanwhile.
async fn open(core: &Arc<Core>, admitted: Admitted, place: OwnedSemaphorePermit) -> Result<Start, Denied> {
    let (own, dispatch) = (Arc::clone(core), core.dispatch.clone());
    let (tell, told) = oneshot::channel();
    let order = move || {
        let order = plan(&own, admitted)?;
        drop(place);
        // Unheard, where the service is going away.
        drop(tell.send(order.execute()));
        Ok(order)
    };
    let ordered = tokio::spawn(async move {
        match told.await {
            Ok(execute) => dispatch.order(&execute).await,
            Err(_) => Err(Denied::stopping()),
        }
    });
    match core.record.open(order).await {
        Ok((order, OpenedAs::New(open))) => {
            let execution = core.in_hand.insert(order.id, &order.principal);
            tokio::spawn(carry_out(Arc::clone(core), order, ordered, *open, Arc::clone(&execution)));
            Ok(Start::New(execution))
        }
        Ok((order, OpenedAs::Known(known))) => {
            withdraw(ordered, Some(order));
            Ok(Start::Known(known))
        }
        Err(denied) => {
            withdraw(ordered, None);
            Err(denied)
        }
    }
}

/// On its way to an executor.
type Ordering = JoinHandle<Result<Ordered, Denied>>;

/// It is not on record, so nothing is to become of it. Until the executor knows that, it has its seat.
fn withdraw(ordered: Ordering, order: Option<Order>) {
    tokio::spawn(async move {
        if let Ok(Ok(ordered)) = ordered.await {
            ordered.withdraw().await;
        }
        drop(order);
    });
}

async fn known(core: &Core, ask: &Ask) -> Result<Option<ExecutionId>, Denied> {
    match &ask.key {
        Some(key) => core.record.by_key(ask.principal.name(), key).await,
        None => Ok(None),
    }
}

/// Few at a time, so that plans which hang leave threads for the store.
async fn place_to_plan(core: &Core) -> Result<OwnedSemaphorePermit, Denied> {
    let place = Arc::clone(&core.plans).acquire_owned();
    tokio::time::timeout(PLANNED, place).await.ok().and_then(Result::ok).ok_or_else(|| {
        Denied::refuse(Code::TooBusy, "too many workspaces are being looked at", "Try again in a moment.")
            .after(Duration::from_secs(1))
    })
}

/// The service's own terms: everything else is planned where the walls are built, from the host as it is there.
fn plan(core: &Core, admitted: Admitted) -> Result<Order, Denied> {
    let Admitted { asked, waited, ask, seat } = admitted;
    let Ask { door, principal, request, key } = ask;
    let config = core.config();
    let workspace = config.workspaces.check(&request)?;
    let request = Request { workspace: workspace.path, ..request };
    config.check_profile(&request.profile)?;
    let shown = shown(core, &request.command);
    // None: the caller has left meanwhile, and took it along.
    let seat = seat.take().ok_or_else(Denied::stopping)?;
    Ok(Order {
        id: ExecutionId::new(),
        asked,
        waited,
        seat,
        door,
        principal: principal.name().to_owned(),
        request,
        place: workspace.place,
        key,
        shown,
    })
}

async fn carry_out(core: Arc<Core>, order: Order, ordered: Ordering, open: Open, execution: Arc<Execution>) {
    let Open { ticket, output } = open;
    let id = order.id;
    let about = core.telemetry.about(&order);
    let ordered = match ordered.await.unwrap_or_else(|_| Err(Denied::stopping())) {
        // It was not run there, and there may be another by now.
        Ok(ordered) if ordered.is_lost() => core.dispatch.order(&order.execute()).await,
        other => other,
    };
    let ended = match ordered {
        Ok(ordered) => ordered.execute(output).await,
        Err(denied) => Err(denied),
    };
    let ending = match ended {
        Ok(Ended { started: word, result }) => {
            if let Some(word) = word {
                started(&core, word);
            }
            Ending::Result(Box::new(result))
        }
        Err(denied) => Ending::NotRun(denied.why),
    };
    let (ending, over) = (Arc::new(ending), Instant::now());
    let output = core.record.close(ticket, execution.started_ms(), Arc::clone(&ending)).await;
    telling::ended(&core, about, &execution, &telling::Ended { ending: &ending, over });
    if order.door != Door::Http {
        // Of one that its caller waits for, that request's line tells.
        let ms = order.asked.elapsed().as_millis();
        info!(execution = %id, door = order.door.name(), outcome = ending.word(), ms, "ended");
    }
    drop(order.seat);
    core.in_hand.remove(id);
    execution.end(ending, output);
}

/// The executor's word that the sandbox of an execution is being built.
pub(crate) fn started(core: &Core, started: Started) {
    let Ok(id) = started.execution.parse::<ExecutionId>() else { return };
    let Some(execution) = core.in_hand.get(id) else { return };
    execution.turn(Phase::Running(Arc::new(started)));
    telling::started(core, &execution);
    if let Some(by) = execution.take_stop() {
        let dispatch = core.dispatch.clone();
        tokio::spawn(async move {
            if let Err(denied) = dispatch.stop(Stop { execution: id.to_string(), by }).await {
                warn!(execution = %id, "it is not stopped: {}", denied.message());
            }
        });
    }
    core.begun.notify_one();
}

/// For others to have been planned.
const PLANNED: Duration = Duration::from_secs(10);
/// Plans at a time.
pub(crate) const PLANS: usize = 8;

/// Of a command, before it is cut: what looks like a token and lies across the cut is still seen whole.
const LOOKED_AT: usize = stockade_store::executions::COMMAND_LIMIT + (16 << 10);

/// Characters of a command in the audit log; the record has more.
const AUDITED: usize = 4096;

impl Order {
    fn execute(&self) -> Execute {
        Execute { execution: self.id.to_string(), request: self.request.clone(), place: self.place }
    }

    pub(crate) fn audited_command(&self) -> String {
        cut(self.shown.clone(), AUDITED)
    }
}

fn shown(core: &Core, command: &Command) -> String {
    let mut text = String::new();
    match command {
        Command::Argv(argv) => {
            for arg in argv {
                if text.len() >= LOOKED_AT {
                    break;
                }
                text.push_str(if text.is_empty() { "" } else { " " });
                text.push_str(&arg.to_string());
            }
        }
        Command::Shell { text: shell, .. } => text.push_str(&shell.to_string()),
    }
    let text = core.redactor.redact(text.as_bytes());
    cut(String::from_utf8_lossy(&text).into_owned(), stockade_store::executions::COMMAND_LIMIT)
}

pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}
