//! A crash: no core file is left for others to read, no handler of the host is fed.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use stockade_escape_tests::{Sandbox, am_root, deadline, skip, stockade_program};
use stockade_proto::Outcome;

const PATTERN: &str = "/proc/sys/kernel/core_pattern";
/// The whole machine has one pattern.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

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
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pattern = std::fs::read_to_string(PATTERN).unwrap_or_default();
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

#[test]
fn the_limit_stays_where_no_handler_is_fed() {
    Sandbox::new().attack("core-zero").held();
    Sandbox::new().bare("core-zero").won();
    // Whoever wants no core is not told that there could be one.
    let ran = Sandbox::new().run(&["sh", "-ec", "ulimit -c 0; ulimit -Hc"]);
    assert_eq!(ran.stdout_text().trim(), "0", "{ran}");
}

/// A caller who may have no cores at all can't be given one byte: it is served all the same.
#[test]
fn a_caller_without_cores_is_served() {
    let sandbox = Sandbox::new();
    let mut command = std::process::Command::new("prlimit");
    command.args(["--core=0:0", "--"]).arg(stockade_program()).args(["run", "--workspace"]);
    command.arg(sandbox.workspace()).args(["--", "sh", "-c", "ulimit -Hc"]);
    let done = command.stdin(std::process::Stdio::null()).output().expect("prlimit is part of every Debian");
    assert!(done.status.success() && done.stdout == b"0\n", "{done:?}");
}

/// A handler of the host's, for as long as this lives.
struct Handler {
    before: String,
}

impl Handler {
    const MARK: &str = "/run/stockade-core-";
    /// The name of the host, as a sandbox has it. Others' crashes, without walls, are marked with that of the machine.
    const INSIDE: &str = "/run/stockade-core-stockade.";

    fn new() -> Self {
        let before = std::fs::read_to_string(PATTERN).expect("it is there");
        std::fs::write(PATTERN, format!("|/usr/bin/touch {}%h.%P", Self::MARK)).expect("root sets it");
        Self { before }
    }

    fn was_fed() -> Vec<PathBuf> {
        let entries = std::fs::read_dir("/run").expect("a directory").flatten().map(|entry| entry.path());
        entries.filter(|path| path.to_string_lossy().starts_with(Self::MARK)).collect()
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        std::fs::write(PATTERN, &self.before).expect("root sets it");
        for mark in Self::was_fed() {
            std::fs::remove_file(mark).expect("root made it");
        }
    }
}

#[test]
fn a_handler_of_the_host_is_not_fed() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim() != "stockade-guest" || !am_root() {
        return skip("the handler is the whole machine's: shown by root of a machine that is the tests' own");
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let _handler = Handler::new();
    for attack in ["crash", "try core-zero , crash"] {
        let ran = Sandbox::new().run_attack(attack);
        assert_eq!(ran.result().outcome, Outcome::Signaled { signal: 6 }, "{ran}");
    }
    let named = Sandbox::new().run(&["cat", "/proc/sys/kernel/hostname"]);
    assert_eq!(named.stdout_text(), "stockade\n", "{named}");
    let bare = Sandbox::new().run_bare("crash");
    assert!(bare.status.code().is_none(), "{bare}");
    let end = std::time::Instant::now() + deadline();
    while Handler::was_fed().is_empty() {
        assert!(std::time::Instant::now() < end, "it is not fed without walls either");
        std::thread::yield_now();
    }
    let inside = |mark: &PathBuf| mark.to_string_lossy().starts_with(Handler::INSIDE);
    assert!(!Handler::was_fed().iter().any(inside), "{:?}", Handler::was_fed());
}
