//! The `stockade` command. Each subcommand is a file; this one only tells them apart, prints what
//! went wrong once, and turns it into an exit code.

#![cfg_attr(not(test), no_main)]

mod doctor;
mod identifier;
mod policy_command;
mod policy_test;
mod report;
mod run;
mod say;
mod secrets;

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

/// The words of `run` alone: clap builds everything that it knows before it looks at the first word, and this is
/// the verb that is waited for.
#[derive(Debug, Parser)]
#[command(name = "stockade run")]
struct RunAlone {
    #[command(flatten)]
    arguments: run::RunArguments,
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

/// What is wrong with the words of `run`, and their help, is said by the whole.
fn parse() -> Result<Verb, clap::Error> {
    let words = || std::env::args_os().skip(1);
    if words().next().is_some_and(|word| word == "run")
        && let Ok(RunAlone { arguments }) = RunAlone::try_parse_from(words())
    {
        return Ok(Verb::Run(Box::new(arguments)));
    }
    Arguments::try_parse().map(|arguments| arguments.command)
}

#[cfg(not(test))]
mod entry {
    stockade_sys::entry!(crate::stockade);
}

#[cfg(test)]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(stockade())
}

/// The whole program, to its exit code.
fn stockade() -> u8 {
    let verb = match parse() {
        Ok(verb) => verb,
        Err(error) => return usage(&error),
    };
    let ended = match verb {
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
        Ok(code) => code,
        Err(abort) => {
            say::abort(&abort);
            say::exit_code(&abort)
        }
    }
}

/// A usage error is a refusal: it must not look like a command's own exit code 2.
fn usage(error: &clap::Error) -> u8 {
    let printed = error.print();
    if error.use_stderr() || printed.is_err() { exit::REFUSED } else { 0 }
}
