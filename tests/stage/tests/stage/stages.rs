//! STAGE-3 and STAGE-5: `startStage` from its payload to its one answer, `cancelStage`, codes and classes.

use serde_json::{Value, json};
use stockade_line_tests::{World, find_marked, settle, unique, unique_sleep, until};
use stockade_proto::door::{StageFailure, StageProgress, StageResult, StageStep, Stream, error, method};
use stockade_proto::{Cancel, Outcome};
use stockade_stage_tests::{Service, Settings, Wire, code, field};

const BAD_PARAMS: i64 = -32602;

fn shell(world: &World, text: &str) -> Value {
    json!({ "workspace_path": world.work(), "shell": text })
}

fn with(mut payload: Value, more: Value) -> Value {
    let more = more.as_object().expect("an object").clone();
    payload.as_object_mut().expect("an object").extend(more);
    payload
}

#[track_caller]
fn result(wire: &mut Wire, payload: &Value) -> StageResult {
    serde_json::from_value(wire.ok(method::START_STAGE, payload)).expect("a result")
}

#[track_caller]
fn failure(wire: &mut Wire, payload: &Value) -> (i64, StageFailure) {
    let error = wire.error(method::START_STAGE, payload);
    (code(&error), serde_json::from_value(error["data"].clone()).expect("a failure"))
}

#[track_caller]
fn progress(wire: &mut Wire) -> StageProgress {
    let note = wire.note();
    assert_eq!(note["method"], method::PROGRESS);
    serde_json::from_value(note["params"].clone()).expect("progress")
}

#[test]
fn a_command_runs_end_to_end() {
    let world = World::new();
    let service = Service::start(&world);
    for mut wire in [service.connect(), service.connect_counted()] {
        let payload = json!({
            "workspace_path": world.work(), "agent": "command",
            "command": ["sh", "-c", "printf out; printf err >&2; printf \"$GREETING\" > made"],
            "env": { "GREETING": "hello" },
        });
        let result = result(&mut wire, &payload);
        assert_eq!((result.output.content.as_str(), result.output.stderr.as_str()), ("out", "err"));
        assert!(result.exit_ok && result.exit_code == 0 && result.token_count == 0, "{result:?}");
        assert!(!result.output.content_truncated && !result.output.stderr_truncated);
        assert_eq!(result.outcome, Outcome::Exited { code: 0 });
        assert_eq!(
            Some(&result.stage_id),
            result.execution.as_ref(),
            "a stage without a name has its execution's"
        );
        assert!(!result.enforcement.is_empty() && result.blocked.is_empty(), "{result:?}");
        assert!(result.wall_seconds > 0.0);
        assert_eq!(world.read("work/made"), "hello");
    }
}

#[test]
fn a_command_that_fails_is_a_result() {
    let world = World::new();
    let service = Service::start(&world);
    let result = result(&mut service.connect(), &shell(&world, "echo partly; exit 3"));
    assert!(!result.exit_ok && result.exit_code == 3, "{result:?}");
    assert_eq!(result.output.content, "partly\n");
}

#[test]
fn a_payload_for_a_model_is_read_and_a_command_beside_it_runs() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let theirs = json!({
        "agent_config": { "provider": "p", "model": "m", "system_prompt": "s", "temperature": 0.5, "max_tokens": 5,
                          "something_else": [1] },
        "tools": ["read", { "name": "write" }], "message": "do it",
        "context": { "spec_content": "a", "plan_content": "b", "memory_context": "c", "defects_content": "d",
                     "implementation_summary": "e", "more": {} },
        "limits": { "timeout_ms": 60000 },
    });
    assert!(result(&mut wire, &with(shell(&world, "true"), theirs.clone())).exit_ok);
    let model = with(json!({ "workspace_path": world.work(), "stage_id": "for-a-model" }), theirs);
    for payload in [model.clone(), with(model.clone(), json!({ "agent": "another" }))] {
        let error = wire.error(method::START_STAGE, &payload);
        assert_eq!((code(&error), field(&error)), (BAD_PARAMS, "agent"), "{error}");
        assert!(error["message"].as_str().expect("a sentence").contains("command agents only"), "{error}");
        assert_eq!(error["data"]["code"], "UZ-EXEC-001");
        assert_eq!(error["data"]["stage_id"], "for-a-model");
    }
    let unknown = with(shell(&world, "true"), json!({ "limits": { "memory_mb": 1 } }));
    let error = wire.error(method::START_STAGE, &unknown);
    assert_eq!((code(&error), field(&error)), (BAD_PARAMS, "limits.memory_mb"), "{error}");
}

#[test]
fn progress_comes_before_the_result_and_in_order() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let payload = with(
        shell(&world, "echo one; echo oops >&2; read line < gate; echo two"),
        json!({ "stage_id": "told" }),
    );
    let gate = world.work().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).expect("a pipe");
    let id = wire.ask(method::START_STAGE, &payload);
    let started = progress(&mut wire);
    assert_eq!((started.step, started.sequence, started.stage_id.as_str()), (StageStep::Started, 1, "told"));
    let (mut stdout, mut stderr, mut last) = (String::new(), String::new(), 1);
    while stdout != "one\n" || stderr != "oops\n" {
        let told = progress(&mut wire);
        assert_eq!((told.sequence, told.step, told.dropped_bytes), (last + 1, StageStep::Output, 0));
        last = told.sequence;
        match told.stream {
            Some(Stream::Stdout) => stdout.push_str(&told.text),
            Some(Stream::Stderr) => stderr.push_str(&told.text),
            Some(Stream::Event) | None => panic!("{told:?}"),
        }
    }
    assert!(wire.notes.is_empty());
    std::fs::write(&gate, "go\n").expect("its reader waits");
    let result: StageResult = serde_json::from_value(wire.answer(id).expect("a result")).expect("its shape");
    let told = progress(&mut wire);
    assert_eq!((told.text.as_str(), told.sequence), ("two\n", last + 1));
    assert!(wire.notes.is_empty(), "nothing after the result");
    assert_eq!((result.output.content.as_str(), result.progress_dropped_bytes), ("one\ntwo\n", 0));
}

#[test]
fn output_beyond_the_bound_is_cut_and_said_and_all_of_it_can_be_read() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let result = result(&mut wire, &shell(&world, "head -c 3000000 /dev/zero | tr '\\0' x"));
    assert!(result.output.content_truncated && !result.output.stderr_truncated);
    assert_eq!(result.output.content, "x".repeat(1 << 20));
    assert!(result.progress_dropped_bytes > 1_000_000, "{}", result.progress_dropped_bytes);
    let (mut after, mut length) = (0, 0);
    loop {
        let params = json!({ "id": result.execution, "after": after });
        let piece = wire.ok(method::READ, &params);
        let chunks = piece["chunks"].as_array().expect("chunks");
        length += chunks.iter().map(|chunk| chunk["bytes"].as_str().expect("text").len()).sum::<usize>();
        after = piece["next"].as_u64().expect("a number");
        if piece["rest"] == "ended" {
            break;
        }
    }
    assert_eq!(length, 3_000_000);
}

#[test]
fn output_that_is_no_text_is_an_answer_all_the_same() {
    let world = World::new();
    let service = Service::start(&world);
    let result = result(&mut service.connect(), &shell(&world, "printf 'a\\377\\001\\033[31mb\\n'"));
    assert_eq!(result.output.content, "a\u{fffd}\u{1}\u{1b}[31mb\n");
}

#[test]
fn a_deadline_is_uz_exec_008_with_what_was_written() {
    let world = World::new();
    let service = Service::start(&world);
    let sleep = unique_sleep();
    let payload = with(
        shell(&world, &format!("echo partly; echo oops >&2; sleep {sleep}")),
        json!({ "limits": { "timeout_ms": 700 * stockade_line_tests::slowness() }, "stage_id": "late" }),
    );
    let (number, failure) = failure(&mut service.connect(), &payload);
    assert_eq!(number, error::STAGE_FAILED);
    assert_eq!((failure.code.as_str(), failure.class.as_str()), ("UZ-EXEC-008", "timeout_kill"));
    assert_eq!((failure.output.content.as_str(), failure.output.stderr.as_str()), ("partly\n", "oops\n"));
    assert_eq!((failure.outcome, failure.stage_id.as_deref()), (Some(Outcome::TimedOut), Some("late")));
    assert!(failure.usage.expect("usage").wall_ms >= 700 && failure.execution.is_some());
    assert!(!failure.remedy.is_empty() && !failure.error.is_empty());
    assert!(settle(&sleep).is_empty());
}

#[test]
fn the_services_own_deadline_is_for_stages_that_name_none() {
    let world = World::new();
    let settings = Settings { top: "stage_timeout = \"1s\"".to_owned(), ..Settings::default() };
    let service = Service::with(&world, &settings);
    let (_, failure) = failure(&mut service.connect(), &shell(&world, &format!("sleep {}", unique_sleep())));
    assert_eq!(failure.code, "UZ-EXEC-008");
}

#[test]
fn a_crash_and_a_command_that_is_not_there_are_uz_exec_004() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let (number, crashed) = failure(&mut wire, &shell(&world, "echo partly; kill -SEGV $$"));
    assert_eq!((number, crashed.code.as_str()), (error::STAGE_FAILED, "UZ-EXEC-004"));
    assert_eq!((crashed.class.as_str(), crashed.output.content.as_str()), ("executor_crash", "partly\n"));
    let missing = json!({ "workspace_path": world.work(), "command": ["/no/such/program"] });
    let (_, missing) = failure(&mut wire, &missing);
    assert_eq!((missing.code.as_str(), missing.class.as_str()), ("UZ-EXEC-004", "startup_posture"));
}

#[test]
fn what_a_limit_ends_says_which_kind_it_was() {
    let world = World::new();
    let tables = "[limits]\nmemory = \"64M\"\n".to_owned();
    let service = Service::with(&world, &Settings { tables, ..Settings::default() });
    let mut wire = service.connect();
    let (number, hungry) = failure(&mut wire, &shell(&world, "echo partly; head -c 300M /dev/zero | tail"));
    assert_eq!((number, hungry.code.as_str()), (error::STAGE_FAILED, "UZ-EXEC-009"), "{hungry:?}");
    assert_eq!((hungry.class.as_str(), hungry.output.content.as_str()), ("oom_kill", "partly\n"));
    assert_eq!(hungry.outcome, Some(Outcome::OomKilled));
    drop((wire, service));
    world.profile("terse", "extends = \"default\"\n[limits]\noutput = \"1M\"\n");
    let service = Service::start(&world);
    let payload = with(shell(&world, "head -c 3M /dev/zero"), json!({ "profile": "terse" }));
    let (_, chatty) = failure(&mut service.connect(), &payload);
    assert_eq!((chatty.code.as_str(), chatty.class.as_str()), ("UZ-EXEC-004", "resource_kill"), "{chatty:?}");
}

#[test]
fn a_command_that_fails_for_want_of_a_host_is_uz_exec_010() {
    let world = World::new();
    let few = "extends = \"default\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"a.example\"]\n";
    world.profile("few", few);
    let service = Service::start(&world);
    let text = "echo partly; exec 3<>/dev/tcp/192.0.2.1/443; read line <&3";
    let (number, denied) =
        failure(&mut service.connect(), &with(shell(&world, text), json!({ "profile": "few" })));
    assert_eq!((number, denied.code.as_str()), (error::STAGE_FAILED, "UZ-EXEC-010"), "{denied:?}");
    assert_eq!((denied.class.as_str(), denied.output.content.as_str()), ("policy_deny", "partly\n"));
    assert_eq!(denied.blocked.len(), 1, "{denied:?}");
}

#[test]
fn a_stage_that_is_refused_says_why_and_what_to_do() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let elsewhere = json!({ "workspace_path": world.home(), "shell": "true", "stage_id": "a" });
    let (number, refused) = failure(&mut wire, &elsewhere);
    assert_eq!((number, refused.code.as_str()), (error::NOT_PERMITTED, "UZ-EXEC-001"), "{refused:?}");
    assert_eq!((refused.reason.as_deref(), refused.class.as_str()), (Some("SK-R052"), "policy_deny"));
    assert!(!refused.remedy.is_empty());
    let profile = with(shell(&world, "true"), json!({ "profile": "no-such-profile" }));
    let (number, refused) = failure(&mut wire, &profile);
    assert_eq!((number, refused.code.as_str()), (error::REFUSED, "UZ-EXEC-001"), "{refused:?}");
    assert_eq!(refused.reason.as_deref(), Some("SK-R020"));
}

#[test]
fn a_stage_is_cancelled_with_its_whole_tree() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let name = unique("stage-");
    let text = format!("trap '' TERM; (setsid sleep {sleep} &) ; echo ready; sleep {sleep}");
    let id = wire.ask(method::START_STAGE, &with(shell(&world, &text), json!({ "stage_id": name })));
    until("both sleepers", || (find_marked(&format!("sleep {sleep}")).len() >= 2).then_some(()));
    let cancelled = wire.ok(method::CANCEL_STAGE, &json!({ "stage_id": name }));
    assert_eq!((&cancelled["cancelled"], &cancelled["stage_id"]), (&json!(true), &json!(name)));
    let result: StageResult = serde_json::from_value(wire.answer(id).expect("a result")).expect("its shape");
    assert_eq!(result.outcome, Outcome::Cancelled { by: Cancel::Terminate });
    assert!(!result.exit_ok && result.output.content == "ready\n", "{result:?}");
    assert!(settle(&sleep).is_empty());
    // Again, by either name: nothing is left to cancel, and that is no error.
    for params in [json!({ "stage_id": name }), json!({ "id": name }), json!({ "id": result.execution })] {
        assert_eq!(wire.ok(method::CANCEL_STAGE, &params)["cancelled"], false);
    }
    let error = wire.error(method::CANCEL_STAGE, &json!({ "stage_id": "never-heard-of" }));
    assert_eq!((code(&error), &error["data"]["code"]), (error::UNKNOWN, &json!("SK-R053")), "{error}");
}

#[test]
fn a_cancel_right_after_the_start_is_never_lost() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    for round in 0..20 {
        let sleep = unique_sleep();
        let name = format!("early-{round}");
        let payload = with(shell(&world, &format!("sleep {sleep}")), json!({ "stage_id": name }));
        let id = wire.ask(method::START_STAGE, &payload);
        // One that is not known yet is an error: then it is asked for again.
        until("a stage to cancel", || wire.call(method::CANCEL_STAGE, &json!({ "id": name })).ok());
        let result = wire.answer(id).expect("a result");
        assert_eq!(result["outcome"]["kind"], "cancelled", "{result}");
        assert!(settle(&sleep).is_empty());
    }
}

#[test]
fn the_same_name_is_the_same_stage() {
    let world = World::new();
    let service = Service::start(&world);
    let (mut first, mut second) = (service.connect(), service.connect());
    let gate = world.work().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).expect("a pipe");
    let payload = with(
        shell(&world, "echo ran >> count; echo waits; read line < gate; echo done"),
        json!({ "stage_id": "s" }),
    );
    let one = first.ask(method::START_STAGE, &payload);
    while progress(&mut first).text.is_empty() {}
    let two = second.ask(method::START_STAGE, &payload);
    while progress(&mut second).text.is_empty() {}
    // Who else waits for it keeps it.
    drop(first);
    let mut third = service.connect();
    assert_eq!(third.ok(method::GET, &json!({ "id": "s" }))["state"], "running");
    std::fs::write(&gate, "go\n").expect("its reader waits");
    let result = second.answer(two).expect("a result");
    assert_eq!(result["content"], "waits\ndone\n");
    // And long after.
    assert_eq!(third.ok(method::START_STAGE, &payload)["execution"], result["execution"]);
    assert_eq!(world.read("work/count"), "ran\n");
    assert_eq!(one, 1);
}
