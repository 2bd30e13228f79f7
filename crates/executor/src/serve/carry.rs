//! One execution on a thread of its own, from the request to the result: ready → execute → end. Init dies with
//! the thread that started it, so the thread stays until nothing of the execution is left.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use stockade_executor::{
    Abort, Destination, Input, Io, Kept, Orders, Recipe, Spare, Watch, execute, redacted,
};
use stockade_frames::{Frames, Stream};
use stockade_proto::link::{Place as Workspace, Started};
use stockade_proto::{ExecutionResult, Outcome, Request, exit};
use stockade_redact::Redactor;
use tokio::sync::oneshot;

use super::source::Source;
use super::workers::Job;

/// All that an execution needs.
#[derive(Debug)]
pub(super) struct Carriage {
    pub(super) execution: String,
    pub(super) request: Request,
    pub(super) place: Workspace,
    pub(super) source: Arc<Source>,
    pub(super) redactor: Redactor,
    pub(super) output: File,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) orders: Orders,
}

/// Whom to tell. Nobody may be listening any more.
#[derive(Debug)]
pub(super) struct Tell {
    pub(super) started: oneshot::Sender<Started>,
    pub(super) ended: oneshot::Sender<Result<ExecutionResult, Abort>>,
}

/// Says how to make the next sandbox of this kind, if there was one.
pub(super) fn carry(job: Job, spare: Option<Spare>, kept: &Kept) -> Option<Recipe> {
    let Job { carriage, tell, place } = job;
    let mut recipe = None;
    let ended = carriage.carry(tell.started, spare, kept, &mut recipe);
    // Unknown before it is answered, gone after.
    place.leave();
    match tell.ended.send(ended) {
        Ok(()) | Err(_) => drop(place),
    }
    recipe
}

impl Carriage {
    fn carry(
        self,
        started: oneshot::Sender<Started>,
        spare: Option<Spare>,
        kept: &Kept,
        recipe: &mut Option<Recipe>,
    ) -> Result<ExecutionResult, Abort> {
        let Self { execution, request, place, source, redactor, output, stdin, orders } = self;
        let frames = RefCell::new(Frames::new(output, Instant::now()));
        let ended = source.ready(request, place, spare, kept).and_then(|ready| {
            *recipe = Some(ready.recipe());
            let warnings = ready.plan.warnings.iter().map(|warning| redacted::text(&redactor, warning));
            let published = ready.published().collect();
            let word = Started { execution: execution.clone(), published, warnings: warnings.collect() };
            match started.send(word) {
                Ok(()) | Err(_) => {}
            }
            let io = Io {
                stdin: stdin.map(Input::Owned),
                stdout: Destination::Frames(&frames, Stream::Stdout),
                stderr: Destination::Frames(&frames, Stream::Stderr),
                events: Some(Destination::Frames(&frames, Stream::Event)),
                redactor: &redactor,
            };
            let watch = Watch { signals: None, parent: None, orders: Some(orders) };
            execute(ready, &execution, io, &watch).inspect_err(|_| source.failed())
        });
        let finished = frames.into_inner().end();
        match ended {
            Ok(result) => {
                if let Outcome::LaunchFailed { .. } = result.outcome {
                    source.failed();
                }
                let mut result = redacted::result(&redactor, result);
                redacted::command(&redactor, &mut result);
                if let Err(error) = finished {
                    result.cleanup_faults.push(format!("the output could not be finished: {error}"));
                    result.exit_code = exit::FAULT;
                    result.truncated = true;
                }
                Ok(result)
            }
            Err(abort) => Err(redacted::abort(&redactor, abort)),
        }
    }
}
