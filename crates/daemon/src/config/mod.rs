//! The service's configuration, resolved: no choice is left. What a person writes is in `written`; where nothing is
//! written, everything has a value that works for one user on one machine.

mod follow;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
pub(crate) mod names;
mod profiles;
#[cfg(test)]
mod reference;
mod resolve;
pub mod secret;
mod service_profile;
mod surroundings;
mod telemetry;
#[cfg(test)]
mod tests;
mod values;
mod workspaces;
mod written;

use std::fs::{Metadata, OpenOptions};
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use secrecy::SecretString;
use stockade_policy::ProfileError;
use stockade_proto::{Bytes, Code, link};
use stockade_store::executions::Keep;

use crate::admission::Capacity;
use crate::denied::Denied;
pub use surroundings::{Scope, Surroundings};
pub use telemetry::Collector;
pub use workspaces::{Seen, Workspaces};
pub use written::{Format, Level};

/// What is read where nobody names another, by root and by the system's service.
/// Of a person, below the settings.
const FILE: &str = "config.toml";
pub const SYSTEM_FILE: &str = "/etc/stockade/config.toml";
/// A configuration is a page of text.
const FILE_LIMIT: u64 = 1 << 20;

/// Everything that a start or a reload decides.
#[derive(Debug)]
pub struct Settings {
    pub config: Config,
    pub format: Format,
    pub level: Level,
}

/// Reads `file`, or the usual one where there is one: the person's own, or the system's for root's and the system's
/// service. Then the profiles.
pub fn load(file: Option<&Path>, around: &Surroundings) -> Result<Settings, ProfileError> {
    let usual = match around.scope {
        Scope::Person | Scope::Unit => around.own_settings().map(|settings| settings.join(FILE)),
        Scope::Root | Scope::System => Some(PathBuf::from(SYSTEM_FILE)),
    };
    // What can't be looked at is not left out: reading it says why.
    let usual = usual.filter(|usual| usual.try_exists().unwrap_or(true));
    let file = file.map(Path::to_owned).or(usual).map(|file| read(&file)).transpose()?;
    let mut settings = settings(file.as_ref(), around)?;
    let config = &mut settings.config;
    let own = config.service.profiles.pop();
    let tried = profiles::Profiles::read(around)?.try_all(own, &config.profile)?;
    config.service.profiles = tried.texts;
    if config.service.walls_required && tried.without_walls.contains(&config.profile) {
        return Err(resolve::invalid(
            format!(
                "the profile `{}` builds no walls, and this service runs nothing without",
                config.profile
            ),
            "Name another `profile`; `production = false` would allow it.",
        ));
    }
    Ok(settings)
}

fn settings(file: Option<&written::File>, around: &Surroundings) -> Result<Settings, ProfileError> {
    let nothing = written::Written::default();
    let written = file.map_or(&nothing, |file| &file.written);
    resolve::Resolve { file, around }.settings(written)
}

fn read(path: &Path) -> Result<written::File, ProfileError> {
    let wrong = |why: &str| {
        resolve::invalid(
            format!("the configuration {} {why}", path.display()),
            "Give a readable UTF-8 file with --config.",
        )
    };
    let text = read_regular(path, FILE_LIMIT).map_err(|why| wrong(&why))?;
    written::File::parse(path, text)
}

/// The text of a file, however it is meant: one that makes its reader wait is no file here.
fn read_regular(path: &Path, limit: u64) -> Result<String, String> {
    read_owned(path, limit, &|_| Ok(()))
}

/// The same, of one that `check` finds nothing wrong with.
fn read_owned(
    path: &Path,
    limit: u64,
    check: &dyn Fn(&Metadata) -> Result<(), &'static str>,
) -> Result<String, String> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| format!("can't be opened: {error}"))?;
    let there = file.metadata().map_err(|error| format!("can't be read: {error}"))?;
    if !there.is_file() {
        return Err("is no regular file".to_owned());
    }
    check(&there)?;
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text).map_err(|error| format!("can't be read: {error}"))?;
    match u64::try_from(text.len()) {
        Ok(length) if length <= limit => Ok(text),
        Ok(_) | Err(_) => Err(format!("is longer than {limit} bytes")),
    }
}

/// Whether a file is ours or root's, and none of `bits` is among those of its mode.
fn private(there: &Metadata, bits: u32) -> Result<(), &'static str> {
    if ![0, rustix::process::geteuid().as_raw()].contains(&there.uid()) {
        return Err("is another user's");
    }
    match there.mode() & bits {
        0 => Ok(()),
        open if open & 0o044 == 0 => Err("can be written by others"),
        _ => Err("can be read or written by others"),
    }
}

#[derive(Debug)]
pub struct Config {
    /// systemd's credential in place of the secrets' key file.
    pub secrets_key: Option<PathBuf>,
    /// Where records, output, secrets and the audit log are.
    pub state: PathBuf,
    pub socket: Option<SocketDoor>,
    pub http: Option<HttpDoor>,
    pub capacity: Capacity,
    pub workspaces: Workspaces,
    /// The profile of requests that name none.
    pub profile: String,
    /// Whether requests may name no other profile: `[limits]` would not hold for it.
    pub only_own: bool,
    /// What an executor is told: the service's own profiles, those of the system and the user as they were read.
    pub service: link::Terms,
    /// The deadline of agent stages that name none.
    pub stage_timeout: Option<Duration>,
    pub keep: Keep,
    /// How long running executions have when the service is asked to stop.
    pub drain: Duration,
    /// Where spans of executions are sent, if anywhere.
    pub telemetry: Option<Collector>,
}

/// The Unix-socket door.
#[derive(Debug, Clone)]
pub struct SocketDoor {
    /// Made here; a socket that systemd passes is used instead.
    pub path: PathBuf,
    /// Who may connect besides our own user and root.
    pub uids: Vec<u32>,
    pub gids: Vec<u32>,
}

/// The HTTP door.
#[derive(Debug, Clone)]
pub struct HttpDoor {
    pub address: SocketAddr,
    /// Of `X-Executor-Secret`. Without one, only loopback is served.
    pub secret: Option<SecretString>,
}

impl Config {
    /// What the configuration limits, no request gets around by naming another profile.
    pub fn check_profile(&self, name: &str) -> Result<(), Denied> {
        if !self.only_own || name == self.profile {
            return Ok(());
        }
        Err(Denied::refuse(
            Code::NotPermitted,
            format!(
                "the profile `{}` can't be chosen: this service has limits of its own",
                Bytes::from(name)
            ),
            format!("Leave the profile out, or name `{}`.", self.profile),
        ))
    }
}
