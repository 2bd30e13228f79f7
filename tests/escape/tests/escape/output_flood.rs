//! Output without end: cut at the limit, told exactly, in bounded memory.

use stockade_escape_tests::Sandbox;
use stockade_proto::{LimitKind, Outcome, exit};

const MIB: u64 = 1 << 20;

#[test]
fn cut_at_the_limit() {
    let sandbox = Sandbox::new().profile("[limits]\noutput = \"1M\"");
    let bare = sandbox.run_bare("flood 32");
    assert!(bare.stdout_total > 32 * MIB, "{}", bare.stdout_total);
    let ran = sandbox.run_attack("flood 32");
    assert_eq!(ran.code(), i32::from(exit::LIMIT), "{}", ran.stderr_text());
    let result = ran.result();
    assert_eq!(result.outcome, Outcome::Limit { which: LimitKind::OutputBytes });
    assert!(result.truncated);
    assert!(ran.stdout_total <= MIB, "{} bytes came out", ran.stdout_total);
    assert_eq!(result.stdout.bytes - result.stdout.dropped, ran.stdout_total);
}

#[test]
fn memory_stays_bounded() {
    // 256 MiB through a supervisor that must never hold more than its buffers.
    const BOUND_KIB: u64 = 48 << 10;
    let sandbox = Sandbox::new().profile("[limits]\noutput = \"none\"").staged("with-rusage");
    let ran = sandbox.run_attack("flood 256");
    assert_eq!(ran.code(), 0, "{}", ran.stderr_text());
    assert!(ran.stdout_total >= 256 * MIB, "{}", ran.stdout_total);
    let text = ran.stderr_text();
    let peak =
        text.lines().find_map(|line| line.strip_prefix("MAXRSS ")).and_then(|word| word.parse::<u64>().ok());
    let peak = peak.expect("the stage tells the peak");
    assert!(peak < BOUND_KIB, "peak of {peak} KiB");
}
