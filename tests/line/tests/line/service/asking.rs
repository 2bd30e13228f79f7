//! `ps`, `logs`, `show`, `stop` and `wait`. STAGE-3's own methods, through the command line.

use std::time::Duration;

use rustix::process::Signal;
use stockade_line_tests::{
    Service, World, await_process, read_to_close, said_no, settle, terminal, unique_sleep,
};

use super::Ground;

const UNKNOWN: &str = "01890000-0000-7000-8000-000000000000";

#[test]
fn nobody_answers_and_what_to_do() {
    let world = World::new();
    for words in
        [&["ps"][..], &["logs", UNKNOWN], &["show", "--last"], &["stop", UNKNOWN], &["wait", UNKNOWN]]
    {
        let ran = world.cli(words).option("--socket", world.base().join("none.sock")).go().ends_with(122);
        said_no(&ran, "SK-F020");
        assert!(ran.err().contains("none.sock") && ran.err().contains("`stockade serve`"), "{ran}");
        assert!(ran.stdout.is_empty(), "{ran}");
    }
    let ran = world.sh("true").flag("--via").caller_env("STOCKADE_SOCKET", "/nowhere/s").go().ends_with(122);
    assert_eq!(ran.fault().code.id(), "SK-F020", "{ran}");
    // Something else than a socket, and one that nobody listens on any more.
    let file = world.plant("file", "");
    world.cli(&["ps"]).option("--socket", file).go().ends_with(122);
    let dead = world.base().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("a socket"));
    said_no(&world.cli(&["ps"]).option("--socket", dead).go().ends_with(122), "SK-F020");
}

#[test]
fn ps_lists_what_runs_and_with_all_what_ended() {
    let (ground, sleep) = (Ground::new(), unique_sleep());
    ground.sh("exit 3").go().ends_with(3);
    assert_eq!(ground.cli(&["ps"]).go().ends_with(0).out().lines().count(), 1);
    let running = ground.sh(&format!("sleep {sleep}")).start();
    let id = ground.running();
    let shown = ground.cli(&["ps"]).go().ends_with(0);
    let out = shown.out();
    assert!(out.starts_with("ID ") && out.lines().count() == 2, "{shown}");
    assert!(
        out.contains(&id) && out.contains(" running ") && out.contains(&format!("sleep {sleep}")),
        "{shown}"
    );
    let states = |words: &[&str]| -> Vec<String> {
        let listed = ground.listed(words);
        listed.iter().map(|one| one["state"].as_str().expect("a word").to_owned()).collect()
    };
    assert_eq!(states(&["--all"]), ["running", "ended"], "newest first");
    assert_eq!(states(&["--all", "-n", "1"]), ["running"]);
    assert_eq!(states(&["--state", "ended"]), ["ended"]);
    assert!(states(&["--state", "queued"]).is_empty());
    running.signal(Signal::TERM);
    running.finish().ends_with(143);
    assert!(ground.listed(&[]).is_empty());
    for words in
        [&["ps", "--limit", "0"][..], &["ps", "--state", "gone"], &["ps", "--all", "--state", "ended"]]
    {
        ground.cli(words).go().ends_with(125);
    }
}

#[test]
fn more_than_a_page_is_listed() {
    let ground = Ground::new();
    for _ in 0..7 {
        ground.sh("true").go().ends_with(0);
    }
    let all = ground.listed(&["--all"]);
    let ids: Vec<_> = all.iter().map(|one| one["id"].as_str().expect("an id")).collect();
    assert!(ids.len() == 7 && ids.is_sorted_by(|one, other| one > other), "{ids:?}");
    assert_eq!(ground.listed(&["--all", "--limit", "5"]), all[..5]);
}

#[test]
fn logs_give_each_stream_its_own_and_go_on_from_any_place() {
    let ground = Ground::new();
    ground.sh("echo one; sleep 0.1; echo two >&2; sleep 0.1; echo three").go().ends_with(0);
    let id = ground.last();
    let ran = ground.cli(&["logs", &id]).go().ends_with(0);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("one\nthree\n", "two\n"), "{ran}");
    let ran = ground.cli(&["logs", "--last", "--stream", "stderr"]).go().ends_with(0);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("", "two\n"), "{ran}");
    let ran = ground.cli(&["logs", &id, "--stream", "stdout"]).go().ends_with(0);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("one\nthree\n", ""), "{ran}");
    let json = ground.cli(&["logs", &id, "--json"]).go().ends_with(0);
    let pieces: Vec<serde_json::Value> =
        json.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(pieces.len(), 3, "{json}");
    assert_eq!((&pieces[1]["stream"], &pieces[1]["bytes"]), (&"stderr".into(), &"two\n".into()), "{json}");
    let after = pieces[1]["sequence"].to_string();
    let rest = ground.cli(&["logs", &id, "--after", &after]).go().ends_with(0);
    assert_eq!((rest.out().as_str(), rest.err().as_str()), ("three\n", ""), "{rest}");
    assert_eq!(ground.cli(&["logs", &id, "--after", "1000000"]).go().ends_with(0).out(), "");
    said_no(&ground.cli(&["logs", UNKNOWN]).go().ends_with(125), "SK-R053");
}

/// What a command writes must not move the cursor, the title or the keyboard of whoever looks at it later.
#[test]
fn logs_on_a_terminal_obey_nobody() {
    let ground = Ground::new();
    let hostile = r"printf 'a\tb \033]0;x\007\r\302\233 \377 \303'; sleep 0.1; printf '\251\n'; \
                    printf 'to stderr \302\233\033[2J\n' >&2; echo end";
    let bytes = b"a\tb \x1b]0;x\x07\r\xc2\x9b \xff \xc3\xa9\nend\n";
    // Like a run without the service, whatever it writes.
    let ran = ground.sh(hostile).go().ends_with(0);
    assert_eq!(ran.stdout, bytes, "{ran}");
    let id = ground.last();
    let shown = |words: &[&str]| {
        let (mut master, slave) = terminal();
        let err = slave.try_clone().expect("a copy");
        let running = ground.cli(&[&["logs", &id], words].concat()).stdout_to(slave).stderr_to(err).start();
        // The two streams keep no order between them.
        let shown = read_to_close(&mut master);
        running.finish().ends_with(0);
        shown
    };
    let clean = shown(&[]);
    assert!(clean.contains("a\tb ") && clean.contains(r"\u{1b}]0;x\u{7}\r\u{9b} \xff é"), "{clean:?}");
    assert!(clean.contains(r"to stderr \u{9b}\u{1b}[2J"), "{clean:?}");
    assert!(!clean.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{clean:?}");
    let json = shown(&["--json"]);
    assert!(json.contains(r"\u009b") && !json.contains('\u{9b}'), "{json:?}");
    assert!(shown(&["--raw"]).contains("\u{1b}]0;x\u{7}\r\u{9b}"), "as it is where that is asked for");
    let ran = ground.cli(&["logs", &id]).go().ends_with(0);
    assert_eq!(ran.stdout, bytes, "{ran}");
}

#[test]
fn logs_follow_to_the_end() {
    let ground = Ground::new();
    let mut running = ground.sh("echo begun; read word; echo got $word").flag("-i").input_open().start();
    running.wait_out("begun\n");
    let id = ground.last();
    // Without -f what is there now.
    assert_eq!(ground.cli(&["logs", &id]).go().ends_with(0).out(), "begun\n");
    let follower = ground.cli(&["logs", "-f", &id]).start();
    follower.wait_out("begun\n");
    running.write(b"it\n");
    running.finish().ends_with(0);
    let ran = follower.finish().ends_with(0);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("begun\ngot it\n", ""), "{ran}");
    // And of one that has ended.
    assert_eq!(ground.cli(&["logs", "-f", &id]).go().ends_with(0).out(), "begun\ngot it\n");
}

#[test]
fn logs_leave_when_told_and_when_nobody_reads() {
    let (ground, sleep) = (Ground::new(), unique_sleep());
    let running = ground.sh(&format!("yes | head -c 300000; sleep {sleep}")).start();
    assert!(running.out_reaches(300_000));
    let id = ground.last();
    let follower = ground.cli(&["logs", "-f", &id]).start();
    assert!(follower.out_reaches(300_000));
    follower.signal(Signal::INT);
    assert!(follower.ends_within(Duration::from_secs(5)));
    let ran = follower.finish();
    assert!(ran.stderr.is_empty(), "{ran}");
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    drop(read);
    let ran = ground.cli(&["logs", &id]).stdout_to(write).go().ends_with(0);
    assert!(ran.stderr.is_empty(), "{ran}");
    assert_eq!(ground.listed(&[]).len(), 1, "it does not mind");
    running.signal(Signal::TERM);
    running.finish().ends_with(143);
    assert!(settle(&sleep).is_empty());
}

#[test]
fn show_tells_the_whole_record() {
    let ground = Ground::new();
    ground.sh("echo out; echo err >&2; exit 7").go().ends_with(7);
    let id = ground.last();
    let shown = ground.cli(&["show", &id]).go().ends_with(0);
    let out = shown.out();
    for part in [
        &format!("execution   {id}\n"),
        "state       ended, ",
        "profile     default\n",
        "outcome     exited with 7; exit code 7\n",
        "stdout      4 bytes\n",
        "landlock    enforced  ",
        "limits      ",
    ] {
        assert!(out.contains(part), "{part}: {shown}");
    }
    let json = ground.cli(&["show", "--last", "--json"]).go().ends_with(0);
    let value: serde_json::Value = serde_json::from_str(&json.out()).expect("JSON");
    assert_eq!(
        (&value["id"], &value["ending"]["result"]["exit_code"]),
        (&id.as_str().into(), &7.into()),
        "{json}"
    );
    said_no(&ground.cli(&["show", UNKNOWN]).go().ends_with(125), "SK-R053");
    said_no(&ground.cli(&["show", "\u{1b}[31m"]).go().ends_with(125), "SK-R05");
}

#[test]
fn a_failure_has_its_code_and_class() {
    let ground = Ground::new();
    ground.sh("sleep 100").timeout("300ms").profile("hasty").go().ends_with(124);
    let shown = ground.cli(&["show", "--last"]).go().ends_with(0);
    assert!(shown.out().contains("code        UZ-EXEC-008, timeout_kill\n"), "{shown}");
    assert!(ground.cli(&["ps", "--all"]).go().out().contains("ended UZ-EXEC-008"));
}

#[test]
fn stop_ends_it_and_wait_has_its_code() {
    let (ground, sleep) = (Ground::new(), unique_sleep());
    let running = ground.sh(&format!("echo ready; sleep {sleep}")).start();
    running.wait_out("ready\n");
    await_process(&format!("sleep {sleep}"));
    let id = ground.last();
    let soon = ground.cli(&["wait", &id, "--timeout", "100ms"]).go().ends_with(124);
    assert!(soon.err().contains("has not ended yet"), "{soon}");
    let waiter = ground.cli(&["wait", &id]).start();
    let stopped = ground.cli(&["stop", &id]).go().ends_with(0);
    assert!(stopped.stdout.is_empty() && stopped.stderr.is_empty(), "{stopped}");
    waiter.finish().ends_with(143);
    running.finish().ends_with(143);
    assert!(settle(&sleep).is_empty());
    // Once more is no mistake; one that never was is.
    ground.cli(&["stop", &id]).go().ends_with(0);
    let both = ground.cli(&["stop", UNKNOWN, &id]).go().ends_with(125);
    said_no(&both, "SK-R053");
    assert!(both.err().contains(UNKNOWN), "{both}");
}

#[test]
fn wait_has_the_code_of_what_ended_long_ago() {
    let ground = Ground::new();
    ground.sh("exit 42").go().ends_with(42);
    ground.cli(&["wait", "--last"]).go().ends_with(42);
    ground.sh("kill -9 $$").go().ends_with(137);
    ground.cli(&["wait", &ground.last()]).go().ends_with(137);
    for words in
        [&["wait"][..], &["wait", "--timeout", "soon", "--last"], &["logs", "--last", "x"], &["stop"]]
    {
        ground.cli(words).go().ends_with(125);
    }
}

#[test]
fn there_is_no_last_one_before_the_first() {
    let ground = Ground::new();
    for verb in ["logs", "show", "stop", "wait"] {
        said_no(&ground.cli(&[verb, "--last"]).go().ends_with(125), "SK-R053");
    }
    let socket = Service::socket(&ground.world);
    let ran = ground.cli(&["ps"]).caller_env("STOCKADE_SOCKET", "").option("--socket", socket).go();
    ran.ends_with(0);
}
