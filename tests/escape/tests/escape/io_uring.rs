//! io_uring: system calls that no filter sees.

use stockade_escape_tests::{Sandbox, wall, wall_of};
use stockade_proto::Layer;

#[test]
fn setup_is_refused() {
    let sandbox = Sandbox::new();
    wall(&sandbox, "io-uring");
    wall(&sandbox, &format!("io-uring-open {}", sandbox.secret().display()));
}

#[test]
fn the_filter_is_what_stops_it() {
    wall_of(&[Layer::Seccomp], Sandbox::new, |_| String::from("io-uring"));
}
