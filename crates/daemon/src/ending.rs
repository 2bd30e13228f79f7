//! How an execution ended, as records and doors tell it: a result, or why there is none. One table turns it into
//! the codes and classes that stage workers know (STAGE-5).

use serde::{Deserialize, Serialize};
use stockade_proto::link::NotRun;
use stockade_proto::{Blocked, Cancel, Code, ExecutionResult, Layer, Outcome};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    Result(Box<ExecutionResult>),
    NotRun(NotRun),
}

/// A failure that is more than the command's own exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub code: &'static str,
    pub class: &'static str,
}

const fn failure(code: &'static str, class: &'static str) -> Failure {
    Failure { code, class }
}

pub const PAYLOAD_INVALID: Failure = failure("UZ-EXEC-001", "policy_deny");
/// Also for those that were lost with an earlier daemon: the store has the same words.
pub const EXECUTOR_LOST: Failure = failure("UZ-EXEC-003", "executor_crash");
pub const UNAVAILABLE: Failure = failure("UZ-EXEC-003", "transport_loss");
const POSTURE: Failure = failure("UZ-EXEC-003", "startup_posture");
const CRASHED: Failure = failure("UZ-EXEC-004", "executor_crash");
const NOT_STARTED: Failure = failure("UZ-EXEC-004", "startup_posture");
const OVER_LIMIT: Failure = failure("UZ-EXEC-004", "resource_kill");
const TIMED_OUT: Failure = failure("UZ-EXEC-008", "timeout_kill");
const OUT_OF_MEMORY: Failure = failure("UZ-EXEC-009", "oom_kill");
const NETWORK: Failure = failure("UZ-EXEC-010", "policy_deny");
/// Whoever waited for it went away.
const LEASE_EXPIRED: Failure = failure("UZ-EXEC-014", "lease_expired");

/// The stage in which the command itself is started; those before it are ours.
const EXEC_STAGE: &str = "exec";

impl Ending {
    /// None for a command that ran to its own end, whatever code it chose.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Self::Result(result) => of_result(result),
            Self::NotRun(NotRun::Refusal(refusal)) => Some(of_code(refusal.code)),
            Self::NotRun(NotRun::Fault(fault)) => Some(of_code(fault.code)),
        }
    }

    pub fn result(&self) -> Option<&ExecutionResult> {
        match self {
            Self::Result(result) => Some(result),
            Self::NotRun(_) => None,
        }
    }

    /// One word for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NotRun(NotRun::Refusal(_)) => "refused",
            Self::NotRun(NotRun::Fault(fault)) if fault.code == Code::ExecutorLost => "lost",
            Self::NotRun(NotRun::Fault(_)) => "fault",
            Self::Result(result) => match &result.outcome {
                Outcome::Exited { .. } => "exited",
                Outcome::Signaled { .. } => "signaled",
                Outcome::TimedOut => "timed-out",
                Outcome::Cancelled { .. } => "cancelled",
                Outcome::OomKilled => "oom-killed",
                Outcome::Limit { .. } => "limit",
                Outcome::LaunchFailed { .. } => "launch-failed",
                Outcome::Lost { .. } => "lost",
            },
        }
    }
}

fn of_result(result: &ExecutionResult) -> Option<Failure> {
    match &result.outcome {
        // A command that fails after a wall refused it a host has most likely failed for that.
        Outcome::Exited { code } if *code != 0 && result.blocked.iter().any(is_network) => Some(NETWORK),
        Outcome::Cancelled { by: Cancel::Hangup } => Some(LEASE_EXPIRED),
        Outcome::Exited { .. } | Outcome::Cancelled { by: Cancel::Interrupt | Cancel::Terminate } => None,
        Outcome::Signaled { .. } => Some(CRASHED),
        Outcome::TimedOut => Some(TIMED_OUT),
        Outcome::OomKilled => Some(OUT_OF_MEMORY),
        Outcome::Limit { .. } => Some(OVER_LIMIT),
        Outcome::LaunchFailed { stage, .. } if stage == EXEC_STAGE => Some(NOT_STARTED),
        Outcome::LaunchFailed { .. } => Some(POSTURE),
        Outcome::Lost { .. } => Some(EXECUTOR_LOST),
    }
}

fn is_network(blocked: &Blocked) -> bool {
    blocked.layer == Some(Layer::Network)
}

fn of_code(code: Code) -> Failure {
    let unavailable = [Code::TooBusy, Code::Draining, Code::RecordFailed];
    if code == Code::ExecutorLost {
        EXECUTOR_LOST
    } else if unavailable.contains(&code) {
        UNAVAILABLE
    } else if code.http_status() >= 500 {
        POSTURE
    } else {
        PAYLOAD_INVALID
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stockade_proto::{Fault, LimitKind, Refusal};

    fn ended(outcome: &Outcome, layer: Option<&str>) -> Option<(&'static str, &'static str)> {
        let blocked = layer.map(|layer| {
            json!({ "layer": layer, "operation": "connect", "target": "192.0.2.1:443", "count": 1, "rule": null,
                    "reason": "", "guidance": "" })
        });
        let totals = json!({ "bytes": 0, "dropped": 0, "redactions": 0 });
        let result: ExecutionResult = serde_json::from_value(json!({
            "execution": "e", "profile": "default", "command": [], "outcome": outcome, "exit_code": 1,
            "usage": stockade_proto::Usage::default(), "stdout": totals, "stderr": totals, "truncated": false,
            "leaked_descendants": 0, "limits_hit": [], "enforcement": [], "blocked": Vec::from_iter(blocked),
            "traffic": [], "published": [], "cleanup_faults": [],
        }))
        .unwrap();
        Ending::Result(Box::new(result)).failure().map(|Failure { code, class }| (code, class))
    }

    #[test]
    fn every_outcome_has_its_code_and_class() {
        let failed =
            |stage: &str| Outcome::LaunchFailed { stage: stage.to_owned(), errno: 1, message: String::new() };
        let by = |by| Outcome::Cancelled { by };
        for (outcome, expected) in [
            (Outcome::Exited { code: 0 }, None),
            (Outcome::Exited { code: 7 }, None),
            (by(Cancel::Interrupt), None),
            (by(Cancel::Terminate), None),
            (by(Cancel::Hangup), Some(("UZ-EXEC-014", "lease_expired"))),
            (Outcome::Signaled { signal: 11 }, Some(("UZ-EXEC-004", "executor_crash"))),
            (Outcome::TimedOut, Some(("UZ-EXEC-008", "timeout_kill"))),
            (Outcome::OomKilled, Some(("UZ-EXEC-009", "oom_kill"))),
            (Outcome::Limit { which: LimitKind::CpuSeconds }, Some(("UZ-EXEC-004", "resource_kill"))),
            (failed("exec"), Some(("UZ-EXEC-004", "startup_posture"))),
            (failed("seccomp"), Some(("UZ-EXEC-003", "startup_posture"))),
        ] {
            assert_eq!(ended(&outcome, None), expected, "{outcome:?}");
        }
        let failing = Outcome::Exited { code: 7 };
        assert_eq!(ended(&failing, Some("network")), Some(("UZ-EXEC-010", "policy_deny")));
        assert_eq!(ended(&failing, Some("sockets")), None);
        assert_eq!(ended(&Outcome::Exited { code: 0 }, Some("network")), None);
    }

    #[test]
    fn what_did_not_run_says_whose_fault_that_was() {
        let fault = |code| Ending::NotRun(NotRun::Fault(Fault::new(code, "", "")));
        let refusal = |code| Ending::NotRun(NotRun::Refusal(Refusal::new(code, "", "")));
        for (ending, expected) in [
            (fault(Code::ExecutorLost), EXECUTOR_LOST),
            (refusal(Code::TooBusy), UNAVAILABLE),
            (refusal(Code::Draining), UNAVAILABLE),
            (fault(Code::RecordFailed), UNAVAILABLE),
            (fault(Code::SpawnFailed), POSTURE),
            (refusal(Code::WorkspaceMissing), PAYLOAD_INVALID),
        ] {
            assert_eq!(ending.failure(), Some(expected), "{ending:?}");
        }
        assert_eq!((EXECUTOR_LOST.code, EXECUTOR_LOST.class), ("UZ-EXEC-003", "executor_crash"));
        assert_eq!((UNAVAILABLE.code, UNAVAILABLE.class), ("UZ-EXEC-003", "transport_loss"));
        assert_eq!((POSTURE.code, POSTURE.class), ("UZ-EXEC-003", "startup_posture"));
        assert_eq!((PAYLOAD_INVALID.code, PAYLOAD_INVALID.class), ("UZ-EXEC-001", "policy_deny"));
    }
}
