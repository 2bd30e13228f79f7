//! Landlock over the new root. The executor knows the kernel's ABI and sends bits; we open and add.

use stockade_nolibc::{CWD, add_path_rule, create_ruleset, open_path, restrict_self, stat};

use crate::context::{About, Context, Failure};

/// Rights that a rule on something other than a directory may hold: execute, write, read, truncate,
/// device ioctl. The kernel answers EINVAL to more.
const FILE_RIGHTS: u64 = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15);

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    if launch.handled_fs == 0 {
        return Ok(());
    }
    let ruleset = create_ruleset(launch.handled_fs, launch.scoped)?;
    for (path, access) in launch.rules {
        let subject = path.to_bytes();
        let place = open_path(&CWD, path).about(subject)?;
        let allowed = if stat(&place).about(subject)?.is_dir { access } else { access & FILE_RIGHTS };
        add_path_rule(&ruleset, &place, allowed).about(subject)?;
    }
    restrict_self(&ruleset)?;
    context.ruleset = launch.is_supervised.then_some(ruleset);
    Ok(())
}
