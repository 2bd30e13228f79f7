//! An ordinary user's limits need a delegated cgroup, which `stockade run` gets by starting itself again in a
//! scope of systemd's. Doctor does the same, once, after seeing that such a scope can be had at all: it must
//! end with findings, not with systemd-run's error.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use stockade_executor::Beginning;
use stockade_executor::cgroup::scope_reexec_argv;

use super::ground::Ground;
use super::trial::{self, Stop};
use super::variant::Variant;
use crate::run;

/// `Stop::NeedsScope` where a scope is needed and can be had. Where it can't, `examine` finds the limits
/// missing.
pub(super) fn check(ground: &Ground) -> Result<(), Stop> {
    if run::in_scope() {
        return Ok(());
    }
    match trial::beginning(ground, &Variant::default_profile()) {
        Ok(Beginning::NeedsScope(refusal)) if can_be_had() => Err(Stop::NeedsScope(refusal)),
        // What else is in the way is for `examine` to say.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn can_be_had() -> bool {
    let nothing = ["probe", "nothing"].map(OsString::from);
    let Some(argv) = scope_reexec_argv(&nothing) else { return false };
    let Some((program, rest)) = argv.split_first() else { return false };
    Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
