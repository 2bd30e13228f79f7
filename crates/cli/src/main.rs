//! The `stockade` command. Each subcommand is a file; this one only tells them apart, prints what
//! went wrong once, and turns it into an exit code.

mod doctor;
mod identifier;
mod policy_command;
mod policy_test;
mod report;
mod run;
mod say;
mod secrets;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stockade_executor::Abort;
use stockade_proto::exit;

/// Runs the commands that agents ask for, inside walls that the kernel enforces.
#[derive(Debug, Parser)]
#[command(name = "stockade", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run one command in the sandbox and exit with its code
    Run(Box<run::RunArguments>),
    /// Make, check and explain profiles
    #[command(subcommand)]
    Policy(policy_command::PolicyCommand),
    /// Prove, layer by layer, what this host can enforce
    Doctor(doctor::DoctorArguments),
    /// What `doctor` runs inside the sandbox
    #[command(hide = true)]
    Probe(doctor::ProbeArguments),
    /// Print the table of stable codes and exit codes
    Codes,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let ended = match arguments.command {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Policy(command) => {
            policy_command::policy(command, &mut anstream::stdout()).map_err(|failure| match failure {
                policy_command::PolicyFailure::Refused(refusal) => Abort::from(refusal),
                policy_command::PolicyFailure::Fault(fault) => Abort::from(fault),
            })
        }
        Verb::Doctor(arguments) => doctor::doctor(&arguments),
        Verb::Probe(arguments) => doctor::probe(&arguments),
        Verb::Codes => say::codes(),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(abort) => {
            say::abort(&abort);
            ExitCode::from(say::exit_code(&abort))
        }
    }
}

/// A usage error is a refusal: it must not look like a command's own exit code 2.
fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() || printed.is_err() { ExitCode::from(exit::REFUSED) } else { ExitCode::SUCCESS }
}
