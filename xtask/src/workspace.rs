//! Where this workspace and its artefacts are, asked of cargo, and what a build made. No other module
//! guesses a path under the target directory.

use crate::process;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
}

/// One executable that cargo built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) is_test: bool,
    pub(crate) path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// The cargo that started us, so that a toolchain override holds for what we build too.
pub(crate) fn cargo() -> Command {
    process::command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

pub(crate) fn locate() -> Result<Workspace> {
    let text = process::output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("cargo metadata answered something unknown")
}

/// Where the person keeps what can be made again.
pub(crate) fn cache_home() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    cache.context("neither XDG_CACHE_HOME nor HOME says where to cache things")
}

impl Workspace {
    /// Builds and lists the executables; compiler messages go to our standard error as usual.
    pub(crate) fn build(&self, verb: &[&str], packages: &[String]) -> Result<Vec<Built>> {
        let mut command = cargo();
        command.current_dir(&self.root).args(verb).args([
            "--quiet",
            "--message-format",
            "json-render-diagnostics",
        ]);
        for package in packages {
            command.args(["--package", package]);
        }
        executables(&process::watched(&mut command)?)
    }
}

fn executables(stdout: &[u8]) -> Result<Vec<Built>> {
    let mut built = Vec::new();
    for line in stdout.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"{")) {
        let message: Message =
            serde_json::from_slice(line).context("cargo wrote a message of an unknown form")?;
        if message.reason != "compiler-artifact" {
            continue;
        }
        if let (Some(target), Some(profile), Some(path)) =
            (message.target, message.profile, message.executable)
        {
            let package = package_name(message.package_id.as_deref(), message.manifest_path)?;
            built.push(Built { package, target: target.name, is_test: profile.test, path });
        }
    }
    Ok(built)
}

/// A package id is `…#name@version`, or `…/name#version` where the folder bears the package's name.
fn package_name(id: Option<&str>, manifest: Option<PathBuf>) -> Result<String> {
    let id = id.with_context(|| format!("an artefact of {manifest:?} belongs to no package"))?;
    let (place, fragment) =
        id.rsplit_once('#').with_context(|| format!("package id {id} has no fragment"))?;
    let name = match fragment.split_once('@') {
        Some((name, _version)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    };
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executables_are_listed() {
        let stdout = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/proto#stockade-proto@0.1.0","#,
            r#""target":{"name":"stockade_proto"},"profile":{"test":true},"executable":"/t/proto-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"registry+x#serde@1.0.0","#,
            r#""target":{"name":"serde"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let expected = Built {
            package: "stockade-proto".into(),
            target: "stockade_proto".into(),
            is_test: true,
            path: "/t/proto-1".into(),
        };
        assert_eq!(executables(stdout.as_bytes()).unwrap(), [expected]);
    }

    #[test]
    fn a_package_whose_folder_bears_its_name_is_named_by_the_folder() {
        assert_eq!(package_name(Some("path+file:///w/xtask#0.1.0"), None).unwrap(), "xtask");
        assert_eq!(package_name(Some("path+file:///w/tests/line#a-line@0.1.0"), None).unwrap(), "a-line");
        assert!(package_name(None, None).is_err());
    }
}
