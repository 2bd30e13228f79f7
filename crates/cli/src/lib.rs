//! The `stockade` command. Each subcommand is a file; this one only tells them apart, prints what
//! went wrong once, and turns it into an exit code.
//!
//! It is two programs. `stockade` runs commands itself and starts often; the verbs that talk to the service, or open
//! its records, are in `client`, and `stockade` becomes `stockade-client` for them (docs/design/0007).

mod beside;
mod client;
mod doctor;
mod identifier;
mod policy_command;
mod policy_test;
mod report;
mod run;
mod say;
mod secrets;
mod serve;

use clap::{Parser, Subcommand};
use stockade_executor::Abort;
use stockade_proto::exit;

/// `stockade run` begins with one, unless it runs nothing itself. The places are those of [`stockade_proto::install::places`].
pub const SEED: &[u8; 82] =
    b"run\0--explain\0--via\0stockade-init\0../libexec/stockade/stockade-init\0stockade-init\0";

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
    /// Serve HTTP and JSON-RPC in the foreground until Ctrl-C
    #[command(disable_help_flag = true)]
    Serve(serve::ServeArguments),
    /// Make, check and explain profiles
    #[command(subcommand)]
    Policy(policy_command::PolicyCommand),
    /// Prove, layer by layer, what this host can enforce
    Doctor(doctor::DoctorArguments),
    /// List the service's executions
    Ps,
    /// Show what an execution wrote, also while it runs
    Logs,
    /// Show the record of an execution: its outcome, usage and walls
    Show,
    /// Ask executions to end, and end them
    Stop,
    /// Wait for an execution and exit with its code
    Wait,
    /// Make, list and revoke tokens for the HTTP door
    Token,
    /// Keep secrets for executions
    Secret,
    /// Check and read the audit log
    Audit,
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

/// The whole program `stockade`, to its exit code.
pub fn stockade() -> u8 {
    // The words of those verbs are the other program's to read.
    if std::env::args_os().nth(1).is_some_and(|word| client::VERBS.iter().any(|verb| word == *verb)) {
        return told(Err(beside::become_program(client::PROGRAM)));
    }
    match parse() {
        Ok(verb) => told(carry_out(verb)),
        Err(error) => usage(&error),
    }
}

fn carry_out(verb: Verb) -> Result<u8, Abort> {
    match verb {
        Verb::Run(arguments) if arguments.via.is_some() => Err(beside::become_program(client::PROGRAM)),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Serve(arguments) => serve::serve(&arguments),
        Verb::Policy(command) => {
            policy_command::policy(command, &mut anstream::stdout()).map_err(|failure| match failure {
                policy_command::PolicyFailure::Refused(refusal) => Abort::from(refusal),
                policy_command::PolicyFailure::Fault(fault) => Abort::from(fault),
            })
        }
        Verb::Doctor(arguments) => doctor::doctor(&arguments),
        Verb::Probe(arguments) => doctor::probe(&arguments),
        Verb::Codes => say::codes(),
        Verb::Ps
        | Verb::Logs
        | Verb::Show
        | Verb::Stop
        | Verb::Wait
        | Verb::Token
        | Verb::Secret
        | Verb::Audit => Err(beside::become_program(client::PROGRAM)),
    }
}

/// The whole program `stockade-client`, to its exit code.
pub fn client() -> u8 {
    match client::parse() {
        Ok(verb) => told(client::carry_out(verb)),
        Err(error) => usage(&error),
    }
}

fn told(ended: Result<u8, Abort>) -> u8 {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn both_programs_list_the_same_verbs_in_the_same_words() {
        let (whole, client) = (Arguments::command(), client::ClientArguments::command());
        for verb in client::VERBS {
            let about = |command: &clap::Command| {
                let found = command.find_subcommand(verb).unwrap_or_else(|| panic!("{verb}"));
                found.get_about().map(ToString::to_string)
            };
            assert_eq!(about(&whole), about(&client), "{verb}");
        }
        let theirs = client.get_subcommands().map(|verb| verb.get_name()).filter(|name| *name != "run");
        assert_eq!(theirs.collect::<Vec<_>>(), client::VERBS);
    }

    #[test]
    fn a_seed_is_looked_for_where_init_is() {
        let words: Vec<_> = SEED.split(|byte| *byte == 0).map(|word| str::from_utf8(word).unwrap()).collect();
        let own = std::path::Path::new("/install/bin/stockade");
        let [beside, in_libexec] = stockade_proto::install::places(own, words[5]);
        assert_eq!(own.with_file_name(words[3]), beside);
        assert_eq!(words[4].strip_prefix("..").map(|place| format!("/install{place}")).unwrap(), *in_libexec);
    }

    #[test]
    fn the_words_of_both_programs_hold_together() {
        Arguments::command().debug_assert();
        RunAlone::command().debug_assert();
        client::ClientArguments::command().debug_assert();
    }
}
