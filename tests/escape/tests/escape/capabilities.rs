//! No capability is left in any set, and none can be had.

use stockade_escape_tests::{Sandbox, am_root, wall, wall_of};
use stockade_proto::Layer;

#[test]
fn every_set_is_empty() {
    // The bounding set of an ordinary user is full too, so this wins for everybody on the bare host.
    wall(&Sandbox::new(), "caps");
}

#[test]
fn the_marks_of_the_walls() {
    let sandbox = Sandbox::new();
    let status = sandbox.attack("status NoNewPrivs Seccomp CapEff CapBnd Groups").won();
    assert!(status.contains("NoNewPrivs=1"), "{status}");
    assert!(status.contains("Seccomp=2"), "{status}");
    let bare = sandbox.bare("status NoNewPrivs Seccomp").won();
    assert!(bare.contains("Seccomp=0"), "this suite runs inside a filter itself: {bare}");
}

#[test]
fn capset_and_securebits() {
    let sandbox = Sandbox::new();
    wall(&sandbox, "capset");
    wall(&sandbox, "securebits");
}

#[test]
fn root_inside_is_nobody_outside() {
    if !am_root() {
        return stockade_escape_tests::skip("root is not the caller here");
    }
    let sandbox = Sandbox::new();
    let running = sandbox.start_attack("hold walrus-identity");
    running.wait_line("READY");
    let pids = stockade_escape_tests::find_marked("walrus-identity");
    let uids: Vec<(u32, String)> = pids
        .iter()
        .map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let uid =
                status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or("?").trim().to_owned();
            (*pid, uid)
        })
        .collect();
    let command = uids.iter().max_by_key(|(pid, _)| *pid).expect("the command");
    assert!(!command.1.split_whitespace().any(|uid| uid == "0"), "host root runs the command: {uids:?}");
}

#[test]
fn with_the_filter_off_there_is_still_no_capability() {
    let sandbox = Sandbox::new().without(&[Layer::Seccomp]);
    sandbox.attack("caps").held();
    sandbox.attack("capset").held();
    sandbox.attack("mount tmpfs /tmp").held();
    sandbox.attack("chroot .").held();
    wall_of(&[Layer::Seccomp], Sandbox::new, |_| String::from("unshare user"));
}
