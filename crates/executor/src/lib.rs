//! The execution core: survey the host, spawn the sandbox of a plan, supervise it, stream its
//! output through redaction, tell the outcome. One straight path; `execute` below is the whole
//! story. It reads no policy text and asks nobody anything.

pub mod cgroup;
mod descriptors;
mod enforcement;
mod kept;
mod lingering;
mod live;
mod mounts;
mod placeholders;
mod prepare;
mod publish;
pub mod redacted;
mod spawn;
mod stream;
mod supervise;
pub mod survey;

use std::time::Instant;

use stockade_policy::ProfileError;
use stockade_proto::{ExecutionResult, Fault, LimitKind, Outcome, Refusal, exit};
use thiserror::Error;

pub use descriptors::raise_descriptors;
pub use enforcement::{LayerFact, layer_facts, limits_want_a_scope, settle_limits};
pub use kept::Kept;
pub use prepare::{Beginning, Begun, Ready, Recipe, Spare, begin, begin_under, begin_with, check_ground};
pub use spawn::{Remains, find_init};
pub use stream::{Destination, Input, Io};
pub use supervise::{OnStart, Order, OrderSender, Orders, Watch, orders};

/// Why there is no outcome: we said no, or we failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Abort {
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// A refusal with the line of the profile that caused it.
    #[error(transparent)]
    Profile(Box<ProfileError>),
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<ProfileError> for Abort {
    fn from(error: ProfileError) -> Self {
        Self::Profile(Box::new(error))
    }
}

/// How an execution ended, and what it stood on.
#[derive(Debug)]
pub struct Executed {
    pub result: ExecutionResult,
    pub remains: Remains,
}

/// Runs one plan to its end. Whatever happens in between, nobody of it is left when this returns; nothing but what
/// [`Remains`] has yet to put away, and that is none of `stockade run`.
pub fn execute(ready: Ready, execution: &str, io: Io<'_>, watch: &Watch<'_>) -> Result<Executed, Abort> {
    let begun = Instant::now();
    let Ready { plan, parked, ground, limits: host, doors, lingering, .. } = ready;
    let published = doors.iter().map(|door| door.at).collect();
    let holds = placeholders::Holds::take(&plan, lingering)?;
    // From here on nobody of ours takes away what they hold.
    let parked = match parked.if_it_stands() {
        Some(parked) => parked,
        None => spawn::park(ground, plan.stdio.stdin, host.as_deref(), None)?,
    };
    let running = parked.launch(&plan, execution, doors, host.as_deref())?;
    // Init is at work; what others left behind can be removed meanwhile.
    let swept = host.and_then(|host| host.sweep_once());
    let planned = enforcement::of(&plan, running.group.as_ref());
    let supervised = supervise::supervise(&plan, running, io, watch, begun)?;
    let mut cleanup_faults = supervised.cleanup_faults;
    let lost = supervised.lost_output.is_some();
    cleanup_faults.extend(supervised.lost_output);
    cleanup_faults.extend(swept.into_iter().flat_map(|swept| swept.faults).map(|fault| fault.to_string()));
    cleanup_faults.extend(holds.leave());
    let result = ExecutionResult {
        execution: execution.to_owned(),
        profile: plan.profile.clone(),
        command: plan.command.argv.clone(),
        exit_code: if lost { exit::FAULT } else { supervised.outcome.exit_code() },
        truncated: matches!(supervised.outcome, Outcome::Limit { which: LimitKind::OutputBytes })
            || lost
            || supervised.stdout.dropped + supervised.stderr.dropped > 0,
        outcome: supervised.outcome,
        usage: supervised.usage,
        stdout: supervised.stdout,
        stderr: supervised.stderr,
        leaked_descendants: supervised.leaked_descendants,
        limits_hit: supervised.limits_hit,
        enforcement: enforcement::proven(planned, supervised.started),
        blocked: supervised.seen.blocked,
        traffic: supervised.seen.traffic,
        unreached: supervised.seen.unreached,
        published,
        cleanup_faults,
    };
    Ok(Executed { result, remains: supervised.remains })
}
