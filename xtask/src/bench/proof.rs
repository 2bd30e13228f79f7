//! Before anything is timed: every wall is enforced and redaction does redact, with the very arguments that
//! will be timed. A benchmark of a layer that was off is worse than none.

use super::Subject;
use super::arm::{UNCAPPED, sandboxed};
use super::output::Secrets;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The names that `--json` must report as enforced; a layer that is new there has to be added here.
const LAYERS: [&str; 7] = ["filesystem", "landlock", "limits", "network", "process", "seccomp", "sockets"];

/// What `--json` says, as far as it is checked here. Read as a stranger would, not through our own types.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    exit_code: u8,
    stdout: Stream,
    enforcement: Vec<Wall>,
}

#[derive(Debug, Deserialize)]
struct Stream {
    bytes: u64,
    dropped: u64,
}

#[derive(Debug, Deserialize)]
struct Wall {
    layer: String,
    state: String,
    detail: String,
}

impl Told {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("no result in {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| {
            format!("the result is of an unknown form: {}", String::from_utf8_lossy(&text).trim_end())
        })
    }

    /// Ended well, behind all the walls, with so many bytes passed on.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        if self.exit_code != 0 || self.stdout.bytes != bytes || self.stdout.dropped != 0 {
            bail!("exit code {} and {:?}, where {bytes} bytes were due", self.exit_code, self.stdout);
        }
        self.all_enforced()
    }

    pub(super) fn all_enforced(&self) -> Result<()> {
        let states: BTreeMap<&str, &Wall> =
            self.enforcement.iter().map(|wall| (wall.layer.as_str(), wall)).collect();
        if states.keys().ne(LAYERS.iter()) {
            bail!("the result names the layers {:?}, not {LAYERS:?}", states.keys());
        }
        for wall in states.values() {
            if wall.state != "enforced" {
                bail!("layer {} is {}: {}; nothing is timed without it", wall.layer, wall.state, wall.detail);
            }
        }
        Ok(())
    }
}

/// Runs `/bin/true` under the profile and reads what was in force.
pub(super) fn walls(subject: &Subject, profile: &str) -> Result<()> {
    let file = subject.place.path().join("walls.json");
    let told = file.to_string_lossy();
    let words = ["--json", told.as_ref(), "--", "/bin/true"];
    sandboxed("stockade", subject, profile, &words).works().context("stockade run -- /bin/true")?;
    Told::read(&file)?.check(0).with_context(|| format!("the walls of profile {profile}"))
}

/// Each secret, and a token of a known shape, must not come out.
pub(super) fn redaction(subject: &Subject) -> Result<()> {
    let secrets = Secrets::ten();
    // Put together here, so that scanners of this repository don't take it for a real one.
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let text = format!("{} {token}", secrets.values().join(" "));
    let words = ["--", "/bin/echo", &text];
    let output = secrets.given(&sandboxed("stockade", subject, UNCAPPED, &secrets.options(&words))).output();
    let output = output.context("can't start stockade")?;
    let shown = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("echo under redaction: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let leaked = secrets.values().iter().any(|value| shown.contains(value.as_str()));
    if leaked || shown.contains(&token) || shown.trim().is_empty() {
        bail!("redaction is off or broken, so its cost can't be measured: echo came out as {shown:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(states: &[(&str, &str)]) -> Told {
        let wall = |(layer, state): &(&str, &str)| Wall {
            layer: (*layer).to_owned(),
            state: (*state).to_owned(),
            detail: String::new(),
        };
        let stdout = Stream { bytes: 0, dropped: 0 };
        Told { exit_code: 0, stdout, enforcement: states.iter().map(wall).collect() }
    }

    #[test]
    fn one_wall_off_or_unnamed_stops_the_benchmark() {
        let mut states = LAYERS.map(|layer| (layer, "enforced"));
        assert!(told(&states).check(0).is_ok());
        assert!(told(&states).check(1).is_err());
        assert!(told(&states[1..]).check(0).is_err());
        states[3].1 = "off";
        assert!(told(&states).check(0).is_err());
    }
}
