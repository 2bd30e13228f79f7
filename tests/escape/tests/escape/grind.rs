//! Work for others: calls that cost their caller nothing keep the supervisor of sockets busy, outside of the sandbox's
//! cgroup. Its time is the execution's all the same.

use std::time::Duration;

use stockade_escape_tests::{Ran, Sandbox, Verdict, scaled};
use stockade_proto::{LimitKind, Outcome};

const SHORT: Duration = Duration::from_secs(3);

fn grind(limits: &str, seconds: u32) -> Ran {
    let sandbox = Sandbox::new().profile(&format!("[limits]\ngrace = \"200ms\"\n{limits}"));
    sandbox.run_attack(&format!("grind 32 {seconds}"))
}

/// What the result says that was used.
fn told(ran: &Ran) -> Duration {
    let usage = ran.result().usage;
    Duration::from_millis(usage.cpu_user_ms + usage.cpu_system_ms)
}

#[test]
fn the_supervisor_has_one_more_share_and_no_more() {
    let idle = grind("cpu = 0.1", 0);
    let held = grind("cpu = 0.1", 3);
    Verdict::of(&held).won();
    // Beside what it takes to start, a tenth of a core, and what is free after a rest.
    let most = idle.own_cpu + held.wall.mul_f64(0.1) + scaled(Duration::from_millis(250));
    assert!(held.own_cpu < most, "{:?} of {most:?}: {held}", held.own_cpu);
    let known = idle.own_cpu + told(&held) + scaled(Duration::from_millis(100));
    assert!(held.own_cpu < known, "{:?}, known {known:?}: {held}", held.own_cpu);
    // Without that bound it takes what the host has.
    let free = grind(&format!("cpu = \"none\"\nwall = {:?}", format!("{}s", scaled(SHORT).as_secs())), 600);
    assert_eq!(free.result().outcome, Outcome::TimedOut, "{free}");
    let rate = |ran: &Ran| ran.own_cpu.saturating_sub(idle.own_cpu).as_secs_f64() / ran.wall.as_secs_f64();
    assert!(rate(&free) > 2.0 * rate(&held), "{} cores, held {}: {free}", rate(&free), rate(&held));
}

#[test]
fn its_seconds_are_the_executions() {
    let ran = grind("cpu = \"none\"\ncpu-seconds = 1", 60);
    assert_eq!(ran.result().outcome, Outcome::Limit { which: LimitKind::CpuSeconds }, "{ran}");
    assert!(told(&ran) > Duration::from_millis(900), "{ran}");
    assert!(ran.own_cpu > told(&ran) / 2, "most of it was the supervisor's: {ran}");
}
