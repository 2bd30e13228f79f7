//! Sets the limit on core dumps, which the filter keeps. Installs the system call filter and, where it traps calls, offers its
//! listener: at once, or, by an init that waits for its
//! order, together with the word that its walls stand. Nothing that it traps is called before the executor has taken that.

use stockade_launch::NO_CORE;
use stockade_nolibc::{Errno, install_filter, install_supervised_filter, set_rlimit, socket_diagnosis};

use crate::context::{About, Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    let (resource, value) = NO_CORE;
    match set_rlimit(resource, value) {
        // From here on the filter answers for this one, and nothing changes it any more. One that was zero before us nobody can
        // raise: the survey has told the person.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if launch.filter.is_empty() {
        return Ok(());
    }
    if !launch.is_supervised {
        install_filter(launch.filter)?;
        return Ok(());
    }
    let diagnosis = socket_diagnosis().about(b"socket diagnosis")?;
    let listener = install_supervised_filter(launch.filter)?;
    context.offered = [Some(listener), Some(diagnosis), context.ruleset.take()];
    if launch.order.is_some() { context.offer_sockets() } else { Ok(()) }
}
