//! What guests run on: this machine's own qemu, unless that is Debian 12's, which takes twice as long for the same guest as the
//! next one. That is in the same archive, among the backports; it is unpacked beside the base, installed nowhere, and uses
//! the libraries that the machine's own came with.

use super::archive::{Mirror, PrivateApt};
use crate::process;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "qemu-system-x86_64";
/// The suite whose qemu is an old one, and where the other is.
const OLD: &str = "bookworm";
const NEWER: &str = "bookworm-backports";
/// The program, and the images that it loads into guests.
const PACKAGES: [&str; 2] = ["qemu-system-x86", "qemu-system-data"];
const IMAGES: &str = "usr/share/qemu";

/// A line of the base's recipe: it is made again where this changes.
pub(crate) fn recipe(suite: &str) -> String {
    format!("emulator of {}\n", if suite == OLD { NEWER } else { suite })
}

/// Puts a newer emulator into `into`, if this machine's own is old and none is there. Where it can't be had, or does not run here,
/// that is said, the guests take longer, and the next time it is tried again.
pub(crate) fn fetch(mirror: &Mirror, scratch: &Path, into: &Path) -> Result<()> {
    if mirror.suite != OLD || into.exists() {
        return Ok(());
    }
    let fetched = PrivateApt::open(&scratch.join("apt-emulator"), mirror, NEWER).and_then(|apt| {
        PACKAGES.iter().try_for_each(|package| apt.unpack(package, into))?;
        process::run(process::command(program(into)).arg("--version"))
    });
    if let Err(error) = fetched {
        println!(
            "vm: guests take twice as long, on this machine's own qemu, because of the newer one: {error:#}"
        );
        remove(into)?;
    }
    remove(scratch)
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)
            .with_context(|| format!("can't remove {}", directory.display()))?;
    }
    Ok(())
}

fn program(unpacked: &Path) -> PathBuf {
    unpacked.join("usr/bin").join(PROGRAM)
}

/// The words that start it, to be followed by those that describe the guest.
pub(crate) fn words(unpacked: &Path) -> Vec<PathBuf> {
    let own = program(unpacked);
    if own.exists() { vec![own, "-L".into(), unpacked.join(IMAGES)] } else { vec![PROGRAM.into()] }
}

/// As it calls itself.
pub(crate) fn version(unpacked: &Path) -> Result<String> {
    let words = words(unpacked);
    let said = process::output(Command::new(&words[0]).arg("--version"))?;
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_newer_one_it_is_this_machines_own() {
        let place = std::env::temp_dir().join(format!("stockade-emulator-{}", std::process::id()));
        assert_eq!(words(&place), [PathBuf::from(PROGRAM)]);
        let own = program(&place);
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(&own, "").unwrap();
        assert_eq!(words(&place), [own, "-L".into(), place.join(IMAGES)]);
        std::fs::remove_dir_all(&place).unwrap();
        assert_ne!(recipe("bookworm"), recipe("trixie"));
    }
}
