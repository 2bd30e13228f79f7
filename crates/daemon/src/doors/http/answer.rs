//! From a request's head to its reply: which route, who asks, whether they may, what they send. One line in the log
//! for each, without a body, a query or a credential in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use hyper::{Request, Response};
use stockade_proto::{Bytes, Code};
use stockade_store::ExecutionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::info;

use super::auth::{NoPrincipal, Reach, authenticate};
use super::pulse::Pulse;
use super::query::Query;
use super::reply::{JSON, Outgoing, Reply};
use super::route::{Family, Found, Needs, OCTETS, Operation, Route, Takes, find};
use super::serve::told_to;
use super::trouble::{self, Trouble};
use super::{body, compatible, v1};
use crate::core::Core;
use crate::denied::Denied;
use crate::pipeline;
use crate::principal::Principal;

/// Of all large replies together, in [`ROOM_UNIT`]s: 64 large ones at a time would be too much for any host. As much
/// again is for commands that ran, whose callers are not to be told otherwise because somebody does not read a list.
const ROOM: usize = 128;
const ROOM_UNIT: usize = 1 << 20;
/// For memory that other large replies still hold.
const ROOM_WAIT: Duration = Duration::from_secs(30);
/// Requests that wait for something to be written or to end. Each costs little, and looks at a file again and again.
const FOLLOWERS: usize = 512;
/// Who has not said who they are.
const ANYONE: &str = "http:anyone";
/// Characters of a path in the log.
const SHOWN_PATH: usize = 200;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) core: Arc<Core>,
    /// The state directory in use; a configuration that was read again may name another.
    pub(super) state: PathBuf,
    reach: Reach,
    /// For what waits on behalf of a client.
    pub(super) stop: watch::Receiver<bool>,
    room: Arc<Semaphore>,
    room_of_commands: Arc<Semaphore>,
    followers: Arc<Semaphore>,
}

/// A request that may be carried out.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) principal: Principal,
    pub(super) headers: HeaderMap,
    /// The segment of the path that varies.
    pub(super) which: String,
    pub(super) query: Query,
    pub(super) body: Vec<u8>,
}

impl Door {
    pub(super) fn new(core: Arc<Core>, reach: Reach, stop: watch::Receiver<bool>) -> Self {
        let state = core.config().state.clone();
        let places = |count| Arc::new(Semaphore::new(count));
        let (room, room_of_commands, followers) = (places(ROOM), places(ROOM), places(FOLLOWERS));
        Self { core, state, reach, stop, room, room_of_commands, followers }
    }

    /// Memory for a reply with an execution's output, as soon as there is some.
    pub(super) async fn room_for(
        &self,
        id: ExecutionId,
        bytes: usize,
    ) -> Result<OwnedSemaphorePermit, Denied> {
        some_of(&self.room, bytes, || kept(id)).await
    }

    /// The same for a command that just ran.
    pub(super) async fn room_for_command(
        &self,
        id: ExecutionId,
        bytes: usize,
    ) -> Result<OwnedSemaphorePermit, Denied> {
        some_of(&self.room_of_commands, bytes, || kept(id)).await
    }

    /// Memory for a list.
    pub(super) async fn room_for_list(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Denied> {
        some_of(&self.room, bytes, || "Try again, or ask for fewer at a time (`limit`).".to_owned()).await
    }

    /// A place among those that follow executions.
    pub(super) fn follow(&self) -> Result<OwnedSemaphorePermit, Denied> {
        Arc::clone(&self.followers).try_acquire_owned().map_err(|_| {
            let message = "too many requests wait for executions";
            Denied::refuse(Code::TooBusy, message, "Try again, or ask without waiting.")
                .after(Duration::from_secs(1))
        })
    }

    /// Until the service is to stop.
    pub(super) async fn stopping(&self) {
        told_to(&mut self.stop.clone()).await;
    }
}

pub(super) async fn answer(
    door: &Arc<Door>,
    pulse: &Pulse,
    request: Request<Incoming>,
) -> Response<Outgoing> {
    let began = Instant::now();
    let turn = pulse.serving();
    let method = Bytes::from(request.method().as_str());
    let path = Bytes::from(request.uri().path().chars().take(SHOWN_PATH).collect::<String>());
    let reply = respond(door, request).await;
    info!(
        %method,
        %path,
        status = reply.status.as_u16(),
        ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        execution = reply.execution.map(tracing::field::display),
        "http"
    );
    reply.into_response(turn)
}

fn kept(id: ExecutionId) -> String {
    format!("Its output is kept: /v1/executions/{id}/output.")
}

async fn some_of(
    room: &Arc<Semaphore>,
    bytes: usize,
    remedy: impl FnOnce() -> String,
) -> Result<OwnedSemaphorePermit, Denied> {
    let units = bytes.div_ceil(ROOM_UNIT).clamp(1, ROOM);
    let room = Arc::clone(room).acquire_many_owned(u32::try_from(units).unwrap_or(1));
    if let Ok(Ok(permit)) = tokio::time::timeout(ROOM_WAIT, room).await {
        return Ok(permit);
    }
    let denied = Denied::refuse(Code::TooBusy, "too many large replies are on their way", remedy());
    Err(denied.after(Duration::from_secs(1)))
}

async fn respond(door: &Arc<Door>, request: Request<Incoming>) -> Reply {
    let (head, incoming) = request.into_parts();
    let (route, which) = match find(head.method.as_str(), head.uri.path()) {
        Found::Route(route, which) => (route, which.unwrap_or_default().to_owned()),
        Found::Methods(family, methods) => return Trouble::NoMethod(methods).reply(family),
        Found::Nothing(family) => return Trouble::NoRoute.reply(family),
    };
    // Two lengths: a proxy before us may have believed the other one.
    if head.headers.contains_key(TRANSFER_ENCODING) && head.headers.contains_key(CONTENT_LENGTH) {
        return Trouble::BrokenBody.reply(route.family);
    }
    let principal = match admit(door, route, &head.headers).await {
        Ok(principal) => principal,
        Err(reply) => return reply,
    };
    let query = match (route.family, Query::read(head.uri.query().unwrap_or_default(), route.query)) {
        (_, Ok(query)) => query,
        (Family::Compatible, Err(_)) => Query::default(),
        (Family::V1, Err(denied)) => return trouble::v1(&denied),
    };
    let body = match take(route, &head.headers, incoming).await {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    carry_out(door, route.operation, Asked { principal, headers: head.headers, which, query, body }).await
}

async fn admit(door: &Door, route: &Route, headers: &HeaderMap) -> Result<Principal, Reply> {
    if route.needs == Needs::Nothing {
        return Ok(Principal::new(ANYONE, []));
    }
    let at = match route.family {
        Family::Compatible => pipeline::Door::Http,
        Family::V1 => pipeline::Door::V1,
    };
    let principal = authenticate(&door.core, door.reach, headers).await.map_err(|none| {
        let trouble = match none {
            NoPrincipal::Unauthorized => Trouble::NoCredential,
            NoPrincipal::Page => Trouble::FromAPage,
            NoPrincipal::Denied(denied) => return refused(route.family, &denied),
        };
        door.core.refused(at, ANYONE, &trouble.denied());
        trouble.reply(route.family)
    })?;
    if route.needs.met_by(&principal) {
        return Ok(principal);
    }
    let scope = route.needs.scope().map_or("", crate::principal::Scope::name);
    let denied = Denied::refuse(
        Code::NotPermitted,
        format!("{} may not do this", principal.name()),
        format!("Use a token with the scope `{scope}`: stockade token create NAME --scope {scope}"),
    );
    door.core.refused(at, principal.name(), &denied);
    Err(refused(route.family, &denied))
}

fn refused(family: Family, denied: &Denied) -> Reply {
    match family {
        Family::Compatible => trouble::compatible(denied, None),
        Family::V1 => trouble::v1(denied),
    }
}

async fn take(route: &Route, headers: &HeaderMap, incoming: Incoming) -> Result<Vec<u8>, Reply> {
    let (limit, content_type) = match route.takes {
        Takes::Nothing if route.family == Family::V1 && !incoming.is_end_stream() => {
            let denied = Denied::refuse(
                Code::RequestInvalid,
                "this path takes no body",
                "Leave it out; options are in the query.",
            );
            return Err(trouble::v1(&denied).closing());
        }
        Takes::Nothing => return Ok(Vec::new()),
        Takes::Loose(_) => (body::LIMIT, None),
        Takes::Json(_) => (body::LIMIT, Some(JSON)),
        Takes::Octets { limit } => (limit, Some(OCTETS)),
    };
    if let Some(content_type) = content_type
        && !is_of(headers, content_type)
    {
        return Err(Trouble::MediaType(content_type).reply(route.family).closing());
    }
    body::read(incoming, limit).await.map_err(|error| Trouble::from(error).reply(route.family))
}

/// Parameters such as a charset don't matter: JSON is UTF-8, and octets are octets.
fn is_of(headers: &HeaderMap, wanted: &str) -> bool {
    let encoded = headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let same = match given {
        // Who sends bytes need not name them.
        None => wanted == OCTETS,
        Some(given) => given.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted)),
    };
    same && !encoded
}

async fn carry_out(door: &Arc<Door>, operation: Operation, asked: Asked) -> Reply {
    let done = match operation {
        Operation::Health => return compatible::health(),
        Operation::Execute => return compatible::execute(door, asked).await,
        Operation::Start => v1::executions::start(door, asked).await,
        Operation::List => v1::executions::list(door, asked).await,
        Operation::Get => v1::executions::get(door, asked).await,
        Operation::Stop => v1::executions::stop(door, asked).await,
        Operation::Stdin => v1::executions::stdin(door, asked).await,
        Operation::Wait => v1::executions::wait(door, asked).await,
        Operation::Output => v1::output::output(door, asked).await,
        Operation::Events => v1::output::events(door, asked).await,
        Operation::Audit => v1::service::audit(door, asked).await,
        Operation::SecretList => v1::secrets::list(door).await,
        Operation::SecretSet => v1::secrets::set(door, asked).await,
        Operation::SecretRemove => v1::secrets::remove(door, asked).await,
        Operation::Doctor => Ok(v1::service::doctor(door)),
        Operation::Document => Ok(v1::service::document()),
        Operation::Metrics => Ok(v1::service::metrics(door)),
    };
    done.unwrap_or_else(|denied| trouble::v1(&denied))
}
