//! The ground the escape suite stands on: a workspace beside a directory of secrets, `stockade run`
//! with a profile of the test's own, the attacker's program, victims and listeners outside.
//! It holds no attack: those are in `tests/escape/`, one file each. Every wait here has a deadline.

#![expect(clippy::expect_used, clippy::panic, reason = "a test's fixture fails by panicking")]

mod outsiders;
mod ran;
mod sandbox;
mod tree;
mod verdict;
mod wall;

pub use outsiders::{Datagrams, Listener, Victim};
pub use ran::{Ran, Running, deadline, scaled};
pub use sandbox::{SECRET, Sandbox, attack_program, reversed, stockade_program};
pub use tree::{cgroup_directories, descendants, find_marked, kill_marked, orphaned_inits, settle};
pub use verdict::Verdict;
pub use wall::{am_root, skip, wall, wall_of};
