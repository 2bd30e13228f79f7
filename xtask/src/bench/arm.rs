//! One thing that is timed: a program, its arguments, and nothing of the caller's environment. cargo sets
//! `LD_LIBRARY_PATH` for what it runs, which would slow each dynamic program down and flatter the ratios.

use super::Subject;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The profile that the bars on spawning are about.
pub(super) const DEFAULT: &str = "default";
/// The same walls without caps on CPU and output: a capped stream would measure the cap.
pub(super) const UNCAPPED: &str = "build";

/// What a login shell would have at least. `PATH` decides which toolchains the sandbox shows.
const ENVIRONMENT: [(&str, &str); 4] =
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/root"), ("USER", "root"), ("LANG", "C.UTF-8")];

#[derive(Debug, Clone)]
pub(super) struct Arm {
    pub(super) name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Where its profiles are, if they are the benchmark's own.
    config: Option<PathBuf>,
}

impl Arm {
    /// `program` is absolute: a search of `PATH` in the child would cost the standard library its vfork.
    pub(super) fn new<A: Into<OsString>>(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { name: name.into(), program: program.into(), arguments, config: None }
    }

    pub(super) fn configured(self, config: PathBuf) -> Self {
        Self { config: Some(config), ..self }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(own_environment()).stdin(Stdio::null());
        command.envs(self.config.iter().map(|config| ("XDG_CONFIG_HOME", config)));
        command
    }

    /// From the spawn to the reaped child.
    pub(super) fn time(&self) -> Result<Duration> {
        let mut command = self.command();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status().with_context(|| format!("can't start {:?}", self.program))?;
        let took = start.elapsed();
        if !status.success() {
            bail!("{} failed while it was timed: {status}", self.name);
        }
        Ok(took)
    }

    /// Runs it once, untimed; the error is what it said.
    pub(super) fn works(&self) -> Result<()> {
        let output = self.command().output().with_context(|| format!("can't start {:?}", self.program))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", output.status, words.lines().last().unwrap_or("no word"));
    }
}

/// What systemd gives a service on a host that has set no locale, which bash would load files for.
pub(super) fn service_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    own_environment().filter(|(name, _)| *name != "LANG")
}

/// `HOME` and `USER` are the caller's: an ordinary user's sandbox can't be planned with root's home.
fn own_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    ENVIRONMENT.into_iter().map(|(name, default)| {
        let own = if name == "PATH" { None } else { std::env::var_os(name) };
        (name, own.unwrap_or_else(|| default.into()))
    })
}

/// `stockade run` as a person types it; `rest` is further options, `--` and the command.
pub(super) fn sandboxed(name: &str, subject: &Subject, profile: &str, rest: &[&str]) -> Arm {
    let mut words: Vec<OsString> = vec!["run".into(), "--profile".into(), profile.into()];
    words.extend(["--workspace".into(), subject.workspace().into()]);
    words.extend(rest.iter().map(Into::into));
    Arm::new(name, &subject.stockade, words)
}

/// A profile in a configuration of the benchmark's own, which it returns.
pub(super) fn profile(subject: &Subject, name: &str, text: &str) -> Result<PathBuf> {
    let home = subject.place.path().join("config");
    let profiles = home.join("stockade/profiles");
    std::fs::create_dir_all(&profiles).context("can't make a place for a profile")?;
    std::fs::write(profiles.join(format!("{name}.toml")), text).context("can't write a profile")?;
    Ok(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_cargos_environment_is_timed() {
        let output = Arm::new("env", "/usr/bin/env", [""; 0]).command().output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<&str> = shown.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["HOME", "LANG", "PATH", "USER"]);
    }

    #[test]
    fn a_failure_is_an_error_with_the_last_words() {
        let arm = Arm::new("sh", "/bin/sh", ["-c", "echo early >&2; echo late >&2; exit 3"]);
        let error = arm.works().unwrap_err().to_string();
        assert!(error.contains('3') && error.contains("late") && !error.contains("early"), "{error}");
        assert!(arm.time().is_err());
        assert!(Arm::new("true", "/bin/true", [""; 0]).time().is_ok());
    }
}
