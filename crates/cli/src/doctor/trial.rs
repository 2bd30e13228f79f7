//! One execution of the probe under one variant: the same `begin` and `execute` as `stockade run`, its
//! output caught in memory. Next: `examine` asks for a number of them.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, memfd_create};
use stockade_executor::{Abort, Beginning, Destination, Io, Watch, begin_with, execute};
use stockade_policy::{Command, Request};
use stockade_proto::{Bytes, Code, ExecutionResult, Fault, Outcome, Refusal, Stdin};
use stockade_redact::Redactor;
use stockade_sys::{Signal, mask_for_descriptor};

use super::ground::{Ground, PROGRAM};
use super::inside::Answer;
use super::variant::Variant;
use crate::{identifier, secrets};

/// A probe takes milliseconds. This is for machines that emulate their processor.
const TIMEOUT_MS: u64 = 120_000;
/// Some twenty lines; more is not our probe.
const MAX_OUTPUT: u64 = 256 << 10;

/// Doctor can't go on.
#[derive(Debug)]
pub(super) enum Stop {
    Abort(Abort),
    /// A person's signal ended a probe; this is its exit code.
    Cancelled(u8),
    /// The limits need a delegated cgroup, and there is one to be had.
    NeedsScope(Refusal),
}

impl From<Abort> for Stop {
    fn from(abort: Abort) -> Self {
        Self::Abort(abort)
    }
}

/// Why a probe did not get to its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) why: String,
    pub(super) remedy: String,
    /// Of our own refusal or fault.
    pub(super) code: Option<Code>,
    /// Where init stopped, and at which errno.
    pub(super) stage: Option<(String, i32)>,
}

impl Obstacle {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into(), code: None, stage: None }
    }
}

impl From<Refusal> for Obstacle {
    fn from(refusal: Refusal) -> Self {
        Self { code: Some(refusal.code), ..Self::new(refusal.message, refusal.remedy) }
    }
}

impl From<Abort> for Obstacle {
    fn from(abort: Abort) -> Self {
        match abort {
            Abort::Refusal(refusal) => refusal.into(),
            Abort::Profile(error) => error.refusal.into(),
            Abort::Fault(fault) => Self { code: Some(fault.code), ..Self::new(fault.message, fault.remedy) },
        }
    }
}

#[derive(Debug)]
pub(super) struct Ran {
    pub(super) result: ExecutionResult,
    pub(super) answers: Vec<Answer>,
}

pub(super) type Tried = Result<Ran, Obstacle>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Nothing,
    Attempts,
    Memory,
    Processes,
}

#[derive(Debug)]
pub(super) struct Trial<'g> {
    pub(super) ground: &'g Ground,
    watch: Watch<'static>,
    redactor: Redactor,
}

fn fault(what: &str, error: &dyn std::fmt::Display) -> Stop {
    Stop::Abort(Fault::new(Code::SpawnFailed, format!("{what}: {error}"), "Free some memory.").into())
}

/// Whether this request can be begun, before anything runs.
pub(super) fn beginning(ground: &Ground, variant: &Variant) -> Result<Beginning, Abort> {
    begin_with(request(ground, variant, Work::Nothing)?, variant)
}

fn request(ground: &Ground, variant: &Variant, work: Work) -> Result<Request, Abort> {
    let mut argv = vec![Bytes::from(PROGRAM), Bytes::from("probe")];
    match work {
        Work::Nothing => argv.push(Bytes::from("nothing")),
        Work::Memory => argv.push(Bytes::from("memory")),
        Work::Processes => argv.push(Bytes::from("processes")),
        Work::Attempts => {
            let targets = serde_json::to_string(&ground.targets).map_err(|error| {
                Fault::new(
                    Code::SetupFailed,
                    format!("doctor's directory has no UTF-8 name: {error}"),
                    "Unset XDG_RUNTIME_DIR.",
                )
            })?;
            argv.extend([Bytes::from("attempts"), Bytes::from(targets)]);
        }
    }
    Ok(Request {
        command: Command::Argv(argv),
        workspace: Bytes::from(ground.workspace()),
        cwd: None,
        env: Vec::new(),
        timeout_ms: Some(TIMEOUT_MS),
        stdin: Stdin::Null,
        publish: Vec::new(),
        profile: variant.profile().to_owned(),
    })
}

fn memory_file() -> Result<File, Stop> {
    memfd_create(c"stockade-doctor", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| fault("no file in memory for the probe's output", &error))
}

fn contents(mut file: File) -> Result<String, Stop> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.take(MAX_OUTPUT).read_to_end(&mut bytes))
        .map_err(|error| fault("the probe's output can't be read", &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// From here on a signal ends the next probe and, by way of `Stop`, doctor; nothing is left lying about.
pub(super) fn watch() -> Result<Watch<'static>, Stop> {
    let signals = mask_for_descriptor(&[Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit])
        .map_err(|error| fault("signals can't be watched", &error))?;
    Ok(Watch { signals: Some(signals), parent: None, orders: None, at_start: None })
}

impl<'g> Trial<'g> {
    pub(super) fn new(ground: &'g Ground, watch: Watch<'static>) -> Result<Self, Stop> {
        let redactor = secrets::redactor(&[], &[]).map_err(Abort::from)?;
        Ok(Self { ground, watch, redactor })
    }

    /// Runs the probe. The outer error ends doctor; the inner one is a finding.
    pub(super) fn execute(&self, variant: &Variant, work: Work) -> Result<Tried, Stop> {
        let request = request(self.ground, variant, work)?;
        let ready = match begin_with(request, variant) {
            Ok(Beginning::Begun(begun)) => begun.ready(None),
            Ok(Beginning::NeedsScope(refusal)) => Err(refusal.into()),
            Err(abort) => Err(abort),
        };
        let ready = match ready {
            Ok(ready) => ready,
            Err(abort) => return Ok(Err(abort.into())),
        };
        let (stdout, stderr) = (memory_file()?, memory_file()?);
        let io = Io {
            stdin: None,
            stdout: Destination::Descriptor(stdout.as_fd()),
            stderr: Destination::Descriptor(stderr.as_fd()),
            events: None,
            redactor: &self.redactor,
        };
        match execute(ready, &identifier::execution(), io, &self.watch) {
            Err(abort) => Ok(Err(abort.into())),
            Ok(executed) => judge(executed.result, work, &contents(stdout)?, &contents(stderr)?),
        }
    }
}

/// Whether the probe got to its end, or to the one end that its work is meant to have.
fn judge(result: ExecutionResult, work: Work, stdout: &str, stderr: &str) -> Result<Tried, Stop> {
    let complaint = stderr.lines().last().unwrap_or("it said nothing");
    let unexpected = |how: String| {
        Obstacle::new(
            format!("the probe {how}: {complaint}"),
            "Run `stockade doctor` again; if it persists, report it.",
        )
    };
    let obstacle = match &result.outcome {
        Outcome::Exited { code: 0 } => None,
        Outcome::OomKilled if work == Work::Memory => None,
        Outcome::Limit { .. } if work == Work::Processes => None,
        Outcome::Cancelled { .. } => return Err(Stop::Cancelled(result.exit_code)),
        Outcome::LaunchFailed { stage, errno, message } => Some(Obstacle {
            stage: Some((stage.clone(), *errno)),
            ..Obstacle::new(format!("{message} [stage {stage}]"), "")
        }),
        Outcome::Exited { code } => Some(unexpected(format!("ended with {code}"))),
        Outcome::Signaled { signal } => Some(unexpected(format!("was ended by signal {signal}"))),
        Outcome::TimedOut => Some(unexpected(format!("took longer than {} s", TIMEOUT_MS / 1000))),
        Outcome::OomKilled => Some(unexpected("ran out of memory".to_owned())),
        Outcome::Limit { which } => Some(unexpected(format!("hit its limit of {which}"))),
        Outcome::Lost { message } => Some(unexpected(format!("was lost ({message})"))),
    };
    if let Some(obstacle) = obstacle {
        return Ok(Err(obstacle));
    }
    let answers: Result<Vec<Answer>, _> = stdout.lines().map(serde_json::from_str).collect();
    match answers {
        Ok(answers) => Ok(Ok(Ran { result, answers })),
        Err(error) => Ok(Err(unexpected(format!("did not answer as expected ({error})")))),
    }
}
