//! The executor behind its link, with the test as the daemon: what goes in, what comes out, and that nothing
//! stays when either side dies.

mod ends;
mod input;
mod many;
mod output;
mod places;
mod spares;
mod stems;

mod walled;
mod words;

use stockade_line_tests::{Executor, World};
use stockade_proto::link::error;
use stockade_rpc::{CallError, Error};

fn within(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

/// With an executor that was greeted.
fn with_executor(test: impl AsyncFnOnce(&World, &Executor)) {
    within(async {
        let world = World::new();
        let executor = Executor::start(&world, Vec::new()).await;
        test(&world, &executor).await;
    });
}

#[track_caller]
fn answered<T: std::fmt::Debug>(answer: Result<T, CallError>) -> Error {
    match answer {
        Err(CallError::Answered(error)) => error,
        other => panic!("no error was answered: {other:?}"),
    }
}

#[track_caller]
fn unknown<T: std::fmt::Debug>(answer: Result<T, CallError>) {
    assert_eq!(answered(answer).code, error::UNKNOWN_EXECUTION);
}
