//! Installs the system call filter and, where it traps calls, offers its listener. Nothing that it traps is called
//! before the executor has taken that, which the next stage waits for.

use stockade_launch::Offer;
use stockade_nolibc::{install_filter, install_supervised_filter, socket_diagnosis};

use crate::context::{About, Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    if launch.filter.is_empty() {
        return Ok(());
    }
    if !launch.is_supervised {
        install_filter(launch.filter)?;
        return Ok(());
    }
    let diagnosis = socket_diagnosis().about(b"socket diagnosis")?;
    let listener = install_supervised_filter(launch.filter)?;
    let (first, second) = (listener.number(), diagnosis.number());
    match &context.ruleset {
        Some(ruleset) => context.offer(Offer::Sockets, &[first, second, ruleset.number()])?,
        None => context.offer(Offer::Sockets, &[first, second])?,
    }
    context.offered = [Some(listener), Some(diagnosis)];
    Ok(())
}
