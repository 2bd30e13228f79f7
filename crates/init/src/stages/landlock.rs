//! Landlock over the new root. The executor knows the kernel's ABI and sends bits; we open and add.

use stockade_nolibc::{CWD, add_path_rule, create_ruleset, open_path, restrict_self};

use crate::context::{About, Context, Failure};

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    if launch.handled_fs == 0 {
        return Ok(());
    }
    let ruleset = create_ruleset(launch.handled_fs, launch.scoped)?;
    for (path, allowed) in launch.rules {
        let subject = path.to_bytes();
        let place = open_path(&CWD, path).about(subject)?;
        add_path_rule(&ruleset, &place, allowed).about(subject)?;
    }
    restrict_self(&ruleset)?;
    context.ruleset = launch.is_supervised.then_some(ruleset);
    Ok(())
}
