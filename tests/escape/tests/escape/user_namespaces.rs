//! A new user namespace gives every capability over what is made in it: the start of most kernel exploits.

use stockade_escape_tests::{Sandbox, wall, wall_of};
use stockade_proto::Layer;

#[test]
fn unshare() {
    let sandbox = Sandbox::new();
    wall(&sandbox, "unshare user");
    for words in ["user mnt", "user net", "user pid", "mnt", "net", "uts", "ipc", "cgroup", "pid", "time"] {
        sandbox.attack(&format!("unshare {words}")).held();
    }
}

#[test]
fn clone_with_the_flag() {
    wall(&Sandbox::new(), "clone-user");
}

#[test]
fn clone3_hides_the_flag_behind_a_pointer() {
    let errno = wall(&Sandbox::new(), "clone3-user");
    // libc falls back to clone on ENOSYS, and on nothing else.
    assert_eq!(errno, rustix::io::Errno::NOSYS.raw_os_error());
}

#[test]
fn the_filter_is_what_stops_it() {
    for attack in ["unshare user", "clone-user", "clone3-user"] {
        wall_of(&[Layer::Seccomp], Sandbox::new, |_| attack.to_owned());
    }
}

#[test]
fn threads_and_children_still_work() {
    let sandbox = Sandbox::new();
    sandbox.attack("forks 5").won();
    let ran = sandbox.run(&["sh", "-c", "(echo a & wait); echo b | cat"]);
    assert_eq!(ran.stdout_text(), "a\nb\n", "{ran}");
}
