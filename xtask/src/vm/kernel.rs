//! The kernels that guests boot: which, from which suite, what they must offer, and the small initrd that
//! gets each of them to the guest's disk. `base.rs` puts their modules into the root file system.

use super::archive::{Mirror, PrivateApt};
use super::cpio::Archive;
use crate::process;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};

/// A small kernel for virtual machines, which boots quicker under emulation than the general one.
const METAPACKAGE: &str = "linux-image-cloud-amd64";
const IMAGE_PREFIX: &str = "linux-image-";
/// What the initrd must load to see its disk; ext4 itself is built in. Those built in are skipped.
const DISK_MODULES: [&str; 2] = ["virtio_pci", "virtio_blk"];
pub(crate) const INITRD_INIT: &str = include_str!("guest/initrd-init.sh");

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernel {
    /// Debian 12's: the oldest that is promised
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13's
    #[value(name = "6.12")]
    V6_12,
}

impl Kernel {
    pub(crate) const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
        }
    }

    /// A guest with another ABI would prove something else than the table of tests says.
    pub(crate) fn landlock_abi(self) -> &'static str {
        match self {
            Self::V6_1 => "2",
            Self::V6_12 => "6",
        }
    }
}

/// A kernel unpacked, before its modules are in the root file system.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) kernel: Kernel,
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    pub(crate) modules: PathBuf,
}

pub(crate) fn fetch(kernel: Kernel, mirror: &Mirror, scratch: &Path) -> Result<Unpacked> {
    let apt = PrivateApt::open(&scratch.join(format!("apt-{}", kernel.suite())), mirror, kernel.suite())?;
    let package = apt.dependency(METAPACKAGE, IMAGE_PREFIX)?;
    let tree = scratch.join(format!("kernel-{}", kernel.name()));
    apt.unpack(&package, &tree)?;
    let release = package.trim_start_matches(IMAGE_PREFIX).to_owned();
    let image = tree.join("boot").join(format!("vmlinuz-{release}"));
    // The older suite's packages still ship /lib, the newer one's /usr/lib.
    let modules = ["usr/lib/modules", "lib/modules"].iter().map(|place| tree.join(place).join(&release));
    let modules = modules.into_iter().find(|path| path.is_dir());
    let modules = modules.with_context(|| format!("{package} holds no modules for {release}"))?;
    Ok(Unpacked { kernel, release, image, modules })
}

/// Builds the initrd from modules that are already in `root` with their dependency table.
pub(crate) fn initrd(unpacked: &Unpacked, root: &Path, busybox: &Path) -> Result<Vec<u8>> {
    let shown = process::output(
        process::command("chroot")
            .arg(root)
            .args(["modprobe", "--set-version", &unpacked.release, "--show-depends", "--all"])
            .args(DISK_MODULES),
    )?;
    let mut archive = Archive::default();
    for directory in ["bin", "modules"] {
        archive.directory(directory)?;
    }
    archive.executable("bin/busybox", &read(busybox)?)?;
    archive.executable("init", INITRD_INIT.as_bytes())?;
    let mut order = String::new();
    for path in module_paths(&shown) {
        let (name, content) = module(&root.join(path.trim_start_matches('/')))?;
        archive.executable(&format!("modules/{name}"), &content)?;
        order.push_str(&name);
        order.push('\n');
    }
    archive.executable("modules/order", order.as_bytes())?;
    archive.finish()
}

/// `modprobe --show-depends` prints `insmod PATH` in loading order, and `builtin NAME`; a module that two
/// others need comes twice.
fn module_paths(shown: &str) -> Vec<&str> {
    let mut paths = Vec::new();
    for path in shown.lines().filter_map(|line| line.strip_prefix("insmod ")).map(str::trim) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// A module's plain name and bytes: busybox's insmod can't be trusted with compressed ones.
fn module(path: &Path) -> Result<(String, Vec<u8>)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.strip_suffix(".xz") {
        Some(plain) => Ok((plain.to_owned(), process::bytes(process::command("xz").arg("-dc").arg(path))?)),
        None => Ok((name, read(path)?)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("can't read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_keep_their_order_and_come_once() {
        let shown =
            "builtin ext4\ninsmod /lib/a.ko \ninsmod /lib/b.ko.xz\ninsmod /lib/a.ko \ninsmod /lib/c.ko\n";
        assert_eq!(module_paths(shown), ["/lib/a.ko", "/lib/b.ko.xz", "/lib/c.ko"]);
    }
}
