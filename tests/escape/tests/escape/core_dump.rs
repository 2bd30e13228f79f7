//! A crash: no core file is left for others to read, no handler of the host is fed.

use stockade_escape_tests::{Sandbox, skip};
use stockade_proto::Outcome;

fn cores(sandbox: &Sandbox) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.workspace()).expect("the workspace");
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("core"))
        .collect()
}

#[test]
fn no_core_file_is_left() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let open = Sandbox::new();
    let crashed = open.run_bare("crash");
    assert!(crashed.status.code().is_none(), "{crashed}");
    if pattern.trim() == "core" && cores(&open).is_empty() {
        skip("this host leaves no core file without walls either (RLIMIT_CORE)");
    } else if pattern.trim() != "core" {
        skip(&format!("core_pattern is {:?}: the bare half can't be seen", pattern.trim()));
    }
    let sandbox = Sandbox::new();
    let ran = sandbox.run_attack("crash");
    assert_eq!(ran.result().outcome, Outcome::Signaled { signal: 6 }, "{ran}");
    assert_eq!(cores(&sandbox), Vec::<String>::new());
}

#[test]
fn the_limit_can_t_be_raised() {
    let sandbox = Sandbox::new();
    sandbox.attack("core-limit").held();
    let bare = sandbox.bare("core-limit");
    if !bare.is_won() {
        skip(&format!("the caller of this suite has a hard limit on core dumps: {bare:?}"));
    }
}
