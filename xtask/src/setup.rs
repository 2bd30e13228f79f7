//! `cargo xtask setup`: what the tests need from Debian and from cargo, one row each with its reason,
//! installed only where it is missing. It never removes, upgrades or configures anything. The commands
//! that need a part of the table call [`require`] themselves.

use crate::process;
use crate::workspace::cargo;
use anyhow::{Context, Result, bail};

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
}

const fn package(name: &'static str, need: Need, reason: &'static str) -> Package {
    Package { name, need, reason }
}

const PACKAGES: &[Package] = &[
    package("git", Need::Tests, "commits in a sandboxed workspace"),
    package("gcc", Need::Tests, "compiles and links in a sandboxed workspace"),
    package("libc6-dev", Need::Tests, "headers that gcc alone doesn't bring"),
    package("make", Need::Tests, "drives a build in a sandboxed workspace"),
    package("python3", Need::Tests, "an interpreter in a sandboxed workspace"),
    package("python3-venv", Need::Tests, "a virtual environment in a sandboxed workspace"),
    package("nodejs", Need::Tests, "a JIT in a sandboxed workspace"),
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
    nextest()
}

/// Makes sure that the packages for one need are there.
pub(crate) fn require(need: Need) -> Result<()> {
    install(PACKAGES.iter().filter(|package| package.need == need))
}

fn install(wanted: impl IntoIterator<Item = &'static Package>) -> Result<()> {
    let mut missing = Vec::new();
    for package in wanted {
        if !is_installed(package.name)? {
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
    process::run(apt_get().args(["install", "--no-install-recommends", "-y"]).args(&names))
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

pub(crate) fn is_root() -> Result<bool> {
    Ok(process::output(process::command("id").arg("-u"))?.trim() == "0")
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
    fn every_package_is_named_once_and_has_a_reason() {
        for (at, package) in PACKAGES.iter().enumerate() {
            assert!(!package.reason.is_empty(), "{}", package.name);
            assert!(PACKAGES[..at].iter().all(|other| other.name != package.name), "{}", package.name);
        }
    }
}
