//! Agent stages: `startStage` runs one from its payload to its one answer, `cancelStage` ends it. A stage lives no
//! longer than the connections that wait for it: when the last of them goes, it is ended, as a lease that ran out.

mod answer;
mod leases;
mod output;
mod payload;
mod progress;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stockade_proto::door::{CancelStage, StageCancelled};
use stockade_proto::{Cancel, Code};
use stockade_rpc::{Context, Error, Params};
use stockade_store::ExecutionId;
use stockade_store::executions::{Execution as Row, State};
use tokio::time::{Instant, sleep};

use super::errors::{self, denied};
use super::fields::{self, STAGE_ID_LIMIT};
use super::visitor::Visitor;
use crate::core::Core;
use crate::denied::Denied;
use crate::execution::Execution;
use crate::pipeline::{Ask, AttachedStart, Door, start_attached};
use answer::Answer;
pub(super) use leases::Stages;
use leases::{Cancelled, Lease, Name, Wanted};
pub(super) use payload::key;
use payload::{Agent, Stage};
use progress::Progress;

/// For whoever was first with a stage's name to have it in hand.
const FIRST_ONE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What became of asking for one.
enum Begun {
    Running(Arc<Execution>),
    /// An earlier one of the same name.
    Ended(Box<Row>),
    /// Nothing began.
    Cancelled,
}

impl Visitor {
    pub(super) async fn start_stage(&self, params: &Params, context: &Context) -> Result<Value, Error> {
        let Stage { id, agent } = payload::read(params, &self.core().config())?;
        let lease = self.door.stages.hold(&self.principal, id.as_deref());
        match agent {
            Agent::Command(request) => {
                let key = id.as_deref().map(key);
                let principal = self.principal.clone();
                let ask = Ask { door: Door::Socket, principal, request: *request, key };
                let begun = self.begin_stage(ask, &lease).await;
                let begun = begun.map_err(|why| answer::refused(id.as_deref(), &why))?;
                self.see_through(id, begun, lease, context).await
            }
        }
    }

    async fn begin_stage(&self, ask: Ask, lease: &Lease) -> Result<Begun, Denied> {
        // Dropped while it waits for a place, it leaves the queue.
        let begun = tokio::select! {
            begun = start_attached(self.core(), ask) => begun?,
            () = lease.cancelled() => return Ok(Begun::Cancelled),
        };
        match begun {
            AttachedStart::New(attached) => {
                let (execution, wanted) = lease.keep(attached);
                if wanted == Wanted::NoMore {
                    self.core().cancel(&execution, Cancel::Terminate).await?;
                }
                Ok(Begun::Running(execution))
            }
            AttachedStart::Known(known) => self.of_that_name(known).await,
        }
    }

    /// It runs, or has ended, or whoever was first is about to have it in hand.
    async fn of_that_name(&self, id: ExecutionId) -> Result<Begun, Denied> {
        let until = Instant::now() + FIRST_ONE;
        loop {
            if let Some(execution) = self.core().in_hand.get(id) {
                return Ok(Begun::Running(execution));
            }
            let row = self.core().look_up(&self.principal, id).await?;
            if row.state == State::Ended {
                return Ok(Begun::Ended(Box::new(row)));
            }
            if Instant::now() >= until {
                let message = "a stage of that name is on record and has not begun";
                return Err(Denied::refuse(Code::TooBusy, message, "Ask again.").after(FIRST_ONE));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// To its end and its answer.
    async fn see_through(
        &self,
        id: Option<String>,
        begun: Begun,
        lease: Lease,
        context: &Context,
    ) -> Result<Value, Error> {
        let execution = match begun {
            Begun::Running(execution) => execution,
            Begun::Ended(row) => {
                let output = output::collect(self.core(), row.id).await;
                let stage_id = id.unwrap_or_else(|| row.id.to_string());
                let ending = Core::ending_of(&row);
                return Answer { stage_id, execution: row.id, output, told_bytes: 0 }.of(ending.as_ref());
            }
            Begun::Cancelled => return answer::cancelled_unbegun(id),
        };
        let stage_id = id.unwrap_or_else(|| execution.id.to_string());
        let mut progress = Progress::new(self.core(), context.peer(), &stage_id, execution.id);
        let ending = tokio::select! {
            ending = execution.ended() => ending,
            () = progress.tell() => execution.ended().await,
        };
        // There is nothing left to hold.
        drop(lease);
        let told_bytes = progress.last().await;
        let output = output::collect(self.core(), execution.id).await;
        Answer { stage_id, execution: execution.id, output, told_bytes }.of(Some(&ending))
    }

    pub(super) async fn cancel_stage(&self, asked: CancelStage) -> Result<Value, Error> {
        let (field, stage_id) = match (asked.stage_id, asked.id) {
            (Some(id), None) => ("stage_id", id),
            (None, Some(id)) => ("id", id),
            (Some(_), Some(_)) => {
                return Err(Error::bad_params("id", "give either `stage_id` or `id`, not both"));
            }
            (None, None) => return Err(Error::bad_params("stage_id", "give either `stage_id` or `id`")),
        };
        fields::text(field, &stage_id, STAGE_ID_LIMIT)?;
        let (execution, cancelled) = match self.door.stages.cancel(&Name::own(&self.principal, &stage_id)) {
            Some(Cancelled::Waiting) => (None, true),
            Some(Cancelled::Running(execution)) => {
                let id = execution.id;
                self.core().record.noted(self.principal.name(), id, "stop").await;
                let ended = self.core().cancel(&execution, Cancel::Terminate).await;
                ended.map_err(|why| denied(&why))?;
                (Some(id), true)
            }
            None => {
                let id = self.find(field, &stage_id).await?;
                (Some(id), self.end(id).await.map_err(|why| denied(&why))?)
            }
        };
        let execution = execution.map(|id| id.to_string());
        errors::answer(&StageCancelled { stage_id, execution, cancelled })
    }
}
