//! Stdin over the link.

use serde_json::{Value, json};
use stockade_frames::Stream;
use stockade_line_tests::{Execution, Executor, World, pieces, request, text};
use stockade_proto::link::{Write, error, method};
use stockade_proto::{Bytes, Outcome, Stdin};
use stockade_rpc::CallError;

use super::{answered, with_executor};

async fn piped(world: &World, executor: &Executor, script: &str) -> Execution {
    let mut asked = request(world, script);
    asked.stdin = Stdin::Piped;
    let execution = executor.execute(asked);
    // It is asked for before anything is written to it.
    tokio::task::yield_now().await;
    execution
}

async fn write(executor: &Executor, id: &str, bytes: &[u8], end: bool) -> Result<Value, CallError> {
    let write = Write { execution: id.to_owned(), bytes: Bytes::from(bytes), end };
    executor.call(method::WRITE, &write).await
}

#[test]
fn what_is_written_is_read_until_the_end() {
    with_executor(async |world, executor| {
        let execution = piped(world, executor, "cat; echo done").await;
        let (id, output) = (execution.id.clone(), execution.output.clone());
        write(executor, &id, b"one\n", false).await.expect("taken");
        execution.wait_for(Stream::Stdout, "one\n").await;
        let parts: Vec<_> = (0..20).map(|number| format!("{number}\n").repeat(10)).collect();
        // Sent at once; read in this order.
        let all = parts.iter().map(|part| write(executor, &id, part.as_bytes(), false));
        let mut sent = Vec::new();
        for one in all {
            sent.push(one.await);
        }
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        write(executor, &id, b"two\n\xff\x00", true).await.expect("taken");
        let again = answered(write(executor, &id, b"late", false).await);
        // Either the earlier end is known still, or the command is gone.
        assert!([error::STDIN_CLOSED, error::UNKNOWN_EXECUTION].contains(&again.code), "{again}");
        let result = execution.result().await;
        assert_eq!(result.outcome, Outcome::Exited { code: 0 });
        let frames = pieces(&output);
        let bytes: Vec<u8> = frames.iter().flat_map(|piece| piece.bytes.clone()).collect();
        let expected = [b"one\n", parts.concat().as_bytes(), b"two\n\xff\x00done\n"].concat();
        assert!(bytes == expected, "{frames:?}");
    });
}

#[test]
fn a_command_that_does_not_read_holds_up_its_writer_only() {
    with_executor(async |world, executor| {
        let execution = piped(world, executor, "echo up; until [ -e go ]; do sleep 0.02; done; wc -c").await;
        let (id, output) = (execution.id.clone(), execution.output.clone());
        execution.wait_for(Stream::Stdout, "up").await;
        let chunk = vec![b'x'; 300_000];
        let held = tokio::time::timeout(std::time::Duration::from_millis(500), async {
            for _ in 0..4 {
                write(executor, &id, &chunk, false).await.expect("taken");
            }
        });
        assert!(held.await.is_err(), "more went in than pipes hold");
        executor.call::<Value>(method::PING, &json!({})).await.expect("a pong");
        assert_eq!(executor.execute(request(world, "true")).result().await.exit_code, 0);
        std::fs::write(world.work().join("go"), "").expect("a file");
        // The writer above was dropped here, its words were not.
        write(executor, &id, b"rest", true).await.expect("it reads now, and all of it");
        assert_eq!(execution.result().await.outcome, Outcome::Exited { code: 0 });
        let counted = text(&pieces(&output), Stream::Stdout);
        let counted = counted.split_whitespace().last().and_then(|count| count.parse::<usize>().ok());
        assert!(counted.is_some_and(|count| count > 300_000 && count % 100_000 == 4), "{counted:?}");
    });
}

#[test]
fn a_command_that_closed_its_stdin_is_told_of() {
    with_executor(async |world, executor| {
        let execution = piped(world, executor, "exec <&-; echo closed; sleep 100").await;
        let id = execution.id.clone();
        execution.wait_for(Stream::Stdout, "closed").await;
        let mut told = None;
        for _ in 0..1000 {
            if let Err(error) = write(executor, &id, b"x", false).await {
                told = Some(error);
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let error = answered(Err::<(), _>(told.expect("an error")));
        assert_eq!(error.code, error::STDIN_CLOSED);
        assert!(error.message.contains("closed its stdin"), "{error}");
        let stop = json!({ "execution": id, "by": "terminate" });
        executor.call::<Value>(method::STOP, &stop).await.expect("stopped");
        execution.result().await;
    });
}

#[test]
fn without_a_pipe_nothing_is_written() {
    with_executor(async |world, executor| {
        let execution = executor.execute(request(world, "echo up; sleep 100"));
        let id = execution.id.clone();
        execution.wait_for(Stream::Stdout, "up").await;
        assert_eq!(answered(write(executor, &id, b"x", false).await).code, error::STDIN_CLOSED);
        let stop = json!({ "execution": id, "by": "interrupt" });
        executor.call::<Value>(method::STOP, &stop).await.expect("stopped");
        execution.result().await;
    });
}
