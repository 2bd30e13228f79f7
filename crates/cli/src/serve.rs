//! `stockade serve`: becomes `stockaded`, in a cgroup where limits can be held.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use clap::Args;
use stockade_executor::Abort;
use stockade_executor::cgroup::{Host, TreeKill};
use stockade_proto::{Code, Fault, Limits, Refusal};

use crate::run::{enter_scope, in_scope};
use crate::{beside, say};

const NAME: &str = "stockaded";

/// One of each kind that takes a controller.
const LIMITS: Limits = Limits {
    memory_bytes: Some(1 << 30),
    cpu_millicores: Some(1000),
    cpu_seconds: None,
    processes: Some(64),
    open_files: None,
    file_size_bytes: None,
    wall_ms: None,
    output_bytes: None,
    scratch_bytes: 0,
    grace_ms: 0,
};

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
    if let Some(refusal) = needs_scope().filter(|_| !in_scope() && serves(&arguments.options)) {
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

/// Whether the limits of executions need a cgroup that systemd's user manager would give.
fn needs_scope() -> Option<Refusal> {
    let unavailable = Host::detect().ok()?.availability(&LIMITS, TreeKill::PidNamespace).err()?;
    let refusal = || Refusal::new(Code::LayerUnavailable, unavailable.to_string(), unavailable.remedy());
    unavailable.a_scope_helps().then(refusal)
}
