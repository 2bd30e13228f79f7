//! `stockade wait`: until an execution has ended, and then with its exit code.

use std::time::{Duration, Instant};

use clap::Args;
use stockade_executor::Abort;
use stockade_proto::door::{self, Ending, Execution, State, method};
use stockade_proto::link::NotRun;
use stockade_proto::{Code, ExecutionResult, Fault, exit};

use super::door::{Door, SOON};
use super::{OneExecution, text};
use crate::run::timeout;
use crate::say;

/// One question; there is another behind it.
const AT_A_TIME: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// Give up after this long, with exit code 124: 500ms, 30s, 10m, 2h
    #[arg(short, long, value_name = "TIME")]
    timeout: Option<String>,
    #[command(flatten)]
    which: OneExecution,
}

pub(super) async fn wait(arguments: &WaitArguments) -> Result<u8, Abort> {
    let limit = arguments.timeout.as_deref().map(timeout).transpose()?.map(Duration::from_millis);
    let (door, id) = arguments.which.reach().await?;
    match until_ended(&door, &id, limit).await? {
        Some(execution) => {
            let result = result(execution)?;
            say::outcome(&result);
            Ok(result.exit_code)
        }
        None => {
            say::warning(&format!("{} has not ended yet", text::clean(&id)));
            Ok(exit::TIMED_OUT)
        }
    }
}

/// None if that takes longer than `limit`.
pub(super) async fn until_ended(
    door: &Door,
    id: &str,
    limit: Option<Duration>,
) -> Result<Option<Execution>, Abort> {
    let begun = Instant::now();
    loop {
        let left = limit.map_or(AT_A_TIME, |limit| limit.saturating_sub(begun.elapsed()).min(AT_A_TIME));
        let within_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let ask = door::Wait { id: id.to_owned(), within_ms: Some(within_ms) };
        let execution: Execution = door.ask(method::WAIT, &ask, left + SOON).await?;
        if execution.state == State::Ended {
            return Ok(Some(execution));
        }
        if limit.is_some_and(|limit| begun.elapsed() >= limit) {
            return Ok(None);
        }
    }
}

/// What the command did, or why there is nothing of the kind.
pub(super) fn result(execution: Execution) -> Result<ExecutionResult, Abort> {
    match execution.ending {
        Some(Ending::Result(result)) => Ok(*result),
        Some(Ending::NotRun(NotRun::Refusal(refusal))) => Err(refusal.into()),
        Some(Ending::NotRun(NotRun::Fault(fault))) => Err(fault.into()),
        None => Err(lost(&execution).into()),
    }
}

fn lost(execution: &Execution) -> Fault {
    let code = execution.code.as_deref().map(|code| format!(" ({})", text::clean(code))).unwrap_or_default();
    Fault::new(
        Code::ServiceLost,
        format!("execution {} was lost with the service that ran it{code}", text::clean(&execution.id)),
        "What it wrote until then is kept: `stockade logs ID` shows it. Start it again.",
    )
}

#[cfg(test)]
mod tests {
    use stockade_proto::Refusal;

    use super::*;
    use crate::client::show::tests::execution;

    #[test]
    fn every_end_has_its_exit_code() {
        let code = |execution| match result(execution) {
            Ok(result) => result.exit_code,
            Err(abort) => say::exit_code(&abort),
        };
        assert_eq!(code(execution()), 3);
        assert_eq!(
            code(Execution { ending: None, code: Some("UZ-EXEC-003".into()), ..execution() }),
            exit::LOST
        );
        let refusal = Refusal::new(Code::ProfileUnknown, "no", "another");
        let refused = Execution { ending: Some(Ending::NotRun(NotRun::Refusal(refusal))), ..execution() };
        assert_eq!(code(refused), exit::REFUSED);
        let fault = Fault::new(Code::ExecutorLost, "died", "again");
        let failed = Execution { ending: Some(Ending::NotRun(NotRun::Fault(fault))), ..execution() };
        assert_eq!(code(failed), exit::FAULT);
    }
}
