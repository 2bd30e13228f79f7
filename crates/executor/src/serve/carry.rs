//! One execution on a thread of its own, from the request to the result: ready → file → execute → end. Init dies with
//! the thread that started it, so the thread stays until nothing of the execution is left. What it stood on is put away
//! when it has been answered.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_executor::{
    Abort, Destination, Executed, Input, Io, Kept, OnStart, Orders, Recipe, Remains, Spare, Watch, execute,
    redacted,
};
use stockade_frames::{Frames, Stream};
use stockade_launch::Stage;
use stockade_proto::link::{Place as Workspace, Started};
use stockade_proto::{ExecutionResult, Outcome, Request, exit};
use stockade_redact::Redactor;
use tokio::sync::oneshot;

use super::donations::Donation;
use super::source::Source;
use super::workers::Job;

/// How long a plan may wait for its execution to be on record.
const FRESH: Duration = Duration::from_millis(200);

/// All that an execution needs.
#[derive(Debug)]
pub(super) struct Carriage {
    pub(super) execution: String,
    pub(super) request: Request,
    pub(super) place: Workspace,
    pub(super) source: Arc<Source>,
    pub(super) redactor: Redactor,
    /// Comes when the execution is on record. Until then nothing is run.
    pub(super) output: Donation,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) orders: Orders,
}

/// Whom to tell. Nobody may be listening any more.
#[derive(Debug)]
pub(super) struct Tell {
    /// With the time of it.
    pub(super) started: oneshot::Sender<(Started, Instant)>,
    pub(super) ended: oneshot::Sender<Result<ExecutionResult, Abort>>,
}

/// Says how to make the next sandbox of this kind, when the command runs in this one.
pub(super) fn carry(job: Job, spare: Option<Spare>, kept: &Kept, another: &dyn Fn(Recipe)) {
    let Job { carriage, tell, place } = job;
    let (ended, remains) = match carriage.carry(tell.started, spare, kept, another) {
        Ok((result, remains)) => (Ok(result), Some(remains)),
        Err(abort) => (Err(abort), None),
    };
    // Unknown before it is answered, gone after.
    place.leave();
    match tell.ended.send(ended) {
        Ok(()) | Err(_) => {}
    }
    drop(remains);
    drop(place);
}

impl Carriage {
    fn carry(
        self,
        started: oneshot::Sender<(Started, Instant)>,
        spare: Option<Spare>,
        kept: &Kept,
        another: &dyn Fn(Recipe),
    ) -> Result<(ExecutionResult, Remains), Abort> {
        let Self { execution, request, place, source, redactor, output, stdin, orders } = self;
        let mut ready = source.ready(request.clone(), place, spare, kept);
        let planned = Instant::now();
        let frames = RefCell::new(Frames::new(output.take()?, Instant::now()));
        if planned.elapsed() > FRESH {
            // The workspace is another one by now, and the plan says what of it is hidden.
            drop(ready);
            ready = source.ready(request, place, None, kept);
        }
        let ended = ready.and_then(|ready| {
            let recipe = Cell::new(Some(ready.recipe()));
            let warnings = ready.plan.warnings.iter().map(|warning| redacted::text(&redactor, warning));
            let published = ready.published().collect();
            let warnings = warnings.collect();
            let word = Started { execution: execution.clone(), ago_us: 0, published, warnings };
            match started.send((word, Instant::now())) {
                Ok(()) | Err(_) => {}
            }
            let io = Io {
                stdin: stdin.map(Input::Owned),
                stdout: Destination::Frames(&frames, Stream::Stdout),
                stderr: Destination::Frames(&frames, Stream::Stderr),
                events: Some(Destination::Frames(&frames, Stream::Event)),
                redactor: &redactor,
            };
            let at_start = || recipe.take().into_iter().for_each(another);
            let at_start = Some(OnStart(&at_start));
            let watch = Watch { signals: None, parent: None, orders: Some(orders), at_start };
            execute(ready, &execution, io, &watch).inspect_err(|_| source.failed())
        });
        let finished = frames.into_inner().end();
        match ended {
            Ok(Executed { result, remains }) => {
                if let Outcome::LaunchFailed { stage, .. } = &result.outcome {
                    source.failed();
                    // Not for a command that is not there.
                    if stage != Stage::Exec.name() {
                        kept.distrust();
                    }
                }
                let mut result = redacted::result(&redactor, result);
                redacted::command(&redactor, &mut result);
                if let Err(error) = finished {
                    result.cleanup_faults.push(format!("the output could not be finished: {error}"));
                    result.exit_code = exit::FAULT;
                    result.truncated = true;
                }
                Ok((result, remains))
            }
            Err(abort) => Err(redacted::abort(&redactor, abort)),
        }
    }
}
