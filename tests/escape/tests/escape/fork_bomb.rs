//! Fork bombs end at the process limit, and the host stays as it was.

use stockade_escape_tests::{Sandbox, settle};
use stockade_proto::{LimitKind, Outcome};

fn few_processes() -> Sandbox {
    Sandbox::new().profile("[limits]\nprocesses = 64\ngrace = \"500ms\"")
}

#[test]
fn children_end_at_the_limit() {
    let sandbox = few_processes();
    sandbox.bare("forks 200").won();
    let ran = sandbox.run_attack("forks 200");
    let (step, errno) = stockade_escape_tests::Verdict::of(&ran).held();
    assert_eq!((step.as_str(), errno), ("fork", rustix::io::Errno::AGAIN.raw_os_error()), "{ran}");
    let result = ran.result();
    assert!(result.limits_hit.contains(&LimitKind::Processes), "{ran}");
}

#[test]
fn a_real_bomb_goes_off_inside() {
    let sandbox = few_processes().option("--timeout", "3s");
    let ran = sandbox.run_attack("fork-bomb walrus-bomb");
    let result = ran.result();
    assert!(
        matches!(result.outcome, Outcome::TimedOut | Outcome::Limit { which: LimitKind::Processes }),
        "{ran}"
    );
    assert!(
        result.limits_hit.contains(&LimitKind::Processes),
        "the outcome does not tell of the limit: {ran}"
    );
    let left = settle("walrus-bomb");
    assert!(left.is_empty(), "left behind: {left:?}");
    // The host can still start processes.
    sandbox.bare("forks 20").won();
}

#[test]
fn a_bomb_of_threads() {
    let script = "import threading,time\nn=0\ntry:\n  while n<200:\n    threading.Thread(target=time.sleep,args=(60,),daemon=True).start(); n+=1\nexcept RuntimeError: pass\nprint(n,flush=True)\nimport os; os._exit(0)";
    let ran = few_processes().run(&["/usr/bin/python3", "-c", script]);
    if ran.code() == 127 {
        return stockade_escape_tests::skip("no /usr/bin/python3 on this host");
    }
    let started: u32 = ran.stdout_text().trim().parse().unwrap_or(9999);
    assert!(started < 64, "{started} threads: {ran}");
}
