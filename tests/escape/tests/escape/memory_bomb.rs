//! Memory bombs end with the kernel's own OOM kill of the tree, and are told apart from other kills.

use stockade_escape_tests::{Sandbox, settle};
use stockade_proto::{Outcome, exit};

fn little_memory() -> Sandbox {
    Sandbox::new().profile("[limits]\nmemory = \"64M\"")
}

#[test]
fn one_process() {
    let sandbox = little_memory();
    sandbox.bare("memory 256").won();
    let ran = sandbox.run_attack("memory 256");
    assert_eq!(ran.code(), i32::from(exit::OOM_KILLED), "{ran}");
    assert_eq!(ran.result().outcome, Outcome::OomKilled, "{ran}");
    // 64 MiB and a page or two of the kernel's own batching.
    assert!(ran.result().usage.memory_peak_bytes <= 72 << 20, "{ran}");
}

#[test]
fn the_whole_tree_goes() {
    let sandbox = little_memory();
    // On cgroup v1 it is stockade that hears of the first and ends the others.
    let script = "./attack hold walrus-oom & ./attack memory 256; sleep 2; echo survived; wait";
    let ran = sandbox.run(&["sh", "-c", script]);
    assert_eq!(ran.result().outcome, Outcome::OomKilled, "{ran}");
    assert!(!ran.stdout_text().contains("survived"), "{ran}");
    assert!(settle("walrus-oom").is_empty());
}

#[test]
fn a_kill_of_its_own_is_not_an_oom_kill() {
    let ran = little_memory().run(&["sh", "-c", "kill -9 $$"]);
    assert_eq!(ran.result().outcome, Outcome::Signaled { signal: 9 }, "{ran}");
}

#[test]
fn swap_is_no_way_out() {
    // memory.swap.max is 0: twice the limit does not fit however it is spread.
    let ran = little_memory().run(&[
        "sh",
        "-c",
        "./attack memory 40 , hold a & ./attack memory 40 , hold b & wait",
    ]);
    assert_eq!(ran.result().outcome, Outcome::OomKilled, "{ran}");
}
