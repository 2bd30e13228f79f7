//! `execution/…`: the verbs of the core in the words of this door.

use std::time::Duration;

use serde_json::{Value, json};
use stockade_frames::FRAME_LIMIT;
use stockade_proto::door::{List, Read, Start, Wait, Which, Write};
use stockade_rpc::{Context, Error};
use stockade_store::ExecutionId;
use stockade_store::executions::PAGE_LIMIT;
use stockade_store::output::Cursor;
use tokio::time::{Instant, timeout_at};

use super::errors::{answer, denied};
use super::fields::{self, STAGE_ID_LIMIT};
use super::stage::key;
use super::visitor::Visitor;
use crate::denied::Denied;
use crate::doors::words::{self, LISTED};
use crate::execution::Phase;
use crate::pipeline::{self, Ask, Door};

const PAGE: usize = 50;
/// As JSON it may be six times as long, and must fit into a frame.
const MOST_READ: usize = 1 << 20;
const READ: usize = 256 << 10;
/// What a byte of output is in memory at worst: itself, and as JSON, as a value and as text.
const WORST: usize = 14;
const LONGEST_READ: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 60);

impl Visitor {
    pub(super) async fn start(&self, start: Start) -> Result<Value, Error> {
        fields::start(&start)?;
        let (request, key) = words::request(&self.core().config(), start).map_err(|why| denied(&why))?;
        let ask = Ask { door: Door::Socket, principal: self.principal.clone(), request, key };
        let id = match pipeline::start(self.core(), ask).await.map_err(|why| denied(&why))? {
            pipeline::Start::New(execution) => execution.id,
            pipeline::Start::Known(id) => id,
        };
        self.shown(id).await
    }

    async fn shown(&self, id: ExecutionId) -> Result<Value, Error> {
        let row = self.core().look_up(&self.principal, id).await.map_err(|why| denied(&why))?;
        answer(&words::execution(row))
    }

    /// An execution's id, or the caller's own name of a stage.
    pub(super) async fn find(&self, field: &str, text: &str) -> Result<ExecutionId, Error> {
        fields::text(field, text, STAGE_ID_LIMIT)?;
        self.known(text).await.map_err(|why| denied(&why))
    }

    async fn known(&self, text: &str) -> Result<ExecutionId, Denied> {
        let id = text.parse::<ExecutionId>().ok();
        if let Some(id) = id {
            let own = self.core().in_hand.get(id).is_some_and(|it| self.principal.sees(&it.principal));
            if own || self.core().look_up(&self.principal, id).await.is_ok() {
                return Ok(id);
            }
        }
        let stage = self.core().record.by_key(self.principal.name(), &key(text)).await?;
        stage.ok_or_else(Denied::unknown)
    }

    pub(super) async fn get(&self, which: &Which) -> Result<Value, Error> {
        let id = self.find("id", &which.id).await?;
        self.shown(id).await
    }

    pub(super) async fn list(&self, list: List, context: &Context) -> Result<Value, Error> {
        let after = list.after.as_deref().map(fields::after).transpose()?;
        let limit = list.limit.map_or(PAGE, |limit| usize::try_from(limit).unwrap_or(PAGE_LIMIT));
        let state = list.state.map(words::asked_state);
        self.room(context, limit.clamp(1, PAGE_LIMIT).saturating_mul(LISTED)).await?;
        let page = self.core().list(&self.principal, state, after, limit.clamp(1, PAGE_LIMIT)).await;
        answer(&words::page(page.map_err(|why| denied(&why))?))
    }

    pub(super) async fn read(&self, read: &Read, context: &Context) -> Result<Value, Error> {
        let until = Instant::now() + Duration::from_millis(read.wait_ms.into()).min(LONGEST_READ);
        let id = self.find("id", &read.id).await?;
        let limit = read.limit.map_or(READ, |limit| usize::try_from(limit).unwrap_or(MOST_READ));
        let limit = limit.clamp(1, MOST_READ);
        let known = *self.last_read();
        let cursor = match known {
            Some((of, cursor)) if of == id && cursor.sequence == read.after => cursor,
            Some(_) | None => Cursor::after(read.after),
        };
        // Without a place among those that wait there is still an answer, when the time is over.
        let place = timeout_at(until, self.door.readers.acquire()).await;
        let within = until.saturating_duration_since(Instant::now());
        // Until there is something; what there is then is read with room for it.
        if !within.is_zero() {
            let some = self.core().read(&self.principal, id, cursor, 1, within).await;
            some.map(drop).map_err(|why| denied(&why))?;
        }
        drop(place);
        // One frame is read whole, however little is asked for.
        self.room(context, limit.max(FRAME_LIMIT).saturating_mul(WORST)).await?;
        let piece = self.core().read(&self.principal, id, cursor, limit, Duration::ZERO).await;
        let piece = piece.map_err(|why| denied(&why))?;
        *self.last_read() = Some((id, piece.next));
        answer(&words::output(piece))
    }

    pub(super) async fn write(&self, write: Write) -> Result<Value, Error> {
        let id = self.find("id", &write.id).await?;
        let written = self.core().write(&self.principal, id, write.bytes, write.end).await;
        written.map_err(|why| denied(&why))?;
        Ok(json!({}))
    }

    pub(super) async fn stop(&self, which: &Which) -> Result<Value, Error> {
        let id = self.find("id", &which.id).await?;
        let stopped = self.end(id).await.map_err(|why| denied(&why))?;
        Ok(json!({ "id": id, "stopped": stopped }))
    }

    /// Whether there was anything to end.
    pub(super) async fn end(&self, id: ExecutionId) -> Result<bool, Denied> {
        let running = self.core().in_hand.get(id).is_some_and(|it| !matches!(it.phase(), Phase::Ended(_)));
        self.core().stop(&self.principal, id).await.map(|()| running)
    }

    pub(super) async fn wait(&self, wait: &Wait) -> Result<Value, Error> {
        let id = self.find("id", &wait.id).await?;
        let within = wait.within_ms.map_or(LONGEST_WAIT, Duration::from_millis).min(LONGEST_WAIT);
        match self.core().wait(&self.principal, id, within).await.map_err(|why| denied(&why))? {
            Some(row) => answer(&words::execution(row)),
            None => self.shown(id).await,
        }
    }
}
