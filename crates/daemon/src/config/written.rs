//! The configuration as a person writes it. The comments here are the reference: docs/CONFIGURATION.md and the JSON
//! schema beside it are made from them, and a test holds both to this file. Next: `resolve`.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use stockade_policy::{Place, ProfileError, ProfileText, Spot, nearest};
use stockade_proto::{Bytes, Code};

use super::values::{At, Cores, Count, Id, Size, Time};

/// Every key may be left out.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    /// The directory of records, output, the audit log, tokens and secrets. One service at a time uses it.
    /// Default: `$XDG_STATE_HOME/stockade` or `~/.local/state/stockade`; `/var/lib/stockade` for the system's service.
    pub state: Option<At<PathBuf>>,
    /// The profile of requests that name none. Default: `"default"`.
    pub profile: Option<At<String>>,
    /// Directories that requests may have as their workspace, with everything below. Default: the directory that the
    /// service was started in; `workspaces` in the state directory for one that a service manager keeps.
    pub workspaces: Option<At<Vec<PathBuf>>>,
    /// The workspace of requests that name none, one of `workspaces` or below. Default: the first of `workspaces`.
    pub default_workspace: Option<At<PathBuf>>,
    /// How long executions may go on when the service is asked to stop, at most `"1h"`. Then they are ended.
    /// Default: `"30s"`.
    pub drain: Option<At<Time>>,
    /// The deadline of agent stages that name none. Default: none; the profile's own deadline is always in force.
    pub stage_timeout: Option<Time>,
    /// Whether profiles without walls (`mode = "host"`) are refused, whoever asks. Default: `true`.
    pub production: Option<bool>,
    /// The HTTP door.
    #[serde(default)]
    pub http: Http,
    /// The Unix-socket door.
    #[serde(default)]
    pub socket: Socket,
    /// How many executions at once, and who waits for how long.
    #[serde(default)]
    pub admission: Admission,
    /// What is kept of executions that have ended. The audit log is never shortened.
    #[serde(default)]
    pub retention: Retention,
    /// Changes to the profile of requests that name none: with any of these, it is a profile called `service`
    /// that extends `profile`.
    #[serde(default)]
    pub limits: Limits,
    /// The service's own log, on stderr.
    #[serde(default)]
    pub log: Log,
    /// Spans of executions, for an OpenTelemetry collector. They hold who ran something when, for how long and how it
    /// ended; never a command, its variables or its output. What no collector takes in time is dropped and counted
    /// (`stockade_spans_dropped_total`). OpenTelemetry's own variables (`OTEL_…`) choose nothing here.
    #[serde(default)]
    pub telemetry: Telemetry,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Http {
    /// Whether there is an HTTP door. Default: `true`; for a service that a service manager keeps (`--system`,
    /// `--unit`) only where an address or a secret is given, since without a secret everybody on the machine may call.
    pub enabled: Option<bool>,
    /// Where it listens. Port 0 lets the kernel choose; stderr says which. Anything but loopback needs a secret.
    /// There is no TLS: put a proxy before it. Default: `"127.0.0.1:3001"`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub address: Option<At<SocketAddr>>,
    /// A file with the secret that callers show as `X-Executor-Secret`, readable by nobody but the service's user.
    /// Default: none; then only loopback is served, and everybody on this machine may call.
    pub secret_file: Option<At<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Socket {
    /// Whether there is a Unix-socket door. Default: `true`.
    pub enabled: Option<bool>,
    /// Where it listens. A socket that systemd passes is used instead. Default:
    /// `$XDG_RUNTIME_DIR/stockade/stockade.sock`, or `run/stockade.sock` below `state` where that variable is not
    /// set; `/run/stockade/stockade.sock` for the system's service.
    pub path: Option<At<PathBuf>>,
    /// Who may connect besides the service's own user and root: users by number.
    pub uids: Option<Vec<Id>>,
    /// Groups by number.
    pub gids: Option<Vec<Id>>,
    /// Users by name, looked up in `/etc/passwd` at start and at reload.
    pub users: Option<At<Vec<String>>>,
    /// Groups by name, looked up in `/etc/group` at start and at reload.
    pub groups: Option<At<Vec<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Admission {
    /// Executions at once, at most 160. Default: 64.
    pub running: Option<At<Count>>,
    /// Executions at once of one caller. Default: 48, or `running` where that is less.
    pub each_principal: Option<Count>,
    /// Requests that wait for a place; the next one is told to come back. Default: 1024.
    pub waiting: Option<Count>,
    /// How long a request waits for a place. Default: `"30s"`.
    pub wait: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Retention {
    /// Records and output are removed this long after the execution's end. Default: `"30d"`.
    pub age: Option<Time>,
    /// The oldest are removed until all output together is no more than this. Default: `"10G"`.
    pub bytes: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    /// Memory of one execution. Default: the profile's.
    pub memory: Option<Size>,
    /// Processor time of one execution. Default: the profile's.
    pub cpu: Option<Cores>,
    /// `"deny"`: no network. `"registries"`: what this host's package tools are configured to fetch from, and
    /// nothing else. Default: the profile's.
    pub network: Option<Network>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub(super) enum Network {
    Deny,
    Registries,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    /// `"auto"`: text on a terminal, JSON otherwise. Default: `"auto"`.
    pub format: Option<Format>,
    /// How much is told. Default: `"info"`.
    pub level: Option<Level>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Telemetry {
    /// A collector that takes OTLP over HTTP, as `"http://ADDRESS:PORT"`: an IP address or `localhost`, and a path before
    /// `/v1/traces` if it has one. There is no TLS: send to a collector on this host, which sends on. Default: none, and
    /// nothing is sent.
    pub otlp: Option<At<String>>,
    /// What spans call this service. Default: `"stockade"`.
    pub service_name: Option<At<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Auto,
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// A configuration file, read.
#[derive(Debug)]
pub(super) struct File {
    text: ProfileText,
    pub written: Written,
}

impl File {
    pub(super) fn path(&self) -> &std::path::Path {
        self.text.file.as_path()
    }

    pub(super) fn parse(path: &std::path::Path, text: String) -> Result<Self, ProfileError> {
        let text = ProfileText {
            place: Place::System,
            name: String::new(),
            file: Bytes::from(path),
            text: text.into(),
        };
        let written = toml::from_str(&text.text).map_err(|error| problem(&text, &error))?;
        Ok(Self { text, written })
    }

    /// A refusal that points at what is written there.
    pub(super) fn problem(
        &self,
        span: &Range<usize>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ProfileError {
        let spot = Spot { text: 0, start: span.start, end: span.end };
        ProfileError::new(Code::ConfigInvalid, &self.text, spot, message, remedy)
    }

    pub(super) fn name(&self) -> &Bytes {
        &self.text.file
    }
}

fn problem(text: &ProfileText, error: &toml::de::Error) -> ProfileError {
    let span = error.span().unwrap_or(0..0);
    let spot = Spot { text: 0, start: span.start, end: span.end };
    let (message, remedy) = match unknown_key(error.message()) {
        Some((key, known)) => {
            let remedy = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("here there are: {}", known.join(", ")),
            };
            (format!("there is no key `{}` here", key.escape_debug()), remedy)
        }
        None => (
            error.message().trim_end().replace('\n', "; "),
            "see docs/CONFIGURATION.md; `stockaded --check` tries a file without serving".to_owned(),
        ),
    };
    ProfileError::new(Code::ConfigInvalid, text, spot, message, remedy)
}

/// Serde says it in one way only: "unknown field `x`, expected one of `a`, `b`".
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, known) = rest.split_once("`, expected ")?;
    Some((key, known.split('`').skip(1).step_by(2).collect()))
}
