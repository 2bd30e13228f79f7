//! RUN-6, BOX-2: each limit that is hit is an outcome of its own, known from the kernel's counters.

use std::time::Duration;

use stockade_line_tests::{World, find_marked, settle, slowness, unique, unique_sleep};
use stockade_proto::{LimitKind, Outcome, exit};

fn world(limits: &str) -> World {
    let world = World::new();
    world.profile("limited", &format!("extends = \"default\"\n[limits]\n{limits}\n"));
    world
}

#[test]
fn memory_ends_in_oom_killed() {
    let world = world("memory = \"64M\"");
    let ran = world.line(&["tail", "/dev/zero"]).profile("limited").timeout("50s").go();
    assert_eq!(ran.code(), i32::from(exit::OOM_KILLED), "{ran}");
    let result = ran.result();
    assert_eq!(result.outcome, Outcome::OomKilled, "{ran}");
    assert!(ran.err().contains("out of memory") && ran.err().contains("`memory`"), "{ran}");
    let peak = result.usage.memory_peak_bytes;
    assert!((48 << 20..=66 << 20).contains(&peak), "{peak}: {ran}");
}

#[test]
fn memory_of_the_whole_tree_counts() {
    let world = world("memory = \"64M\"");
    // Each of four stays below the limit.
    let script = "for i in 1 2 3 4; do head -c 30000000 /dev/zero | tail & done; wait; echo all done";
    let ran = world.sh(script).profile("limited").timeout("50s").go();
    assert_eq!(ran.result().outcome, Outcome::OomKilled, "{ran}");
    assert!(!ran.out().contains("all done"), "the whole tree goes: {ran}");
}

#[test]
fn killing_oneself_is_not_out_of_memory() {
    let world = World::new();
    let ran = world.sh("kill -9 $$").go().ends_with(137);
    assert_eq!(ran.result().outcome, Outcome::Signaled { signal: 9 }, "{ran}");
    let ran = world.sh("exit 137").go().ends_with(137);
    assert_eq!(ran.result().outcome, Outcome::Exited { code: 137 }, "{ran}");
}

#[test]
fn cpu_seconds_of_the_whole_tree() {
    let world = world("cpu-seconds = 1\ngrace = \"200ms\"");
    for script in ["while :; do :; done", "(while :; do :; done) & (while :; do :; done) & wait"] {
        let ran = world.sh(script).profile("limited").timeout("50s").go().ends_with(i32::from(exit::LIMIT));
        let result = ran.result();
        assert_eq!(result.outcome, Outcome::Limit { which: LimitKind::CpuSeconds }, "{ran}");
        assert_eq!(result.limits_hit, [LimitKind::CpuSeconds], "{ran}");
        assert!(ran.err().contains("cpu-seconds"), "{ran}");
        let used = result.usage.cpu_user_ms + result.usage.cpu_system_ms;
        assert!((900..3000 * u64::from(slowness())).contains(&used), "{used} ms: {ran}");
    }
}

#[test]
fn sleeping_costs_no_cpu_seconds() {
    let world = world("cpu-seconds = 1");
    let ran = world.line(&["sleep", "1.5"]).profile("limited").go().ends_with(0);
    assert!(ran.result().limits_hit.is_empty(), "{ran}");
}

#[test]
fn a_share_of_one_core() {
    let world = world("cpu = 0.2\ncpu-seconds = 1\ngrace = \"100ms\"");
    // 0.4 s of CPU at a fifth of a core: two seconds, less the first period's burst.
    let script = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let ran = world.sh(script).profile("limited").timeout("50s").go();
    let usage = ran.result().usage;
    let used = usage.cpu_user_ms + usage.cpu_system_ms;
    assert!(usage.wall_ms + 200 >= used * 3, "{used} ms of CPU in {} ms: {ran}", usage.wall_ms);
}

#[test]
fn processes() {
    let world = world("processes = 20\ngrace = \"100ms\"");
    let sleep = unique_sleep();
    let script = format!("i=0; while [ $i -lt 50 ]; do sleep {sleep} & i=$((i+1)); done; exit 3");
    let ran = world.sh(&script).profile("limited").timeout("50s").go().ends_with(i32::from(exit::LIMIT));
    let result = ran.result();
    assert_eq!(result.outcome, Outcome::Limit { which: LimitKind::Processes }, "{ran}");
    assert_eq!(result.limits_hit, [LimitKind::Processes], "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn a_command_that_copes_with_the_process_limit_succeeds_and_the_hit_is_told() {
    let world = world("processes = 8");
    let script = "(for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.3 & done; wait) 2>/dev/null; exit 0";
    let ran = world.sh(script).profile("limited").timeout("50s").go().ends_with(0);
    let result = ran.result();
    assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{ran}");
    assert_eq!(result.limits_hit, [LimitKind::Processes], "{ran}");
}

#[test]
fn open_files() {
    let world = world("open-files = 16");
    let script = "ulimit -n; ulimit -Hn; ulimit -n 100 2>/dev/null || echo fixed";
    let ran = world.sh(script).profile("limited").go().ends_with(0);
    assert_eq!(ran.out(), "16\n16\nfixed\n", "{ran}");
    let script = "i=3; while [ $i -lt 40 ]; do eval \"exec $i</dev/null\" || exit 9; i=$((i+1)); done";
    let ran = world.line(&["bash", "-c", script]).profile("limited").go();
    if ran.code() == 127 {
        return stockade_line_tests::skip("bash is not installed");
    }
    assert_ne!(ran.code(), 0, "{ran}");
    assert_eq!(ran.value()["outcome"]["kind"], "exited", "{ran}");
}

#[test]
fn file_size() {
    let world = world("file-size = \"1M\"");
    for words in
        [&["dd", "if=/dev/zero", "of=big", "bs=65536", "count=64"][..], &["truncate", "-s", "2M", "sparse"]]
    {
        let ran = world.line(words).profile("limited").go().ends_with(i32::from(exit::LIMIT));
        let result = ran.result();
        assert_eq!(result.outcome, Outcome::Limit { which: LimitKind::FileSize }, "{ran}");
        assert_eq!(result.limits_hit, [LimitKind::FileSize], "{ran}");
    }
    let size = std::fs::metadata(world.work().join("big")).expect("the file").len();
    assert_eq!(size, 1 << 20);
    let ran = world.line(&["dd", "if=/dev/zero", "of=fits", "bs=65536", "count=16"]).profile("limited").go();
    assert_eq!(ran.code(), 0, "{ran}");
}

#[test]
fn a_shell_whose_child_hit_the_file_size_is_told_too() {
    let world = world("file-size = \"1M\"");
    // 153 is what a shell makes of SIGXFSZ: the outcome is the shell's own, but the hit is not a secret.
    let ran = world.sh("head -c 3000000 /dev/zero > big; exit $?").profile("limited").go();
    assert!([123, 153, 1].contains(&ran.code()), "{ran}");
}

#[test]
fn output_is_cut_exactly_at_the_limit() {
    let world = world("output = \"100K\"");
    let marker = unique("flood");
    let ran = world.line(&["yes", &marker]).profile("limited").timeout("50s").go();
    assert_eq!(ran.code(), i32::from(exit::LIMIT), "{ran}");
    let result = ran.result();
    assert_eq!(result.outcome, Outcome::Limit { which: LimitKind::OutputBytes });
    assert_eq!(result.limits_hit, [LimitKind::OutputBytes]);
    assert!(result.truncated);
    assert_eq!(ran.stdout.len(), 100 << 10, "bytes that came");
    assert_eq!(result.stdout.bytes - result.stdout.dropped, 100 << 10, "{:?}", result.stdout);
    let line = format!("{marker}\n");
    assert!(ran.out().starts_with(&line.repeat(100)), "not its beginning");
    assert!(ran.err().contains("output-bytes"), "{}", ran.err());
    assert!(find_marked(&marker).is_empty());
}

#[test]
fn both_streams_share_the_output_limit() {
    let world = world("output = 1000");
    let script = "head -c 600 /dev/zero; sleep 0.1; head -c 600 /dev/zero >&2; sleep 10";
    let ran = world.sh(script).profile("limited").go().ends_with(i32::from(exit::LIMIT));
    let result = ran.result();
    assert_eq!((result.stdout.bytes, result.stdout.dropped), (600, 0), "{ran}");
    assert_eq!((result.stderr.bytes, result.stderr.dropped), (600, 200), "{ran}");
    assert_eq!(ran.stderr.iter().filter(|byte| **byte == 0).count(), 400);
}

#[test]
fn output_of_exactly_the_limit_is_fine() {
    let world = world("output = 1000");
    let ran = world.line(&["head", "-c", "1000", "/dev/zero"]).profile("limited").go().ends_with(0);
    assert!(!ran.result().truncated, "{ran}");
    assert_eq!(ran.stdout.len(), 1000);
}

#[test]
fn wall_clock_of_the_profile() {
    let world = world("wall = \"300ms\"\ngrace = \"200ms\"");
    let sleep = unique_sleep();
    let ran = world.line(&["sleep", &sleep]).profile("limited").go().ends_with(i32::from(exit::TIMED_OUT));
    assert_eq!(ran.result().outcome, Outcome::TimedOut, "{ran}");
    assert!(ran.err().contains("timed out after 0.") || slowness() > 1, "{ran}");
    assert!(ran.wall < Duration::from_secs(10) * slowness(), "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn the_scratch_space() {
    let world = world("scratch = \"8M\"");
    let script = "head -c 20000000 /dev/zero > /tmp/a; wc -c < /tmp/a; df -k /tmp | tail -n 1";
    let ran = world.sh(script).profile("limited").go().ends_with(0);
    assert!(ran.err().contains("No space left"), "{ran}");
    let size: u64 = ran.out().lines().next().and_then(|line| line.trim().parse().ok()).unwrap_or(u64::MAX);
    assert!(size <= 8 << 20, "{ran}");
}

#[test]
fn two_trees_of_one_user_are_not_confused() {
    let world = world("memory = \"64M\"");
    let sleep = unique_sleep();
    let calm = world.sh(&format!("echo here; sleep {sleep} & wait $!; exit 5")).start();
    calm.wait_out("here");
    let ran = world.line(&["tail", "/dev/zero"]).profile("limited").timeout("50s").go();
    assert_eq!(ran.result().outcome, Outcome::OomKilled, "{ran}");
    let marked = find_marked(&format!("sleep {sleep}"));
    assert!(!marked.is_empty(), "the other tree was hit");
    for pid in marked {
        stockade_line_tests::kill(pid, rustix::process::Signal::TERM);
    }
    // The command line of `stockade` and the shell holds the marker too.
    let ran = calm.finish();
    assert!(!matches!(ran.result().outcome, Outcome::OomKilled | Outcome::Limit { .. }), "{ran}");
}

#[test]
fn the_largest_numbers_that_can_be_written() {
    let world = World::new();
    for body in [
        "cpu-seconds = 9223372036854775807",
        "cpu-seconds = \"18446744073709551615\"",
        "wall = \"5124095576030h\"",
        "grace = \"5124095576030h\"",
        "open-files = 9223372036854775807",
        "file-size = \"16777215T\"",
        "output = \"16777215T\"",
        "scratch = \"16777215T\"",
    ] {
        world.profile("huge", &format!("extends = \"default\"\n[limits]\n{body}\n"));
        let ran = world.line(&["true"]).profile("huge").go();
        assert!(!ran.err().contains("panicked"), "{body}: {ran}");
        assert!([0, 125].contains(&ran.code()), "{body}: {ran}");
    }
}

#[test]
fn the_smallest_numbers_that_can_be_written() {
    let world = World::new();
    for (body, codes) in [
        ("memory = 1", &[125, 137][..]),
        ("cpu = 0.001", &[0, 125]),
        ("cpu-seconds = 1", &[0]),
        ("open-files = 3", &[125, 127]),
        ("file-size = 1", &[0]),
        ("scratch = 1", &[0, 125]),
        ("wall = \"1ms\"", &[124]),
        ("grace = \"1ms\"", &[0]),
        ("output = 1", &[123]),
    ] {
        world.profile("tiny", &format!("extends = \"default\"\n[limits]\n{body}\n"));
        let ran = world.sh("echo ok").profile("tiny").go();
        assert!(codes.contains(&ran.code()), "{body}: {ran}");
        assert!(ran.json.as_deref().is_some_and(|json| json.starts_with(b"{")), "{body}: {ran}");
    }
}

#[test]
fn one_process_is_too_few_for_init_and_its_command() {
    let world = world("processes = 1");
    let ran = world.sh("echo ok").profile("limited").go();
    // The kernel counted the hit: that is what happened, not an errno of the command's.
    match ran.code() {
        0 => assert_eq!(ran.out(), "ok\n", "{ran}"),
        125 => drop(ran.refusal()),
        _ => assert_eq!(ran.result().outcome, Outcome::Limit { which: LimitKind::Processes }, "{ran}"),
    }
}
