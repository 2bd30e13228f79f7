//! `cargo xtask setup`: what the tests need from Debian, one row each with its reason, and a tool each from PyPI and
//! from cargo, installed only where it is missing. It never removes, upgrades or configures anything. The commands
//! that need a part of the table call [`require`] themselves.

use crate::process;
use crate::workspace::{self, cache_home, cargo};
use anyhow::{Context, Result, bail};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What a package is for, so that a command can ask for its own part only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The end-to-end tests run these programs in the sandbox.
    Tests,
    /// `cargo xtask vm` builds and starts its guests with these.
    Guests,
}

#[derive(Debug)]
struct Package {
    name: &'static str,
    need: Need,
    /// For the reader of this table; `setup` prints it with the name.
    reason: &'static str,
    /// A program that makes the package needless, wherever it comes from.
    unless: Option<&'static str>,
}

const fn package(name: &'static str, need: Need, reason: &'static str) -> Package {
    Package { name, need, reason, unless: None }
}

impl Package {
    const fn unless(self, program: &'static str) -> Self {
        Self { unless: Some(program), ..self }
    }
}

const PACKAGES: &[Package] = &[
    package("git", Need::Tests, "commits in a sandboxed workspace"),
    package("gcc", Need::Tests, "compiles and links in a sandboxed workspace"),
    package("libc6-dev", Need::Tests, "headers that gcc alone doesn't bring"),
    package("make", Need::Tests, "drives a build in a sandboxed workspace"),
    package("python3", Need::Tests, "an interpreter in a sandboxed workspace"),
    package("python3-venv", Need::Tests, "a virtual environment in a sandboxed workspace"),
    package("nodejs", Need::Tests, "a JIT in a sandboxed workspace"),
    package("curl", Need::Tests, "a client of the network allowlist"),
    package("python3-pip", Need::Tests, "a client of the network allowlist"),
    // A vendor's nodejs brings its own npm, and does not go together with Debian's.
    package("npm", Need::Tests, "a client of the network allowlist").unless("npm"),
    package("openssl", Need::Tests, "certificates for the servers of the network tests"),
    package("openssh-client", Need::Tests, "an agent whose socket stays shut"),
    package("postgresql", Need::Tests, "a server and a client for the socket rules"),
    package("redis-server", Need::Tests, "another server for the socket rules"),
    package("redis-tools", Need::Tests, "its client"),
    package("wrk", Need::Tests, "many connections at once on the HTTP door").unless("wrk"),
    package("bubblewrap", Need::Tests, "the peer that the benchmarks compare with"),
    package("qemu-system-x86", Need::Guests, "emulates the guest"),
    package("mmdebstrap", Need::Guests, "makes the guest's root file system"),
    package("e2fsprogs", Need::Guests, "turns directories into disk images"),
    package("xz-utils", Need::Guests, "unpacks the newer kernel's modules"),
    package(
        "debian-archive-keyring",
        Need::Guests,
        "checks the signatures of the suites that guests come from",
    ),
];

/// How long to wait for another apt on the machine (unattended upgrades take minutes).
const LOCK_SECONDS: u32 = 300;

pub(crate) fn setup() -> Result<()> {
    install(PACKAGES)?;
    schemathesis()?;
    nextest()
}

/// Makes sure that the packages for one need are there.
pub(crate) fn require(need: Need) -> Result<()> {
    install(PACKAGES.iter().filter(|package| package.need == need))
}

fn install(wanted: impl IntoIterator<Item = &'static Package>) -> Result<()> {
    let mut missing = Vec::new();
    for package in wanted {
        if !package.unless.is_some_and(is_on_path) && !is_installed(package.name)? {
            missing.push(package);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|package| package.name).collect();
    if !is_root()? {
        for package in &missing {
            eprintln!("missing: {} ({})", package.name, package.reason);
        }
        bail!(
            "Debian packages are missing and installing them needs root; install them with:\n  \
             sudo apt-get update && sudo apt-get install --no-install-recommends -y {}",
            names.join(" ")
        );
    }
    println!("setup: installing Debian packages: {}", names.join(" "));
    process::run(apt_get().arg("update"))?;
    let _no_services = NoServices::at(Path::new(POLICY))?;
    process::run(apt_get().args(["install", "--no-install-recommends", "-y"]).args(&names))
}

/// Where Debian's packages ask whether they may start the service that they bring.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// While it lives no package starts a service: the tests start their own servers, on sockets of their own, and
/// nobody wants a database on this machine's ports. Whoever has said something about it already is obeyed.
#[derive(Debug)]
struct NoServices<'p> {
    ours: Option<&'p Path>,
}

/// 101 is "not allowed". The words are for whoever finds it after we were killed.
const NO: &[u8] = b"#!/bin/sh\n# Of `cargo xtask setup`, for as long as it installs packages.\nexit 101\n";

impl<'p> NoServices<'p> {
    fn at(path: &'p Path) -> Result<Self> {
        match OpenOptions::new().write(true).create_new(true).mode(0o755).open(path) {
            Ok(mut file) => {
                let here = Self { ours: Some(path) };
                file.write_all(NO).with_context(|| format!("can't write {}", path.display()))?;
                Ok(here)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { ours: None }),
            Err(error) => Err(error).with_context(|| format!("can't make {}", path.display())),
        }
    }
}

impl Drop for NoServices<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.ours
            && let Err(error) = std::fs::remove_file(path)
        {
            eprintln!("setup: {} keeps services from starting and can't be removed: {error}", path.display());
        }
    }
}

fn apt_get() -> std::process::Command {
    let mut command = process::command("apt-get");
    command.args(["-qq", "-o", &format!("DPkg::Lock::Timeout={LOCK_SECONDS}"), "-o", "Acquire::Retries=3"]);
    command
}

fn is_installed(name: &str) -> Result<bool> {
    let answer = process::command("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status}\n", name])
        .output()
        .context("can't ask dpkg-query: setup knows Debian 12 and 13 only")?;
    // A package for several architectures answers one line each.
    Ok(String::from_utf8_lossy(&answer.stdout).lines().any(|status| status == "installed"))
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

pub(crate) fn is_root() -> Result<bool> {
    Ok(process::output(process::command("id").arg("-u"))?.trim() == "0")
}

/// With everything that it needs, by version; the test that runs it reads the same file.
const SCHEMATHESIS: &str = "tests/contract/schemathesis.txt";
/// Debian's own, which python3-venv belongs to; another one on the PATH may have no venv, or be gone tomorrow.
const PYTHON: &str = "/usr/bin/python3";

/// Debian has no package of it: it comes from PyPI, into a directory of its own that nothing else looks into.
fn schemathesis() -> Result<()> {
    let list = workspace::locate()?.root.join(SCHEMATHESIS);
    let text = fs::read_to_string(&list).with_context(|| format!("can't read {}", list.display()))?;
    let pinned = first_pin(&text).with_context(|| format!("{} pins nothing", list.display()))?;
    let directory = cache_home()?.join("stockade").join(pinned.replace("==", "-"));
    if process::succeeds(process::command(directory.join("bin/schemathesis")).arg("--version")) {
        return Ok(());
    }
    println!("setup: installing {pinned} from PyPI into {}", directory.display());
    // What an earlier one left unfinished goes first.
    process::run(process::command(PYTHON).args(["-m", "venv", "--clear"]).arg(&directory))?;
    let mut pip = process::command(directory.join("bin/pip"));
    pip.args([
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--no-deps",
        "--requirement",
    ]);
    process::run(pip.arg(&list))
}

/// As pip reads it: comments and empty lines are none.
fn first_pin(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| line.contains("==") && !line.starts_with('#'))
}

fn nextest() -> Result<()> {
    if process::succeeds(cargo().args(["nextest", "--version"])) {
        return Ok(());
    }
    println!("setup: installing cargo-nextest, which takes a few minutes");
    process::run(cargo().args(["install", "cargo-nextest", "--locked", "--quiet"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_services_from_starting_goes_again_unless_it_was_there() {
        let path = std::env::temp_dir().join(format!("stockade-policy-rc.d-{}", std::process::id()));
        let first = NoServices::at(&path).unwrap();
        let said = crate::process::command("sh").arg(&path).status().unwrap();
        assert_eq!(said.code(), Some(101));
        drop(NoServices::at(&path).unwrap());
        assert!(path.exists(), "the second found it and left it");
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn every_tool_from_pypi_is_pinned() {
        let text = include_str!("../../tests/contract/schemathesis.txt");
        assert!(first_pin(text).is_some_and(|pin| pin.starts_with("schemathesis==")));
        let wanted = text.lines().filter(|line| !line.starts_with('#'));
        assert!(wanted.clone().count() > 1, "with what it needs");
        for line in wanted {
            assert!(line.split_once("==").is_some_and(|(_, version)| !version.is_empty()), "{line}");
        }
    }

    #[test]
    fn every_package_is_named_once_and_has_a_reason() {
        for (at, package) in PACKAGES.iter().enumerate() {
            assert!(!package.reason.is_empty(), "{}", package.name);
            assert!(PACKAGES[..at].iter().all(|other| other.name != package.name), "{}", package.name);
        }
    }
}
