//! What `/proc` tells about processes outside: nothing, because they are not there.

use stockade_escape_tests::{SECRET, Sandbox, Victim, reversed, wall};

#[test]
fn environment_memory_descriptors_of_a_victim() {
    let sandbox = Sandbox::new();
    let victim = Victim::start(&sandbox);
    let pid = victim.pid();
    for leaf in ["environ", "cmdline", "maps", "status", "auxv"] {
        wall(&sandbox, &format!("read /proc/{pid}/{leaf}"));
    }
    wall(&sandbox, &format!("list /proc/{pid}/fd"));
    wall(&sandbox, &format!("proc-mem {pid} {} {}", victim.address, SECRET.len()));
    wall(&sandbox, &format!("see-pid {pid}"));
}

#[test]
fn a_search_of_everything_visible_finds_no_secret() {
    let sandbox = Sandbox::new();
    let _victim = Victim::start(&sandbox);
    // The words of SECRET hold spaces; a single one is enough to find it.
    wall(&sandbox, &format!("scan-proc {}", reversed("walrus")));
}

#[test]
fn only_the_sandbox_is_visible() {
    let sandbox = Sandbox::new();
    let me = std::process::id();
    let bare = sandbox.bare("count-pids").won();
    assert!(bare.split(' ').any(|pid| pid == me.to_string()));
    let seen = sandbox.attack("count-pids").won();
    let count = seen.split(' ').count();
    assert!(count <= 3, "a command alone in its sandbox sees {seen}");
    assert!(seen.split(' ').any(|pid| pid == "1"));
}
