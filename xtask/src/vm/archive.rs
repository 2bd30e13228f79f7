//! The Debian archive as this machine reaches it: the mirror is the one that its own apt is configured
//! with, and packages are fetched through a private apt state, so that the machine's apt is neither
//! changed nor blocked. Signatures are checked against Debian's own keyring.

use crate::{process, setup};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the keyring's package puts it; the second name is the newer one.
const KEYRINGS: [&str; 2] =
    ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];
/// Asked of apt: one line per index that it knows.
const INDEX_FORMAT: &str = "$(CREATED_BY)|$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CODENAME)|$(REPO_URI)";
/// What the fields before the code name are for Debian's own main archive: no updates, no security suite.
const MAIN_INDEX: &str = "Packages|Debian|Debian|main|";

/// The mirror, and the suite that this machine itself runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub(crate) uri: String,
    pub(crate) suite: String,
}

impl Mirror {
    pub(crate) fn of_this_machine() -> Result<Self> {
        if let Some(mirror) = choose(&indexes()?) {
            return Ok(mirror);
        }
        // A fresh machine or container has sources, but has read no index yet.
        if setup::is_root()? {
            process::run(process::command("apt-get").args(["-qq", "update"]))?;
            if let Some(mirror) = choose(&indexes()?) {
                return Ok(mirror);
            }
        }
        bail!(
            "apt on this machine knows no Debian archive: run `sudo apt-get update`, and see that a source of \
             component main is configured"
        )
    }

    /// The line that makes apt, and mmdebstrap, use one suite of this mirror.
    pub(crate) fn source(&self, suite: &str) -> Result<String> {
        let keyring = KEYRINGS.iter().find(|path| Path::new(path).exists());
        let keyring = keyring.context("Debian's keyring is missing: run `cargo xtask setup`")?;
        Ok(format!("deb [signed-by={keyring}] {} {suite} main", self.uri))
    }
}

fn indexes() -> Result<String> {
    process::output(process::command("apt-get").args(["indextargets", "--format", INDEX_FORMAT]))
}

fn choose(indexes: &str) -> Option<Mirror> {
    indexes.lines().filter_map(|line| line.strip_prefix(MAIN_INDEX)?.split_once('|')).find_map(
        |(suite, uri)| {
            (!suite.contains('-')).then(|| Mirror { uri: uri.to_owned(), suite: suite.to_owned() })
        },
    )
}

/// What the machine's apt says of proxies, in the form of apt.conf, for programs that don't read it.
pub(crate) fn proxies() -> Result<Vec<String>> {
    let dump = process::output(process::command("apt-config").args(["dump", "--format", "%f \"%v\";%n"]))?;
    Ok(dump
        .lines()
        .filter(|line| line.contains("::Proxy") && !line.ends_with("\"\";"))
        .map(str::to_owned)
        .collect())
}

/// One suite, with lists and a cache of its own under a directory.
#[derive(Debug)]
pub(crate) struct PrivateApt {
    directory: PathBuf,
}

impl PrivateApt {
    pub(crate) fn open(directory: &Path, mirror: &Mirror, suite: &str) -> Result<Self> {
        let make = |path: &str| {
            let path = directory.join(path);
            fs::create_dir_all(&path).with_context(|| format!("can't make {}", path.display()))
        };
        make("lists/partial")?;
        make("cache/archives/partial")?;
        write(&directory.join("sources.list"), mirror.source(suite)? + "\n")?;
        write(&directory.join("status"), "")?;
        let apt = Self { directory: directory.to_owned() };
        process::run(apt.tool("apt-get").args(["-qq", "update"])).with_context(|| {
            format!("can't read suite {suite} from the configured mirror (a missing key means an old debian-archive-keyring)")
        })?;
        Ok(apt)
    }

    /// The package that a metapackage stands for today: the first of its dependencies with this prefix.
    pub(crate) fn dependency(&self, metapackage: &str, prefix: &str) -> Result<String> {
        let shown = process::output(self.tool("apt-cache").args(["show", "--no-all-versions", metapackage]))?;
        first_dependency(&shown, prefix)
            .with_context(|| format!("{metapackage} depends on no {prefix}…: has the archive renamed it?"))
    }

    /// Downloads a package and unpacks it, without installing anything anywhere.
    pub(crate) fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let downloads = self.directory.join(format!("download-{package}"));
        fs::create_dir_all(&downloads).with_context(|| format!("can't make {}", downloads.display()))?;
        process::run(self.tool("apt-get").args(["-qq", "download", package]).current_dir(&downloads))?;
        let listing =
            fs::read_dir(&downloads).with_context(|| format!("can't list {}", downloads.display()))?;
        for entry in listing {
            let file = entry.with_context(|| format!("can't list {}", downloads.display()))?.path();
            process::run(process::command("dpkg-deb").arg("-x").arg(file).arg(into))?;
        }
        Ok(())
    }

    /// The machine's apt.conf still holds (proxies, timeouts); only state, cache and sources are ours.
    fn tool(&self, program: &str) -> Command {
        let at = |name: &str| self.directory.join(name).display().to_string();
        let mut command = process::command(program);
        for (option, value) in [
            ("Dir::State", at("")),
            ("Dir::State::lists", at("lists")),
            ("Dir::State::status", at("status")),
            ("Dir::Cache", at("cache")),
            ("Dir::Etc::sourcelist", at("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("Dir::Etc::preferences", "/dev/null".into()),
            ("Dir::Etc::preferencesparts", "/dev/null".into()),
            ("Acquire::Languages", "none".into()),
            ("Acquire::Retries", "3".into()),
            // The cache is below a home directory, where apt's own user can't go.
            ("APT::Sandbox::User", "root".into()),
        ] {
            command.arg("-o").arg(format!("{option}={value}"));
        }
        command
    }
}

fn first_dependency(shown: &str, prefix: &str) -> Option<String> {
    let depends = shown.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let names = depends.split([',', '|']).filter_map(|term| term.split_whitespace().next());
    names.into_iter().find(|name| name.starts_with(prefix)).map(str::to_owned)
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).with_context(|| format!("can't write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_of_the_main_suite() {
        let indexes = "DEP-11|Debian|Debian|main|bookworm|http://mirror.test/d/\n\
                       Packages|Debian|Debian-Security|main|bookworm-security|http://mirror.test/s/\n\
                       Packages|Debian|Debian|main|bookworm-updates|http://mirror.test/u/\n\
                       Packages|Debian|Debian|main|bookworm|http://mirror.test/d/\n";
        let expected = Mirror { uri: "http://mirror.test/d/".into(), suite: "bookworm".into() };
        assert_eq!(choose(indexes), Some(expected));
        assert_eq!(choose("Packages|Other|Other|main|noble|http://mirror.test/o/\n"), None);
    }

    #[test]
    fn a_metapackage_names_todays_kernel() {
        let shown = "Package: linux-image-cloud-amd64\nDepends: linux-base (>= 4), linux-image-6.1.0-50-cloud-amd64 (= 6.1.1)\n";
        let found = first_dependency(shown, "linux-image-").unwrap();
        assert_eq!(found, "linux-image-6.1.0-50-cloud-amd64");
        assert_eq!(first_dependency("Package: x\n", "linux-image-"), None);
    }
}
