//! `stockade serve`: becomes `stockaded`, in a cgroup where limits can be held.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use clap::Args;
use stockade_executor::{Abort, limits_want_a_scope};
use stockade_proto::{Code, Fault};

use crate::run::{enter_scope, in_scope};
use crate::{beside, say};

const NAME: &str = "stockaded";

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// What `stockaded` is started with: see `stockade serve --help`
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Only comes back where there is nothing to become.
pub(crate) fn serve(arguments: &ServeArguments) -> Result<u8, Abort> {
    stockade_executor::check_ground()?;
    let program = beside::find(NAME)?;
    if let Some(refusal) = limits_want_a_scope().filter(|_| !in_scope() && serves(&arguments.options)) {
        // It comes back where there is no user manager: what limits need is told to who asks for them, and others
        // are served.
        say::warning(&format!("limits can't be held here: {}", enter_scope(refusal)));
    }
    let error = std::process::Command::new(&program).args(&arguments.options).exec();
    Err(Fault::new(
        Code::SpawnFailed,
        format!("{} can't be run: {error}", program.display()),
        "Install stockade and stockaded from one build.",
    )
    .into())
}

/// Not for a word of help or a look at the configuration.
fn serves(options: &[OsString]) -> bool {
    const TOLD: [&str; 5] = ["--help", "-h", "--version", "-V", "--check"];
    !options.iter().any(|option| TOLD.iter().any(|told| option == told))
}
