//! The words of the link and their errors: who says hello, what is refused and how.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use stockade_line_tests::{Executor, World, execute, programs, request, unique};
use stockade_proto::link::{self, Greeting, NotRun, Owner, ServiceProfile, Stop, method};
use stockade_proto::{Cancel, Code, ExecutionResult, Layer, Outcome};
use stockade_rpc::{BAD_PARAMS, REFUSED, UNKNOWN_METHOD};

use super::{answered, unknown, with_executor, within};

fn service(name: &str, text: &str) -> ServiceProfile {
    let (name, origin, text) = (name.to_owned(), "/srv/stockade.toml".to_owned(), text.to_owned());
    ServiceProfile { name, owner: Owner::System, origin, text }
}

#[test]
fn hello_comes_first_and_once() {
    within(async {
        let world = World::new();
        let executor = Executor::born(&world);
        for method in [method::PING, method::EXECUTE, method::STOP, method::SHUTDOWN, "what"] {
            let error = answered(executor.call::<Value>(method, &json!({})).await);
            assert_eq!(error.code, REFUSED, "{method}: {error}");
        }
        let wrong = json!({ "version": link::VERSION, "terms": { "profiles": [], "walls_required": true }, "colour": 1 });
        assert_eq!(answered(executor.call::<Value>(method::HELLO, &wrong).await).code, BAD_PARAMS);
        let bad = [service("../x", "")];
        let wrong = json!({ "version": link::VERSION, "terms": { "profiles": bad, "walls_required": true } });
        assert_eq!(answered(executor.call::<Value>(method::HELLO, &wrong).await).code, BAD_PARAMS);
        let hello = json!({ "version": link::VERSION, "terms": { "profiles": [], "walls_required": true } });
        let greeting: Greeting = executor.call(method::HELLO, &hello).await.expect("a greeting");
        assert_eq!(greeting.pid, executor.running.pid());
        assert!(greeting.layers.iter().map(|state| state.layer).eq(Layer::ALL), "{greeting:?}");
        assert_eq!(answered(executor.call::<Value>(method::HELLO, &hello).await).code, REFUSED);
        executor.call::<Value>(method::PING, &json!({})).await.expect("a pong");
        assert_eq!(answered(executor.call::<Value>("what", &json!({})).await).code, UNKNOWN_METHOD);
    });
}

#[test]
fn another_version_is_told_and_the_link_closed() {
    within(async {
        let world = World::new();
        let executor = Executor::born(&world);
        // Another version may have words that this one does not know.
        let hello = json!({ "version": link::VERSION + 1, "later": true });
        let error = answered(executor.call::<Value>(method::HELLO, &hello).await);
        assert_eq!(error.code, link::error::VERSION);
        executor.peer.closed().await;
        assert!(executor.running.ends_within(Duration::from_secs(10)));
    });
}

#[test]
fn garbage_ends_the_link_and_the_executor() {
    within(async {
        let world = World::new();
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let (_donations, donated) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        let executor = Executor::spawn(&world, theirs.into(), donated);
        std::io::Write::write_all(&mut ours, b"\x00\xff garbage\nContent-Length: x\r\n\r\n{{{{\n")
            .expect("sent");
        ours.shutdown(std::net::Shutdown::Write).expect("open");
        assert!(executor.ends_within(Duration::from_secs(20)));
        assert_eq!(executor.finish().status.code(), Some(0));
    });
}

#[test]
fn by_hand_it_says_what_it_is() {
    let mut command = Command::new(programs().join("stockade-executor"));
    let ran = command.stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(ran.status.code(), Some(64));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains("stockaded") && said.lines().count() == 1, "{said}");
    let ran = command.arg("--help").output().expect("it starts");
    assert_eq!(ran.status.code(), Some(64));
}

#[test]
fn a_refusal_has_its_code_and_its_origin() {
    with_executor(async |world, executor| {
        let mut asked = request(world, "true");
        asked.profile = "nowhere".to_owned();
        let NotRun::Refusal(refusal) = executor.execute(asked).not_run().await else { panic!("no refusal") };
        assert_eq!((refusal.code, refusal.origin), (Code::ProfileUnknown, None));
        executor.profile("wrong", "network = \"deny\"\ncolour = \"red\"\n").await;
        let mut asked = request(world, "true");
        asked.profile = "wrong".to_owned();
        let execution = executor.execute(asked);
        let id = execution.id.clone();
        let NotRun::Refusal(refusal) = execution.not_run().await else { panic!("no refusal") };
        assert_eq!(refusal.code, Code::ProfileInvalid);
        let origin = refusal.origin.expect("where it stands");
        assert_eq!((origin.file.to_path_buf(), origin.line), ("/srv/wrong.toml".into(), 2));
        assert!(executor.started(&id).is_none());
    });
}

#[test]
fn an_unknown_execution_is_told() {
    with_executor(async |world, executor| {
        let stop = |execution: &str| Stop { execution: execution.to_owned(), by: Cancel::Terminate };
        unknown(executor.call::<Value>(method::STOP, &stop("nobody")).await);
        unknown(executor.call::<Value>(method::STOP, &stop(&"ü".repeat(1000))).await);
        let execution = executor.execute(request(world, "true"));
        let id = execution.id.clone();
        execution.result().await;
        unknown(executor.call::<Value>(method::STOP, &stop(&id)).await);
        for wrong in ["", "a b", "a\n", &"x".repeat(65)] {
            let asked = execute(wrong.to_owned(), request(world, "true"));
            let error = answered(executor.call::<ExecutionResult>(method::EXECUTE, &asked).await);
            assert_eq!(error.code, BAD_PARAMS, "{wrong:?}");
        }
    });
}

#[test]
fn an_id_runs_once_at_a_time() {
    with_executor(async |world, executor| {
        let mut asked = request(world, "read line; exit 3");
        asked.stdin = stockade_proto::Stdin::Piped;
        let first = executor.execute(asked);
        let id = first.id.clone();
        let again = unique("again-");
        let (path, file) = executor.output(&again);
        executor.donate(&id, std::os::fd::AsFd::as_fd(&file));
        let second = executor.execute_as(id.clone(), path, request(world, "true"));
        assert_eq!(answered(second.answer().await).code, BAD_PARAMS);
        let end = json!({ "execution": id, "bytes": "", "end": true });
        executor.call::<Value>(method::WRITE, &end).await.expect("it takes it");
        assert_eq!(first.result().await.outcome, Outcome::Exited { code: 3 });
    });
}

#[test]
fn a_service_profile_is_used_and_only_narrowed() {
    within(async {
        let world = World::new();
        // Files of the user's are not what the service means, of that name or of another.
        world.profile("served", "network = \"inherit\"\n");
        world.profile("planted", "network = \"inherit\"\n");
        let text = "env.set = { WHO = \"service\" }\nlimits.processes = 64\n";
        let wrong = "network = \"deny\"\nlimits.processes = \"many\"\n";
        let executor = Executor::start(&world, vec![service("served", text), service("wrong", wrong)]).await;
        let asked = |profile: &str| {
            let mut asked = request(&world, "echo $WHO");
            asked.profile = profile.to_owned();
            asked
        };
        let execution = executor.execute(asked("served"));
        let output = execution.output.clone();
        let result = execution.result().await;
        let said =
            stockade_line_tests::text(&stockade_line_tests::pieces(&output), stockade_frames::Stream::Stdout);
        assert!(said == "service\n", "{said:?}, {result:?}");
        let NotRun::Refusal(refusal) = executor.execute(asked("planted")).not_run().await else {
            panic!("no refusal")
        };
        assert_eq!(refusal.code, Code::ProfileUnknown);
        assert_eq!(result.profile, "served");

        let NotRun::Refusal(refusal) = executor.execute(asked("wrong")).not_run().await else {
            panic!("run")
        };
        let origin = refusal.origin.expect("where it stands");
        assert_eq!((origin.file.to_string(), origin.line), ("/srv/stockade.toml".to_owned(), 2));

        world.workspace_profile("served", "network = \"inherit\"\n");
        let NotRun::Refusal(refusal) = executor.execute(asked("served")).not_run().await else {
            panic!("run")
        };
        assert_eq!(refusal.code, Code::ProfileWidens);
        world.workspace_profile("served", "limits.processes = 32\n");
        assert_eq!(executor.execute(asked("served")).result().await.outcome, Outcome::Exited { code: 0 });
    });
}

#[test]
fn its_memory_is_closed_to_others_and_its_sockets_to_children() {
    with_executor(async |world, executor| {
        let pid = executor.running.pid();
        let mode = std::fs::metadata(format!("/proc/{pid}/fd")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o500);
        let owner = std::os::unix::fs::MetadataExt::uid(
            &std::fs::metadata(format!("/proc/{pid}/mem")).expect("there"),
        );
        assert_eq!(owner, 0, "not dumpable means that it is root's");
        let execution = executor.execute(request(world, "ls -l /proc/self/fd | grep -c socket; ulimit -Sn"));
        let output = execution.output.clone();
        execution.result().await;
        let said =
            stockade_line_tests::text(&stockade_line_tests::pieces(&output), stockade_frames::Stream::Stdout);
        assert!(said.starts_with("0\n"), "{said:?}");
    });
}
