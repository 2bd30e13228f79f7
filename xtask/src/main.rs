//! Chores of the repository that cargo has no verb for: `cargo xtask setup`, `cargo xtask vm`.
//! Nothing here ships, and no shipped crate depends on it. One file or folder per command.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool: its output is its product"
)]

mod bench;
mod crates;
mod process;
mod setup;
mod spec;
mod vm;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Chores of this repository", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what the tests need on this Debian machine, and nothing that is already there
    Setup,
    /// Run the tests inside real Debian guests: cgroup v2, systemd, older kernels, an ordinary user
    Vm(vm::Arguments),
    /// Time the sandbox against a bare spawn, a bare relay and the peers that are installed
    Bench(bench::Arguments),
    /// Check that every promise in docs/SPECIFICATION.md names a test that exists
    Spec,
    /// Check that the crates depend on each other as docs/ARCHITECTURE.md says
    Crates,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Setup => setup::setup(),
        Command::Vm(arguments) => vm::vm(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Spec => spec::spec(),
        Command::Crates => crates::crates(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
