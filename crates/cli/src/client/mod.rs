//! The verbs of the service's callers and keepers. Those in the first half talk to the service over its Unix socket;
//! those in the second open its state directory themselves, beside a running service or without one.

mod audit;
mod door;
mod list;
mod logs;
mod output;
mod secret;
mod show;
mod socket;
mod state;
mod stop;
mod text;
mod token;
mod via;
mod wait;

use std::future::Future;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use stockade_executor::Abort;
use stockade_proto::{Code, Fault, Refusal};

use crate::run::RunArguments;
use door::Door;

pub(crate) const PROGRAM: &str = "stockade-client";
/// Everything below but `run`.
pub(crate) const VERBS: [&str; 8] = ["ps", "logs", "show", "stop", "wait", "token", "secret", "audit"];

/// Runs the commands that agents ask for, inside walls that the kernel enforces.
#[derive(Debug, Parser)]
#[command(name = "stockade", version, disable_help_subcommand = true)]
pub(crate) struct ClientArguments {
    #[command(subcommand)]
    command: ClientVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientVerb {
    /// Run one command in the sandbox and exit with its code
    Run(Box<RunArguments>),
    /// List the service's executions
    Ps(list::PsArguments),
    /// Show what an execution wrote, also while it runs
    Logs(logs::LogsArguments),
    /// Show the record of an execution: its outcome, usage and walls
    Show(show::ShowArguments),
    /// Ask executions to end, and end them
    Stop(stop::StopArguments),
    /// Wait for an execution and exit with its code
    Wait(wait::WaitArguments),
    /// Make, list and revoke tokens for the HTTP door
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Keep secrets for executions
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Check and read the audit log
    #[command(subcommand)]
    Audit(audit::AuditCommand),
}

/// Where the service listens.
#[derive(Debug, Args)]
pub(crate) struct SocketOption {
    /// The service's socket [default: $STOCKADE_SOCKET, or yours, or the system's]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// One execution.
#[derive(Debug, Args)]
pub(crate) struct OneExecution {
    /// Its id, as `stockade ps --all` shows it
    #[arg(required_unless_present = "last")]
    id: Option<String>,
    /// The one that was started last
    #[arg(long, conflicts_with = "id")]
    last: bool,
    #[command(flatten)]
    at: SocketOption,
}

impl OneExecution {
    /// The way to it, and its id.
    async fn reach(&self) -> Result<(Door, String), Abort> {
        let door = Door::open(self.at.socket.as_deref()).await?;
        let id = match &self.id {
            Some(id) => id.clone(),
            None => list::last(&door).await?,
        };
        Ok((door, id))
    }
}

pub(crate) fn parse() -> Result<ClientVerb, clap::Error> {
    ClientArguments::try_parse().map(|arguments| arguments.command)
}

pub(crate) fn carry_out(verb: ClientVerb) -> Result<u8, Abort> {
    match verb {
        ClientVerb::Run(arguments) => via::run(&arguments),
        ClientVerb::Ps(arguments) => finish(list::ps(&arguments)),
        ClientVerb::Logs(arguments) => finish(logs::logs(&arguments)),
        ClientVerb::Show(arguments) => finish(show::show(&arguments)),
        ClientVerb::Stop(arguments) => finish(stop::stop(&arguments)),
        ClientVerb::Wait(arguments) => finish(wait::wait(&arguments)),
        ClientVerb::Token(command) => token::token(&command),
        ClientVerb::Secret(command) => secret::secret(&command),
        ClientVerb::Audit(command) => audit::audit(&command),
    }
}

/// On this thread: a caller waits for one thing at a time, mostly.
fn finish<T>(work: impl Future<Output = Result<T, Abort>>) -> Result<T, Abort> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Fault::new(
            Code::SuperviseFailed,
            format!("this program can't wait for anything: {error}"),
            "Raise the number of open files (`ulimit -n`) and try again.",
        )
    })?;
    runtime.block_on(work)
}

fn bad_option(message: String, remedy: &str) -> Refusal {
    Refusal::new(Code::OptionInvalid, message, remedy)
}
