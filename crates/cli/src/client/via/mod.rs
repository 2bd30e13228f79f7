//! `stockade run --via`: the command line of a local run, carried out by the service. Asks → feeds and follows → waits →
//! reports. A signal to us is an order to stop it; the execution outlives us only where we are killed.

mod feed;
mod follow;
mod request;
mod watch;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use stockade_executor::Abort;
use stockade_proto::door::{Start, method};
use stockade_proto::{Code, ExecutionResult, Fault};
use tokio::sync::watch as cell;

use super::door::Door;
use super::{finish, stop, wait};
use crate::report::Report;
use crate::run::RunArguments;
use crate::say;
use feed::Feed;
use follow::Outlet;
use watch::Watch;

/// For a place among those that run: longer than services let one wait.
const ADMITTED: Duration = Duration::from_secs(10 * 60);

pub(super) fn run(arguments: &RunArguments) -> Result<u8, Abort> {
    let mut report = Report::open(arguments.json.as_deref())?;
    let ended = request::receive(arguments).and_then(|start| finish(carry_out(arguments, start)));
    match ended {
        Ok(result) => {
            report.write(Ok(&result))?;
            say::outcome(&result);
            Ok(result.exit_code)
        }
        Err(abort) => {
            report.write(Err(&abort))?;
            Err(abort)
        }
    }
}

/// What is needed of the answer.
#[derive(Debug, Deserialize)]
struct Started {
    id: String,
}

async fn carry_out(arguments: &RunArguments, start: Start) -> Result<ExecutionResult, Abort> {
    // First, so that every thread of ours leaves signals to it.
    let watch = Watch::begin(arguments)?;
    let outlet = Outlet::open(arguments)?;
    let socket = arguments.via.as_deref().filter(|socket| !socket.is_empty()).map(Path::new);
    let door = Door::open(socket).await?;
    let (known, id) = cell::channel(None);
    tokio::select! {
        ended = converse(&door, &start, &outlet, &known) => ended,
        left = end_on_request(&watch, &door, id) => Err(left),
    }
}

async fn converse(
    door: &Door,
    start: &Start,
    outlet: &Outlet,
    known: &cell::Sender<Option<String>>,
) -> Result<ExecutionResult, Abort> {
    // Asked twice where the connection is lost: the key makes it one execution.
    let Started { id } = door.ask(method::START, start, ADMITTED).await?;
    known.send_replace(Some(id.clone()));
    let feed = if start.stdin { Some(Feed::begin()?) } else { None };
    let lost = tokio::select! {
        followed = follow::follow(door, &id, outlet) => followed?,
        never = feed::feed(door, &id, feed) => match never {},
    };
    let ended = wait::until_ended(door, &id, None).await?;
    let result = ended.map_or_else(|| Err(left(Some(&id)).into()), wait::result)?;
    match lost {
        Some(fault) => Err(fault.into()),
        None => Ok(result),
    }
}

/// Stops the execution when somebody wants that. Comes back when they don't want to wait for its end either.
async fn end_on_request(watch: &Watch, door: &Door, mut id: cell::Receiver<Option<String>>) -> Abort {
    watch.wanted().await;
    let stopped = async {
        let known = id.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        if let Some(id) = known
            && let Err(abort) = stop::ask(door, &id).await
        {
            say::abort(&abort);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stopped => {}
        () = watch.wanted() => {}
    }
    left(id.borrow().as_deref()).into()
}

fn left(id: Option<&str>) -> Fault {
    let (message, remedy) = match id {
        Some(id) => (
            format!("execution {id} was asked to end, and is not waited for any more"),
            format!("`stockade show {id}` tells how it ended."),
        ),
        None => (
            "the service had not answered yet, and is not waited for any more".to_owned(),
            "`stockade ps` shows whether it was started.".to_owned(),
        ),
    };
    Fault::new(Code::ServiceLost, message, remedy)
}
