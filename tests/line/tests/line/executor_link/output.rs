//! Output as frames, events among them, and a disk that is full.

use std::fs::OpenOptions;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use stockade_frames::Stream;
use stockade_line_tests::{
    Executor, World, am_root, execute, have, pieces, request, skip, slowness, text, unique,
};
use stockade_proto::{Bytes, Command as Words, Decision, Event, ExecutionResult, Outcome, exit, link};

use super::{answered, with_executor, within};

#[test]
fn both_streams_come_as_frames_in_order() {
    with_executor(async |world, executor| {
        // Two pipes have an order only as far as somebody reads between two writes.
        let pause = f64::from(stockade_line_tests::slowness()) * 0.1;
        let script = format!("echo one; sleep {pause}; echo two >&2; sleep {pause}; echo three");
        let execution = executor.execute(request(world, &script));
        let (id, output) = (execution.id.clone(), execution.output.clone());
        let result = execution.result().await;
        assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{result:?}");
        assert_eq!((result.execution.as_str(), result.exit_code), (id.as_str(), 0));
        assert!(result.cleanup_faults.is_empty(), "{result:?}");
        assert!(executor.started(&id).is_some(), "`started` was not said");
        let pieces = pieces(&output);
        let said: Vec<_> = pieces.iter().map(|piece| (piece.stream, piece.bytes.as_slice())).collect();
        let expected: [(Stream, &[u8]); 4] = [
            (Stream::Stdout, b"one\n"),
            (Stream::Stderr, b"two\n"),
            (Stream::Stdout, b"three\n"),
            (Stream::End, b""),
        ];
        assert_eq!(said, expected);
        assert!(pieces.iter().zip(1..).all(|(piece, sequence)| piece.sequence == sequence));
    });
}

#[test]
fn much_output_is_whole_and_counted() {
    with_executor(async |world, executor| {
        let execution = executor.execute(request(world, "seq 1 300000"));
        let output = execution.output.clone();
        let result = execution.result().await;
        let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
        let pieces = pieces(&output);
        assert!(text(&pieces, Stream::Stdout) == expected, "{} frames, {result:?}", pieces.len());
        assert_eq!(usize::try_from(result.stdout.bytes), Ok(expected.len()));
        assert_eq!(pieces.last().map(|piece| piece.stream), Some(Stream::End));
    });
}

#[test]
fn token_shapes_are_redacted_in_output_and_result() {
    with_executor(async |world, executor| {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let execution = executor.execute(request(world, &format!("echo {token}")));
        let output = execution.output.clone();
        let result = execution.result().await;
        assert_eq!(result.stdout.redactions, 1, "{result:?}");
        assert!(!text(&pieces(&output), Stream::Stdout).contains(&token));
        assert!(!format!("{result:?}").contains(&token), "{result:?}");
        assert!(!serde_json::to_string(&result).expect("JSON").contains(&token));
    });
}

#[test]
fn a_denied_connect_is_an_event_among_the_frames() {
    if !have(&["python3"]) {
        return;
    }
    with_executor(async |world, executor| {
        let path = world.work().join("listening");
        let _listener = UnixListener::bind(&path).expect("a free path");
        let script = format!(
            "import socket\nfor _ in range(2):\n try: socket.socket(socket.AF_UNIX).connect({:?})\n except OSError as e: print('errno', e.errno)\n",
            path.display().to_string()
        );
        let mut request = request(world, "");
        request.command = Words::Argv(["python3", "-c", &script].map(Bytes::from).to_vec());
        let execution = executor.execute(request);
        let (id, output) = (execution.id.clone(), execution.output.clone());
        let result = execution.result().await;
        assert_eq!(result.blocked.len(), 1, "{result:?}");
        let pieces = pieces(&output);
        let events: Vec<Event> = pieces
            .iter()
            .filter(|piece| piece.stream == Stream::Event)
            .map(|piece| serde_json::from_slice(&piece.bytes).expect("one event per frame"))
            .collect();
        assert_eq!(events.len(), 2, "{pieces:?}");
        for event in events {
            let Event::UnixSocketOp(op) = event else { panic!("{event:?}") };
            assert_eq!((op.execution, op.decision), (id.clone(), Decision::Deny));
        }
    });
}

/// A file system of 64 KiB, gone with the value.
struct Small(std::path::PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn a_full_disk_is_told_by_the_result() {
    if !am_root() {
        return skip("a small file system is root's to mount");
    }
    with_executor(async |world, executor| {
        let small = Small(world.base().join("small"));
        std::fs::create_dir(&small.0).expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&small.0);
        if !mount.status().expect("mount starts").success() {
            return skip("tmpfs can't be mounted");
        }
        let (id, path) = (unique("full-"), small.0.join("output"));
        let file = OpenOptions::new().append(true).create_new(true).open(&path).expect("a fresh file");
        executor.donate(&id, file.as_fd());
        let execution = executor.execute_as(id, path.clone(), request(world, "seq 1 100000"));
        let result = execution.result().await;
        assert_eq!(result.exit_code, exit::FAULT, "{result:?}");
        assert!(result.truncated, "{result:?}");
        assert!(result.cleanup_faults.iter().any(|fault| fault.contains("No space left")), "{result:?}");
        // Whole frames only, from the first on.
        let pieces = pieces(&path);
        assert!(pieces.iter().zip(1..).all(|(piece, sequence)| piece.sequence == sequence));
    });
}

#[test]
fn what_is_no_empty_file_for_appending_is_refused() {
    with_executor(async |world, executor| {
        let mut ids = Vec::new();
        let filled = unique("filled-");
        let (path, file) = executor.output(&filled);
        std::fs::write(path, "something").expect("written");
        executor.donate(&filled, file.as_fd());
        ids.push((filled, "not empty"));
        let plain = unique("plain-");
        let file = std::fs::File::create(world.base().join(&plain)).expect("a fresh file");
        executor.donate(&plain, file.as_fd());
        ids.push((plain, "appending"));
        let directory = unique("directory-");
        let file = std::fs::File::open(world.base()).expect("it is there");
        executor.donate(&directory, file.as_fd());
        ids.push((directory, "regular"));
        for (execution, why) in ids {
            let asked = execute(execution, request(world, "true"));
            let error = answered(executor.call::<ExecutionResult>("execute", &asked).await);
            assert_eq!(error.code, link::error::NOT_RUN, "{error}");
            assert!(error.message.contains(why), "{error}");
        }
        // Others' files do no harm.
        for _ in 0..50 {
            let stray = unique("stray-");
            executor.donate(&stray, executor.output(&stray).1.as_fd());
        }
        assert_eq!(executor.execute(request(world, "true")).result().await.exit_code, 0);
    });
}

#[test]
fn what_is_not_on_record_does_not_run() {
    with_executor(async |world, executor| {
        let trace = |id: &str| world.work().join(id);
        let asked = |id: &str| {
            let (path, file) = executor.output(id);
            (executor.execute_as(id.to_owned(), path, request(world, &format!("touch {id}"))), file)
        };
        let (id, other) = (unique("later-"), unique("never-"));
        let (later, file) = asked(&id);
        let (never, _file) = asked(&other);
        // Long enough for a plan and a sandbox.
        tokio::time::sleep(Duration::from_millis(300) * slowness()).await;
        assert_eq!((trace(&id).exists(), executor.started(&id)), (false, None));
        executor.donate(&id, file.as_fd());
        assert_eq!(later.result().await.exit_code, 0);
        assert!(trace(&id).exists());
        executor.withdraw(&other);
        let error = answered(never.answer().await);
        assert_eq!(error.code, link::error::NOT_RUN, "{error}");
        assert!(error.message.contains("not on record"), "{error}");
        assert!(!trace(&other).exists());
    });
}

/// A plan says what is hidden, and is not kept for long.
#[test]
fn what_comes_while_an_order_waits_is_hidden() {
    with_executor(async |world, executor| {
        let id = unique("slow-");
        let (path, file) = executor.output(&id);
        let execution = executor.execute_as(id.clone(), path.clone(), request(world, "cat .env; echo end"));
        tokio::time::sleep(Duration::from_millis(500) * slowness()).await;
        std::fs::write(world.work().join(".env"), b"walrus").expect("a file");
        executor.donate(&id, file.as_fd());
        assert_eq!(execution.result().await.exit_code, 0);
        assert_eq!(text(&pieces(&path), Stream::Stdout), "end\n");
    });
}

#[test]
fn what_waits_for_its_file_ends_with_the_link() {
    within(async {
        let world = World::new();
        let executor = Executor::start(&world, Vec::new()).await;
        let (id, path) = (unique("waits-"), world.base().join("nowhere"));
        drop(executor.execute_as(id.clone(), path, request(&world, &format!("touch {id}"))));
        tokio::time::sleep(Duration::from_millis(300) * slowness()).await;
        let running = executor.abandon().await;
        assert!(running.ends_within(Duration::from_secs(10) * slowness()), "still there");
        assert_eq!(running.finish().status.code(), Some(0));
        assert!(!world.work().join(&id).exists());
    });
}
