//! Filling the private `/tmp`, home and shared memory; files without end in the workspace.

use stockade_escape_tests::{Sandbox, Verdict};
use stockade_proto::{LimitKind, Outcome};

fn little_scratch() -> Sandbox {
    Sandbox::new().profile("[limits]\nscratch = \"16M\"\nmemory = \"256M\"")
}

fn wrote(stdout: &str) -> u64 {
    let line = stdout.lines().find_map(|line| line.strip_prefix("WROTE "));
    line.and_then(|line| line.split(' ').next()).and_then(|word| word.parse().ok()).unwrap_or(u64::MAX)
}

#[test]
fn tmp_ends_at_the_limit() {
    let sandbox = little_scratch();
    let name = format!("/tmp/stockade-escape-fill-{}", std::process::id());
    sandbox.bare(&format!("fill {name} 24 , unlink {name}")).won();
    let ran = sandbox.run_attack(&format!("fill {name} 24"));
    let (_, errno) = Verdict::of(&ran).held();
    assert_eq!(errno, rustix::io::Errno::NOSPC.raw_os_error(), "{ran}");
    assert!(wrote(&ran.stdout_text()) <= 16, "{ran}");
    assert!(!std::path::Path::new(&name).exists(), "it is on the host");
}

#[test]
fn all_scratch_is_one_pool() {
    let sandbox = little_scratch();
    let ran = sandbox.run(&[
        "sh",
        "-c",
        "./attack fill /tmp/a 12 >/dev/null; ./attack fill /dev/shm/b 12; ./attack fill $HOME/c 12",
    ]);
    let total: u64 = ran.stdout_text().lines().filter(|line| line.starts_with("WROTE")).map(wrote).sum();
    assert!(total <= 4, "more than the pool fits: {ran}");
}

#[test]
fn by_many_small_files() {
    // Inodes cost memory too: a tmpfs without a bound on them is a memory bomb with empty files.
    let sandbox = little_scratch().option("--timeout", "60s");
    let script =
        "i=0; while [ $i -lt 400000 ]; do : > /tmp/$i || break; i=$((i+1)); done 2>/dev/null; echo $i";
    let ran = sandbox.run(&["sh", "-c", script]);
    let made: u64 = ran.stdout_text().trim().parse().unwrap_or(0);
    let ended = matches!(ran.result().outcome, Outcome::OomKilled | Outcome::TimedOut);
    assert!(ended || made < 400_000, "{ran}");
}

#[test]
fn a_file_in_the_workspace() {
    let sandbox = Sandbox::new().profile("[limits]\nfile-size = \"4M\"");
    sandbox.bare("fill ./big 16 , unlink ./big").won();
    let ran = sandbox.run_attack("fill ./big 16");
    let size = std::fs::metadata(sandbox.workspace().join("big")).map_or(0, |meta| meta.len());
    assert!(size <= 4 << 20, "{size} bytes: {ran}");
    assert_eq!(ran.result().outcome, Outcome::Limit { which: LimitKind::FileSize }, "{ran}");
}
