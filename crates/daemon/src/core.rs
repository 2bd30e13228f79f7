//! What every door shares, and the verbs that they translate to. A door holds no policy: who may see or stop what
//! is decided here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_proto::link::{NotRun, Stop, Write};
use stockade_proto::{Bytes, Cancel, Code};
use stockade_redact::Redactor;
use stockade_store::ExecutionId;
use stockade_store::executions::{Execution as Row, Filter, Page, State};
use stockade_store::output::{Cursor, Piece, Rest};
use tokio::sync::{Notify, Semaphore, watch};

use crate::admission::Admission;
use crate::config::Config;
use crate::denied::Denied;
use crate::dispatch::Dispatch;
use crate::ending::Ending;
use crate::events::Events;
use crate::execution::{Execution, InHand, Phase};
use crate::metrics::Metrics;
use crate::pipeline::{Door, cut};
use crate::principal::{Principal, Scope};
use crate::record::Record;
use crate::refusals::Refusals;
use crate::telemetry::Telemetry;

/// How soon a reader that waits sees what was written meanwhile; later and later while there is nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOK_RARELY: Duration = Duration::from_millis(250);

/// Of stdin that is on the link at a time, so that many that wait leave room there for everything else.
const WRITE_PIECE: usize = 64 << 10;
/// For the write before.
const WRITE_TURN: Duration = Duration::from_secs(30);

/// For an order that is to be stopped again to get to the executor, which may be starting.
const ON_ITS_WAY: Duration = Duration::from_secs(10);

/// Bytes of a refusal in the audit log.
const REASON: usize = 512;

/// The configuration in force; a reload puts another one in its place.
#[derive(Debug)]
pub struct Current(watch::Sender<Arc<Config>>);

impl Current {
    pub fn new(config: Config) -> Self {
        Self(watch::Sender::new(Arc::new(config)))
    }

    pub(crate) fn replace(&self, config: Config) {
        self.0.send_replace(Arc::new(config));
    }
}

#[derive(Debug)]
pub struct Core {
    pub current: Current,
    pub admission: Admission,
    pub dispatch: Dispatch,
    pub record: Record,
    pub in_hand: InHand,
    /// Told of each one that begins to run.
    pub begun: Arc<Notify>,
    /// Plans under way.
    pub plans: Arc<Semaphore>,
    pub events: Events,
    pub metrics: Metrics,
    pub telemetry: Telemetry,
    pub refusals: Refusals,
    /// For what is said about commands, before it is written down.
    pub redactor: Redactor,
}

impl Core {
    /// As it is now. Hold it for one request, not longer.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.current.0.borrow())
    }

    /// Changes with every reload.
    pub fn changes(&self) -> watch::Receiver<Arc<Config>> {
        self.current.0.subscribe()
    }

    /// Who was told no at which door, for the metrics and the audit log. What is refused later is there already, as an execution's end;
    /// our own failures are no business of the caller's.
    pub fn refused(&self, door: Door, principal: &str, denied: &Denied) {
        let NotRun::Refusal(refusal) = &denied.why else { return };
        self.metrics.refused(door.name(), refusal.code.id());
        let Some(left_out) = self.refusals.count(principal, Instant::now()) else { return };
        // It may quote what the caller sent.
        let reason = Bytes::from(&*self.redactor.redact(refusal.message.as_bytes())).to_string();
        let mut body = json!({
            "event": "refused", "door": door.name(), "code": refusal.code.id(), "reason": cut(reason, REASON),
        });
        if left_out > 0 {
            body["left_out"] = json!(left_out);
        }
        let (record, principal) = (self.record.clone(), principal.to_owned());
        // Nobody waits for it: a caller that is refused is not to be told how slow the disk is.
        tokio::spawn(async move { record.refused(principal, body).await });
    }

    /// The record of an execution that this caller may see.
    pub async fn look_up(&self, principal: &Principal, id: ExecutionId) -> Result<Row, Denied> {
        if !principal.may(Scope::Read) && !principal.may(Scope::Execute) {
            return Err(may_not(principal, "read executions"));
        }
        let row = self.record.get(id).await?.filter(|row| principal.sees(&row.principal));
        row.map(|row| self.as_it_is(row)).ok_or_else(Denied::unknown)
    }

    /// Newest first. Only an admin lists what others started.
    pub async fn list(
        &self,
        principal: &Principal,
        state: Option<State>,
        after: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page, Denied> {
        if !principal.may(Scope::Read) && !principal.may(Scope::Execute) {
            return Err(may_not(principal, "list executions"));
        }
        let own = (!principal.may(Scope::Admin)).then(|| principal.name().to_owned());
        let page = self.record.list(Filter { principal: own, state }, after, limit).await?;
        let executions = page.executions.into_iter().map(|row| self.as_it_is(row)).collect();
        Ok(Page { executions, ..page })
    }

    /// A row says a moment later that its execution runs.
    fn as_it_is(&self, mut row: Row) -> Row {
        if row.state == State::Queued
            && let Some(execution) = self.in_hand.get(row.id)
            && let Phase::Running(_) = execution.phase()
        {
            row.state = State::Running;
            row.started_ms = execution.started_ms();
        }
        row
    }

    /// Asks it to end, and then makes it. One that has ended already is left as it is.
    pub async fn stop(&self, principal: &Principal, id: ExecutionId) -> Result<(), Denied> {
        let Some(execution) = self.own(principal, id).await? else { return Ok(()) };
        self.record.noted(principal.name(), id, "stop").await;
        self.cancel(&execution, Cancel::Terminate).await
    }

    /// For whoever started it and is gone.
    pub async fn cancel(&self, execution: &Execution, by: Cancel) -> Result<(), Denied> {
        let mut view = execution.watch();
        if matches!(&*view.borrow_and_update(), Phase::Dispatched) {
            // The executor would answer that it knows no such execution, and it would run.
            execution.to_stop(by);
            let known = view.wait_for(|phase| !matches!(phase, Phase::Dispatched));
            let known = tokio::time::timeout(ON_ITS_WAY, known).await.is_ok();
            // Not known yet: it is stopped as soon as it is. Taken by another: the order is on its way.
            if !known || execution.take_stop().is_none() {
                return Ok(());
            }
        }
        if let Phase::Ended(_) = execution.phase() {
            return Ok(());
        }
        self.dispatch.stop(Stop { execution: execution.id.to_string(), by }).await
    }

    /// Feeds its stdin; returns when the bytes are on their way.
    pub async fn write(
        &self,
        principal: &Principal,
        id: ExecutionId,
        bytes: Bytes,
        end: bool,
    ) -> Result<(), Denied> {
        let Some(execution) = self.own(principal, id).await? else {
            return Err(Denied::refuse(
                Code::ExecutionEnded,
                "the execution has ended",
                "Start another one, and write while it runs.",
            ));
        };
        // One after the other, in their order, so that one execution holds one place among those that wait.
        let turn = Arc::clone(&execution.stdin).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(WRITE_TURN, turn).await else {
            let message = "an earlier write still waits for the command to read";
            return Err(Denied::refuse(Code::TooBusy, message, "Try again when it has read.")
                .after(Duration::from_secs(1)));
        };
        // In a task of its own: the executor has what was sent, whether or not the caller is still there, and until it
        // is through with it the turn is not another's.
        let (dispatch, id) = (self.dispatch.clone(), execution.id.to_string());
        let written = tokio::spawn(async move {
            let written = feed(&dispatch, id, bytes, end).await;
            drop(turn);
            written
        });
        written.await.unwrap_or_else(|_| Err(Denied::stopping()))
    }

    /// Its end; `None` if that takes longer than `within`.
    pub async fn wait(
        &self,
        principal: &Principal,
        id: ExecutionId,
        within: Duration,
    ) -> Result<Option<Row>, Denied> {
        let row = self.look_up(principal, id).await?;
        if row.state == State::Ended {
            return Ok(Some(row));
        }
        let until = tokio::time::Instant::now() + within;
        if let Some(execution) = self.in_hand.get(id)
            && tokio::time::timeout_at(until, execution.ended()).await.is_err()
        {
            return Ok(None);
        }
        // An end that the disk does not take yet is none for anybody.
        let mut pause = LOOK_AGAIN;
        loop {
            let row = self.look_up(principal, id).await?;
            if row.state == State::Ended {
                return Ok(Some(row));
            }
            if tokio::time::Instant::now() + pause >= until {
                tokio::time::sleep_until(until).await;
                return Ok(None);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_RARELY);
        }
    }

    /// What it wrote after `cursor`. Where there is nothing yet, waits up to `within` for something.
    pub async fn read(
        &self,
        principal: &Principal,
        id: ExecutionId,
        cursor: Cursor,
        limit: usize,
        within: Duration,
    ) -> Result<Piece, Denied> {
        let row = self.look_up(principal, id).await?;
        let until = tokio::time::Instant::now() + within;
        // Looked at before the file: what ends meanwhile is seen as ended by the next look.
        let mut view = self.in_hand.get(id).map(|execution| execution.watch());
        let (mut cursor, mut pause) = (cursor, LOOK_AGAIN);
        loop {
            let over = view.as_ref().is_none_or(|view| matches!(&*view.borrow(), Phase::Ended(_)));
            let mut piece = self.record.read(id, cursor, limit).await?;
            if !piece.chunks.is_empty() || piece.rest != Rest::Open {
                return Ok(piece);
            }
            if over && (row.state == State::Ended || view.is_some()) {
                // Its writer is gone without a word.
                piece.rest = Rest::Ended;
                return Ok(piece);
            }
            if tokio::time::Instant::now() >= until {
                return Ok(piece);
            }
            // It knows the way there.
            cursor = piece.next;
            let wait = tokio::time::sleep_until(until.min(tokio::time::Instant::now() + pause));
            pause = (pause * 2).min(LOOK_RARELY);
            match &mut view {
                Some(view) => tokio::select! {
                    () = wait => {}
                    changed = view.changed() => drop(changed),
                },
                None => wait.await,
            }
        }
    }

    /// Of this caller, and still running; `None` if it has ended.
    async fn own(&self, principal: &Principal, id: ExecutionId) -> Result<Option<Arc<Execution>>, Denied> {
        if !principal.may(Scope::Execute) {
            return Err(may_not(principal, "control executions"));
        }
        match self.in_hand.get(id) {
            Some(execution) if principal.sees(&execution.principal) => Ok(Some(execution)),
            Some(_) => Err(Denied::unknown()),
            None => self.look_up(principal, id).await.map(|_| None),
        }
    }

    /// Whether the ending of `row`, which is on record as JSON, is there and whole.
    pub fn ending_of(row: &Row) -> Option<Ending> {
        row.result.as_ref().and_then(|result| serde_json::from_value(result.clone()).ok())
    }
}

/// Piece by piece; of one that is not taken whole, says how much of all was.
async fn feed(dispatch: &Dispatch, id: String, bytes: Bytes, end: bool) -> Result<(), Denied> {
    let mut pieces = bytes.as_slice().chunks(WRITE_PIECE).peekable();
    if pieces.peek().is_none() {
        return dispatch.write(Write { execution: id, bytes: Bytes::default(), end }).await;
    }
    let mut taken = 0;
    while let Some(piece) = pieces.next() {
        let end = end && pieces.peek().is_none();
        let write = Write { execution: id.clone(), bytes: Bytes::from(piece), end };
        dispatch.write(write).await.map_err(|denied| {
            let written = taken + denied.written.unwrap_or(0);
            Denied { written: Some(written).filter(|written| *written > 0), ..denied }
        })?;
        taken += piece.len();
    }
    Ok(())
}

fn may_not(principal: &Principal, what: &str) -> Denied {
    Denied::refuse(
        Code::NotPermitted,
        format!("{} may not {what}", principal.name()),
        "Use a token with the scope for it: stockade token create NAME --scope …",
    )
}
