//! Installs the system call filter.

use stockade_nolibc::install_filter;

use crate::context::{Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    if !launch.filter.is_empty() {
        install_filter(launch.filter)?;
    }
    Ok(())
}
