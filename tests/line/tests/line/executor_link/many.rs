//! Many executions at once, within their bound.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use stockade_line_tests::{inits, request, until};
use stockade_proto::Outcome;
use stockade_proto::link::method;
use stockade_rpc::{BUSY, CallError};

use super::with_executor;

/// As the executor has it.
const MOST: usize = 160;
const MOST_SPARES: usize = 8;

/// One of these tests at a time, in whichever process: together they would want more keys than a user has.
fn turn() -> File {
    let own = File::open("/proc/self/exe").expect("a program can read itself");
    flock(&own, FlockOperation::LockExclusive).expect("a file can be locked");
    own
}

#[test]
fn a_hundred_and_fifty_at_once_are_all_answered() {
    let _turn = turn();
    with_executor(async |world, executor| {
        let all: Vec<_> =
            (0..150).map(|number| executor.execute(request(world, &format!("echo {number}")))).collect();
        for (number, execution) in all.into_iter().enumerate() {
            let output = execution.output.clone();
            let result = execution.result().await;
            assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{number}: {result:?}");
            // What executors of other tests left behind may take its time to go, and is told to whoever sweeps.
            let own = format!("-{}-", executor.running.pid());
            let others = |fault: &String| fault.contains("stockade-x-") && !fault.contains(&own);
            assert!(result.cleanup_faults.iter().all(others), "{result:?}");
            let said = stockade_line_tests::text(
                &stockade_line_tests::pieces(&output),
                stockade_frames::Stream::Stdout,
            );
            assert_eq!(said, format!("{number}\n"));
        }
        // Only spares are left, each an init that waits.
        until("the last init to be gone", || {
            (inits(executor.running.pid()).len() <= MOST_SPARES).then_some(())
        });
    });
}

#[test]
fn more_than_the_bound_are_told_to_wait() {
    let _turn = turn();
    with_executor(async |world, executor| {
        let all: Vec<_> = (0..MOST + 5).map(|_| executor.execute(request(world, "sleep 1000"))).collect();
        let ids: Vec<_> = all.iter().map(|execution| execution.id.clone()).collect();
        // Those beyond the bound are answered at once.
        let mut answers = Vec::new();
        let mut all = all.into_iter();
        let first: Vec<_> = all.by_ref().take(MOST).collect();
        for execution in all {
            answers.push(execution.answer().await);
        }
        for answer in answers {
            assert!(matches!(&answer, Err(CallError::Answered(error)) if error.code == BUSY), "{answer:?}");
        }
        executor.call::<Value>(method::PING, &json!({})).await.expect("a pong");
        for id in ids.iter().take(MOST) {
            let stop = json!({ "execution": id, "by": "terminate" });
            executor.call::<Value>(method::STOP, &stop).await.expect("stopped");
        }
        for execution in first {
            let result = execution.result().await;
            assert!(matches!(result.outcome, Outcome::Cancelled { .. }), "{result:?}");
        }
        assert_eq!(executor.execute(request(world, "true")).result().await.exit_code, 0);
    });
}
