//! `stockade doctor`: what this host enforces, found out by doing. It stages a few targets, lets a probe go
//! for them with and without the walls, through the very line that `stockade run` takes, and says per layer
//! what stood. It changes nothing on the host, and it is no wall itself.

mod attempts;
mod examine;
mod facts;
mod findings;
mod ground;
mod inside;
mod scope;
mod show;
mod trial;
mod variant;

use std::io::IsTerminal;

use clap::Args;
use stockade_executor::Abort;
use stockade_proto::exit;

use crate::run;
pub(crate) use inside::{ProbeArguments, probe};

use facts::Facts;
use findings::Report;
use ground::Ground;
use trial::{Stop, Trial};

/// The one exit code for "the default profile can't be enforced in full". Refusals and faults of doctor
/// itself have the codes that `stockade codes` prints.
const NOT_IN_FULL: u8 = 1;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if the profile `default` can be enforced in full here, 1 if it can't, 125 or 122 if doctor itself was refused or failed."
)]
pub(crate) struct DoctorArguments {
    /// Print the findings as one JSON object (the default where stdout is not a terminal)
    #[arg(long, conflicts_with = "text")]
    json: bool,
    /// Print text even where stdout is not a terminal
    #[arg(long)]
    text: bool,
    /// Show each attempt
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<u8, Abort> {
    let report = match diagnose() {
        Ok(report) => report,
        Err(Stop::Abort(abort)) => return Err(abort),
        Err(Stop::Cancelled(code)) => return Ok(code),
        Err(Stop::NeedsScope(refusal)) => return Err(run::enter_scope(refusal)),
    };
    if arguments.json || !(arguments.text || std::io::stdout().is_terminal()) {
        show::json(&report)?;
    } else {
        show::text(&report, arguments.verbose)?;
    }
    Ok(if report.ok { 0 } else { NOT_IN_FULL })
}

/// Nothing of the ground is left when this returns, or starts again in a scope.
fn diagnose() -> Result<Report, Stop> {
    let watch = trial::watch()?;
    let ground = Ground::make()?;
    let examined = scope::check(&ground)
        .and_then(|()| Trial::new(&ground, watch))
        .and_then(|trial| examine::examine(&trial, &Facts::read(&ground)));
    let left = ground.remove();
    let mut report = examined?;
    report.notes.extend(left);
    Ok(report)
}

/// Doctor's own exit code must not be taken for one of a command's.
const _: () = assert!(NOT_IN_FULL != exit::REFUSED && NOT_IN_FULL != exit::FAULT);
