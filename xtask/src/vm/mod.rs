//! `cargo xtask vm`: the tests on kernels, cgroups and users that this machine doesn't have. The line is
//! in [`vm`]: prepare the base (cached), make the payload, then per kernel boot, listen, judge.

mod archive;
mod base;
mod boot;
mod cpio;
mod emulator;
mod kernel;
mod payload;
mod report;
mod verdict;

use crate::{process, setup, workspace};
use anyhow::{Context, Result, bail};
use boot::Logs;
use clap::{Args, ValueEnum};
use kernel::Kernel;
use payload::{Order, Payload};
use report::Report;
use std::fs;
use std::path::Path;
use std::time::Instant;
use verdict::Asked;

/// The packages whose tests need what only a guest has.
const PACKAGES: [&str; 4] =
    ["stockade-units-tests", "stockade-line-tests", "stockade-escape-tests", "stockade-executor"];
/// How much of a failed executable's output is repeated on the terminal; the log has it all.
const SHOWN_BYTES: usize = 8 << 10;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which kernel to boot; all: one after the other
    #[arg(long, value_enum, default_value_t = KernelChoice::All)]
    kernel: KernelChoice,
    /// As whom to run the tests in the guest
    #[arg(long, value_enum, default_value_t = UserChoice::All)]
    user: UserChoice,
    /// Only tests whose name contains this; may be given again
    #[arg(long)]
    filter: Vec<String>,
    /// Tests of this package instead of the usual ones; may be given again
    #[arg(long)]
    package: Vec<String>,
    /// Keep the payload and print how to boot it by hand
    #[arg(long)]
    keep: bool,
    /// Build the cached guest anew, with today's packages
    #[arg(long)]
    fresh: bool,
    /// Only see that the cached guest is there; this part needs root
    #[arg(long)]
    prepare: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KernelChoice {
    #[value(name = "6.1")]
    V6_1,
    #[value(name = "6.12")]
    V6_12,
    All,
}

impl KernelChoice {
    fn kernels(self) -> &'static [Kernel] {
        match self {
            Self::V6_1 => &[Kernel::V6_1],
            Self::V6_12 => &[Kernel::V6_12],
            Self::All => &Kernel::ALL,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UserChoice {
    /// Root in a login session
    Root,
    /// An ordinary user below its own service manager, in a cgroup delegated to it
    Ordinary,
    /// An ordinary user in a login session as ssh gives it: its cgroup belongs to root
    Session,
    All,
}

impl UserChoice {
    fn users(self) -> &'static [User] {
        match self {
            Self::Root => &[User::Root],
            Self::Ordinary => &[User::Ordinary],
            Self::Session => &[User::Session],
            Self::All => &[User::Root, User::Ordinary, User::Session],
        }
    }
}

/// As whom, and where in the guest's cgroup tree; `guest-run.sh` knows how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Ordinary,
    Session,
}

impl User {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Ordinary => "ordinary",
            Self::Session => "session",
        }
    }
}

pub(crate) fn vm(arguments: &Arguments) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("guests are x86_64, and this machine builds for {}", std::env::consts::ARCH);
    }
    setup::require(setup::Need::Guests)?;
    let base = base::prepare(arguments.fresh)?;
    if arguments.prepare {
        return Ok(());
    }
    let workspace = workspace::locate()?;
    let directory = workspace.target.join("vm");
    fs::create_dir_all(&directory).with_context(|| format!("can't make {}", directory.display()))?;
    let packages = match arguments.package.as_slice() {
        [] => PACKAGES.map(str::to_owned).to_vec(),
        chosen => chosen.to_vec(),
    };
    let users = arguments.user.users();
    let order =
        Order { packages: &packages, users, filter: &arguments.filter, suite_deadline: boot::SUITE_DEADLINE };
    let payload = payload::make(&workspace, &order, &directory)?;
    println!("VM: {}", emulator::version(&base.emulator())?);

    let mut wrong = Vec::new();
    for &kernel in arguments.kernel.kernels() {
        let asked = Asked { kernel, users, suites: &payload.suites, filtered: !arguments.filter.is_empty() };
        let logs = fresh_logs(&directory, asked)?;
        if arguments.keep {
            let by_hand = boot::emulator(&base, &payload.image, asked, &logs.console());
            println!("VM {}: to boot it by hand: {}", kernel.name(), process::shown(&by_hand));
        }
        let sentences = one_guest(&base, &payload, asked, &logs);
        wrong.extend(sentences.into_iter().map(|sentence| format!("VM {} {sentence}", kernel.name())));
    }
    if !arguments.keep {
        wrong.extend(payload.discard().err().map(|error| format!("{error:#}")));
    }
    if !wrong.is_empty() {
        bail!("not as it should be (logs are in {}):\n  {}", directory.display(), wrong.join("\n  "));
    }
    Ok(())
}

fn one_guest(base: &base::Base, payload: &Payload, asked: Asked<'_>, logs: &Logs) -> Vec<String> {
    let started = Instant::now();
    let wrong = match boot::boot(base, payload, asked, logs) {
        Ok(report) => {
            show_failures(&report);
            verdict::judge(&report, asked)
        }
        Err(error) => vec![format!("{error:#}")],
    };
    println!("VM {}: {} s from power-on to power-off", asked.kernel.name(), started.elapsed().as_secs());
    wrong
}

fn show_failures(report: &Report) {
    for frame in report.frames.iter().filter(|frame| frame.code != Some(0)) {
        eprintln!(
            "--- {} as {} ---\n{}",
            frame.executable,
            frame.user,
            process::tail(&frame.text, SHOWN_BYTES)
        );
    }
}

/// Logs are appended to per executable: those of an earlier guest must be gone first.
fn fresh_logs(directory: &Path, asked: Asked<'_>) -> Result<Logs> {
    let logs = Logs::new(directory, asked.kernel.name());
    for user in asked.users {
        for suite in asked.suites {
            let path = logs.suite(user.name(), &suite.name);
            if path.exists() {
                fs::remove_file(&path).with_context(|| format!("can't remove {}", path.display()))?;
            }
        }
    }
    Ok(logs)
}
