//! `cargo xtask bench`: what a wall costs, as ratios against the bare thing measured in the same run.
//! It first proves that what it is about to time is switched on, and never decides a test: a missed bar is
//! printed, and fails the command only under `--strict`. Build → prove → spawn → output → live walls → service →
//! sizes → table.

mod arm;
mod bare;
mod elf;
mod live;
mod output;
mod peers;
mod proof;
mod service;
mod spawn;
mod table;

use crate::workspace::{self, Workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use table::{Bar, Report, Row, Unit};

/// A binary that is copied into memory for each execution, and read by a person who audits it.
const INIT_BYTES: f64 = 1.5e6;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Few rounds and little output: shows that the benchmark works, too little to conclude from
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON to this file; they always go to target/bench/latest.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail if a bar is missed
    #[arg(long)]
    strict: bool,
    /// Only the rows of the service
    #[arg(long)]
    service: bool,
    /// Be the relay of the limit that output is compared with: stdin to stdout, nothing else
    #[arg(long, hide = true)]
    relay: bool,
    /// Be the server that the service is compared with: no sandbox, no record
    #[arg(long, hide = true)]
    bare: bool,
    /// Be the client of the egress rows: reads all that this address sends and prints how long it took
    #[arg(long, hide = true, value_name = "ADDRESS")]
    pull: Option<SocketAddr>,
}

/// What was built, and the empty directory that every timed sandbox has as its workspace.
#[derive(Debug)]
struct Subject {
    stockade: PathBuf,
    init: PathBuf,
    service: PathBuf,
    /// The barest sandbox.
    floor: PathBuf,
    place: tempfile::TempDir,
}

impl Subject {
    fn workspace(&self) -> PathBuf {
        self.place.path().join("workspace")
    }

    /// Where the barest sandbox is built.
    fn ground(&self) -> PathBuf {
        self.place.path().join("ground")
    }
}

pub(crate) fn bench(arguments: &Arguments) -> Result<()> {
    if arguments.relay {
        return output::relay();
    }
    if arguments.bare {
        return bare::serve();
    }
    if let Some(address) = arguments.pull {
        return live::pull(address);
    }
    let root = workspace::locate()?;
    let subject = build(&root)?;
    for profile in [arm::DEFAULT, arm::UNCAPPED] {
        proof::walls(&subject, profile)?;
    }
    proof::redaction(&subject)?;

    let mut report = Report::new(arguments.quick);
    let peers = peers::find(subject.place.path())?;
    // First: ext4 without a journal is slow to make files where many were just removed, as the runs below do.
    let service = service::measure(&subject, arguments.quick)?;
    if !arguments.service {
        report.absent = peers.absent;
        report.rows.extend(spawn::measure(&subject, &peers.arms, arguments.quick)?);
        report.rows.extend(output::measure(&subject, arguments.quick)?);
        report.rows.extend(live::sockets(&root)?);
        report.rows.extend(live::egress(&subject, arguments.quick)?);
    }
    report.rows.extend(service);
    report.rows.extend(sizes(&subject)?);
    report.end();

    print!("{}", report.markdown());
    keep(&report, &root.target.join("bench/latest.json"))?;
    if let Some(file) = &arguments.json {
        keep(&report, file)?;
    }
    let missed = report.missed();
    if arguments.strict && !missed.is_empty() {
        bail!("bars missed: {}", missed.join(", "));
    }
    Ok(())
}

fn build(root: &Workspace) -> Result<Subject> {
    let packages =
        ["stockade-cli", "stockade-daemon", "stockade-executor", "stockade-init", "stockade-floor"];
    let packages = packages.map(str::to_owned);
    let built = root.build(&["build", "--release"], &packages)?;
    let find = |name: &str| {
        let found = built.iter().find(|one| one.target == name).map(|one| one.path.clone());
        found.with_context(|| format!("cargo built no {name}"))
    };
    let place = tempfile::Builder::new().prefix("stockade-bench-").tempdir();
    let place = place.context("can't make a directory for the workspaces of the benchmark")?;
    let (stockade, init, service) = (find("stockade")?, find("stockade-init")?, find("stockaded")?);
    let subject = Subject { stockade, init, service, floor: find("stockade-floor")?, place };
    for directory in [subject.workspace(), subject.ground()] {
        std::fs::create_dir(directory).context("can't make an empty workspace")?;
    }
    Ok(subject)
}

fn sizes(subject: &Subject) -> Result<Vec<Row>> {
    let init = std::fs::read(&subject.init).with_context(|| format!("can't read {:?}", subject.init))?;
    let size = std::fs::metadata(&subject.stockade)
        .with_context(|| format!("can't read {:?}", subject.stockade))?
        .len();
    let interpreters = elf::interpreters(&init).with_context(|| format!("{:?}", subject.init))?;
    Ok(vec![
        Row::plain("`stockade-init`, size", init.len() as f64, Unit::Bytes)
            .held_to(Bar::most("size", INIT_BYTES)),
        Row::plain("`stockade-init`, program interpreters (0: static)", interpreters as f64, Unit::Count)
            .held_to(Bar::most("size", 0.0)),
        Row::plain("`stockade`, size", size as f64, Unit::Bytes),
    ])
}

fn keep(report: &Report, file: &Path) -> Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("can't make {}", directory.display()))?;
    }
    let text = serde_json::to_string_pretty(report).context("the figures are no JSON")?;
    std::fs::write(file, text + "\n").with_context(|| format!("can't write {}", file.display()))
}
