//! bpf, perf and userfaultfd: looking into the kernel, or stopping it where it hurts.

use stockade_escape_tests::{Sandbox, wall};
use stockade_proto::Layer;

#[test]
fn bpf() {
    wall(&Sandbox::new(), "bpf");
}

#[test]
fn perf() {
    wall(&Sandbox::new(), "perf");
}

#[test]
fn userfaultfd() {
    let sandbox = Sandbox::new();
    wall(&sandbox, "userfaultfd");
    if std::path::Path::new("/dev/userfaultfd").exists() {
        wall(&sandbox, "userfaultfd-device");
    }
    sandbox.attack("userfaultfd-device").held();
}

#[test]
fn the_filter_is_what_stops_userfaultfd() {
    stockade_escape_tests::wall_of(&[Layer::Seccomp], Sandbox::new, |_| String::from("userfaultfd"));
}

#[test]
fn descriptor_tables() {
    wall(&Sandbox::new(), "ldt");
}
