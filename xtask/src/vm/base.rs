//! The guest's base: one root file system image with the modules of every kernel, each kernel with
//! its initrd, and the emulator if this machine's own is old. Made once, cached outside the tree, keyed by
//! everything that goes into it, and never written again: guests run on a snapshot of it.

use super::archive::{self, Mirror, PrivateApt};
use super::emulator;
use super::kernel::{self, Kernel};
use crate::workspace::cache_home;
use crate::{process, setup};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Raise it when this file or `kernel.rs` makes something else of the same inputs.
const RECIPE: u32 = 2;
const CUSTOMIZE: &str = include_str!("guest/customize.sh");
/// Sparse; the content is about 0.7 GB, the rest is room for what tests write.
const IMAGE_SIZE: &str = "4G";
/// What the guest is made of, beside the essential packages.
const PACKAGES: &[&str] = &[
    // a real init, user managers, sessions, sudo
    "systemd",
    "systemd-sysv",
    "udev",
    "kmod",
    "dbus",
    "dbus-user-session",
    "libpam-systemd",
    "sudo",
    // what the tests and the guest's own scripts call
    "bash",
    "iproute2",
    "procps",
    "acl",
    // what end-to-end tests run in the sandbox
    "git",
    "gcc",
    "libc6-dev",
    "make",
    "python3",
    "python3-venv",
    "nodejs",
];
/// Nobody reads manuals in there, and they are a third of the files.
const LEFT_OUT: [&str; 4] =
    ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*"];

/// A finished base in the cache.
#[derive(Debug)]
pub(crate) struct Base {
    directory: PathBuf,
}

impl Base {
    pub(crate) fn image(&self) -> PathBuf {
        self.directory.join("root.img")
    }

    pub(crate) fn kernel(&self, kernel: Kernel) -> PathBuf {
        self.directory.join(format!("vmlinuz-{}", kernel.name()))
    }

    pub(crate) fn initrd(&self, kernel: Kernel) -> PathBuf {
        self.directory.join(format!("initrd-{}", kernel.name()))
    }

    /// A newer emulator than this machine's own, or nothing.
    pub(crate) fn emulator(&self) -> PathBuf {
        self.directory.join("emulator")
    }
}

/// The cached base, built first if its recipe has never been built here or `fresh` is asked for.
pub(crate) fn prepare(fresh: bool) -> Result<Base> {
    let cache = cache_home()?.join("stockade/vm");
    fs::create_dir_all(&cache).with_context(|| format!("can't make {}", cache.display()))?;
    let mirror = Mirror::of_this_machine()?;
    let recipe = recipe(&mirror.suite);
    let directory = cache.join(format!("base-{:016x}", fingerprint(recipe.as_bytes())));

    // Two checkouts may ask for the same base at once: the second waits and finds it made.
    let lock_path = cache.join("lock");
    let lock = File::options().write(true).create(true).truncate(false).open(&lock_path);
    // Where root has prepared the base for us, the lock is root's: reading is enough to take it.
    let lock = lock.or_else(|_| File::open(&lock_path));
    let lock = lock.with_context(|| format!("can't open {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("can't lock {}", lock_path.display()))?;
    if fresh {
        remove(&directory)?;
    }
    // The recipe is written into the base: a collision of fingerprints is told apart, not trusted.
    if fs::read_to_string(directory.join("recipe")).ok().as_deref() != Some(recipe.as_str()) {
        if !setup::is_root()? {
            let us = std::env::current_exe().context("can't name our own executable")?;
            bail!(
                "building the guest's root file system needs root; once:\n  sudo XDG_CACHE_HOME={} {} vm --prepare",
                cache_home()?.display(),
                us.display()
            );
        }
        remove(&directory)?;
        build(&mirror, &recipe, &directory)?;
    }
    let base = Base { directory };
    emulator::fetch(&mirror, &cache.join("unfinished"), &base.emulator())?;
    Ok(base)
}

fn build(mirror: &Mirror, recipe: &str, directory: &Path) -> Result<()> {
    let started = Instant::now();
    println!(
        "vm: building the guest ({}, kernels of {} suites) into {}",
        mirror.suite,
        Kernel::ALL.len(),
        directory.display()
    );
    // Renamed into place at the end: an interrupted build leaves no base that looks finished. One name for
    // all recipes, guarded by the lock, so that the next build clears what was left.
    let unfinished = directory.with_file_name("unfinished");
    remove(&unfinished)?;
    let scratch = unfinished.join("scratch");
    fs::create_dir_all(&scratch).with_context(|| format!("can't make {}", scratch.display()))?;

    let kernels: Vec<_> =
        Kernel::ALL.into_iter().map(|each| kernel::fetch(each, mirror, &scratch)).collect::<Result<_>>()?;
    let root = scratch.join("root");
    root_file_system(mirror, &root)?;
    let customize = scratch.join("customize");
    write(&customize, CUSTOMIZE)?;
    let modules = kernels.iter().map(|each| &each.modules);
    process::run(process::command("bash").arg(&customize).arg(&root).args(modules))?;

    let tools = PrivateApt::open(&scratch.join("apt-tools"), mirror, &mirror.suite)?;
    tools.unpack("busybox-static", &scratch.join("tools"))?;
    let busybox = ["bin/busybox", "usr/bin/busybox"].map(|path| scratch.join("tools").join(path));
    let busybox =
        busybox.into_iter().find(|path| path.exists()).context("busybox-static holds no busybox")?;
    let base = Base { directory: unfinished.clone() };
    for each in &kernels {
        write(&base.initrd(each.kernel), kernel::initrd(each, &root, &busybox)?)?;
        let image = base.kernel(each.kernel);
        fs::copy(&each.image, &image).with_context(|| format!("can't copy {}", each.image.display()))?;
    }
    image(&root, &base.image(), IMAGE_SIZE)?;
    remove(&scratch)?;
    write(&unfinished.join("recipe"), recipe)?;
    fs::rename(&unfinished, directory).with_context(|| format!("can't rename to {}", directory.display()))?;
    println!("vm: guest built in {} s", started.elapsed().as_secs());
    Ok(())
}

fn root_file_system(mirror: &Mirror, root: &Path) -> Result<()> {
    let mut command = process::command("unshare");
    // Whatever it mounts below the root goes with its mount namespace, before the root is removed.
    command.args(["--mount", "--", "mmdebstrap"]);
    command.args(["--quiet", "--mode=root", "--variant=minbase", "--format=directory"]);
    command.arg(format!("--include={}", PACKAGES.join(",")));
    command.arg("--aptopt=APT::Install-Recommends \"false\"");
    for proxy in archive::proxies()? {
        command.arg(format!("--aptopt={proxy}"));
    }
    for pattern in LEFT_OUT {
        command.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    process::run(command.arg(&mirror.suite).arg(root).arg(mirror.source(&mirror.suite)?))
}

/// Makes an ext4 image of a directory, without mounting anything.
pub(crate) fn image(directory: &Path, image: &Path, size: &str) -> Result<()> {
    let mut command = process::command("/sbin/mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-E", "root_owner=0:0", "-d"]);
    process::run(command.arg(directory).arg(image).arg(size))
}

fn recipe(suite: &str) -> String {
    let mut text =
        format!("recipe {RECIPE}\nsuite {suite}\nsize {IMAGE_SIZE}\npackages {}\n", PACKAGES.join(" "));
    for kernel in Kernel::ALL {
        text.push_str(&format!("kernel {} of {}\n", kernel.name(), kernel.suite()));
    }
    text + &emulator::recipe(suite) + kernel::INITRD_INIT + CUSTOMIZE
}

/// FNV-1a: a short name for a text. The standard library's hash promises no stability.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("can't remove {}", directory.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).with_context(|| format!("can't write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_the_recipe() {
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(recipe("bookworm"), recipe("trixie"));
        assert!(recipe("bookworm").contains("tester"), "the customization is part of the key");
    }
}
