//! From what is written, and what the process was started with, to a [`Config`] without choices. Nothing is opened
//! here but the file of the secret. Next: `service`.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use stockade_policy::ProfileError;
use stockade_proto::{Code, Refusal, install, link};
use stockade_store::executions::Keep;

use super::surroundings::{self as variable, Scope, Surroundings};
use super::values::At;
use super::written::{File, Log, Written};
use super::{
    Config, HttpDoor, Seen, Settings, SocketDoor, Workspaces, names, secret, service_profile, telemetry,
};
use crate::admission::Capacity;

const PORT: u16 = 3001;
const DRAIN: Duration = Duration::from_secs(30);
/// The executor waits no longer either.
const LONGEST_DRAIN: Duration = Duration::from_secs(60 * 60);
const AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const BYTES: u64 = 10 << 30;
/// The executor has no more places: each takes one of the 200 keys that the kernel gives a user.
const MOST_RUNNING: usize = 160;
/// What fits a socket's address, with its NUL.
const SOCKET_PATH: usize = 107;

const SYSTEM_STATE: &str = "/var/lib/stockade";
const SYSTEM_SOCKET: &str = "/run/stockade/stockade.sock";

/// Among the credentials that systemd gives to the service.
const SECRETS_KEY: &str = "stockade-secrets-key";

pub(super) struct Resolve<'a> {
    pub(super) file: Option<&'a File>,
    pub(super) around: &'a Surroundings,
}

impl Resolve<'_> {
    /// A credential that is there is used, or nothing is served: another key would seal what it can't open.
    fn secrets_key(&self) -> Result<Option<PathBuf>, ProfileError> {
        let Some(path) = self.around.credentials.as_ref().map(|given| given.join(SECRETS_KEY)) else {
            return Ok(None);
        };
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(None);
        }
        match stockade_store::secrets::check_credential(&path) {
            Ok(()) => Ok(Some(path)),
            Err(error) => Err(invalid(
                error.to_string(),
                "`LoadCredentialEncrypted=` of the unit says where it comes from; systemd-creds(1) makes one.",
            )),
        }
    }

    pub(super) fn settings(&self, written: &Written) -> Result<Settings, ProfileError> {
        let state = self.state(written)?;
        let http = self.http(written)?;
        let socket = self.socket(written, &state)?;
        if http.is_none() && socket.is_none() {
            return Err(invalid(
                "neither door is enabled, so that nobody could call",
                "Leave out `enabled = false` of [http] or of [socket].",
            ));
        }
        let mut workspaces = self.workspaces(written, &state)?;
        workspaces.closed.extend(socket.as_ref().map(|door| door.path.clone()));
        let (profile, own) = service_profile::make(self, written)?;
        let timeout = self.around.number(variable::TIMEOUT)?;
        if timeout == Some(0) {
            return Err(self.around.wrong(variable::TIMEOUT));
        }
        let stage_timeout = timeout.map(Duration::from_millis).or(written.stage_timeout.map(|time| time.0));
        let production = match (written.production, self.around.variables.get(variable::PRODUCTION)) {
            (_, Some(_)) => true,
            (Some(production), None) => production,
            (None, None) => true,
        };
        let config = Config {
            secrets_key: self.secrets_key()?,
            capacity: self.capacity(written)?,
            keep: Keep {
                age: written.retention.age.map_or(AGE, |age| age.0),
                bytes: written.retention.bytes.map_or(BYTES, |bytes| bytes.0),
            },
            drain: self.drain(written)?,
            telemetry: telemetry::collector(self, &written.telemetry)?,
            only_own: own.is_some(),
            service: link::Terms { profiles: own.into_iter().collect(), walls_required: production },
            state,
            socket,
            http,
            workspaces,
            profile,
            stage_timeout,
        };
        let Log { format, level } = written.log;
        Ok(Settings { config, format: format.unwrap_or_default(), level: level.unwrap_or_default() })
    }

    /// Points at `span` where there is a file.
    pub(super) fn problem(&self, span: &Range<usize>, message: String, remedy: &str) -> ProfileError {
        match self.file {
            Some(file) => file.problem(span, message, remedy),
            None => invalid(message, remedy),
        }
    }

    fn absolute(&self, key: &str, path: &At<PathBuf>) -> Result<PathBuf, ProfileError> {
        if path.value.is_absolute() {
            return Ok(path.value.clone());
        }
        Err(self.problem(&path.span, format!("`{key}` is not an absolute path"), "start it with /"))
    }

    fn state(&self, written: &Written) -> Result<PathBuf, ProfileError> {
        if let Some(state) = &written.state {
            return self.absolute("state", state);
        }
        let own = match self.around.scope {
            Scope::System | Scope::Root => Some(PathBuf::from(SYSTEM_STATE)),
            Scope::Person | Scope::Unit => {
                let home = || self.around.home.as_ref().map(|home| home.join(".local/state"));
                self.around.state_home.clone().or_else(home).map(|home| home.join("stockade"))
            }
        };
        own.ok_or_else(|| {
            invalid(
                "neither HOME nor XDG_STATE_HOME says where records are kept",
                "Set one, or write `state`.",
            )
        })
    }

    fn http(&self, written: &Written) -> Result<Option<HttpDoor>, ProfileError> {
        if written.http.enabled == Some(false) {
            return Ok(None);
        }
        let asked = written.http.enabled.is_some() || written.http.address.is_some();
        let asked = asked || self.around.variables.contains_key(variable::PORT);
        let secret = self.secret(written)?;
        if self.around.unattended() && !asked && secret.is_none() {
            // Everybody on the machine could call it: for that somebody must have asked.
            return Ok(None);
        }
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let mut address = written.http.address.as_ref().map_or(loopback, |address| address.value);
        if let Some(port) = self.around.number(variable::PORT)? {
            let port = u16::try_from(port).map_err(|_| self.around.wrong(variable::PORT))?;
            address.set_port(port);
        }
        if secret.is_none() && !address.ip().is_loopback() {
            let message =
                format!("without a secret the HTTP door opens on loopback only, and {address} is not");
            let remedy = "set EXECUTOR_SECRET or `secret_file`, or listen on 127.0.0.1 or [::1]";
            let span = written.http.address.as_ref().map(|address| address.span.clone()).unwrap_or_default();
            return Err(self.problem(&span, message, remedy));
        }
        Ok(Some(HttpDoor { address, secret }))
    }

    fn secret(&self, written: &Written) -> Result<Option<SecretString>, ProfileError> {
        let given = self.around.secret.as_ref().map(secret::given).transpose().map_err(|why| {
            invalid(format!("the variable {} {why}", variable::SECRET), "Set another one, or unset it.")
        })?;
        if let Some(given) = given.flatten() {
            return Ok(Some(given));
        }
        let Some(path) = &written.http.secret_file else { return Ok(None) };
        let file = self.absolute("secret_file", path)?;
        let read = secret::read(&file).map_err(|why| {
            self.problem(
                &path.span,
                format!("the file of the secret {why}"),
                "give it to the service's user, mode 0600",
            )
        })?;
        Ok(Some(read))
    }

    fn socket(&self, written: &Written, state: &Path) -> Result<Option<SocketDoor>, ProfileError> {
        let socket = &written.socket;
        if socket.enabled == Some(false) {
            return Ok(None);
        }
        let path = match (self.around.path(variable::SOCKET)?, &socket.path) {
            (Some(path), _) => path,
            (None, Some(path)) => self.absolute("socket.path", path)?,
            (None, None) => match (self.around.scope, &self.around.runtime) {
                (Scope::System | Scope::Root, _) => PathBuf::from(SYSTEM_SOCKET),
                (Scope::Person | Scope::Unit, Some(runtime)) => runtime.join("stockade/stockade.sock"),
                (Scope::Person | Scope::Unit, None) => state.join("run/stockade.sock"),
            },
        };
        if path.as_os_str().len() > SOCKET_PATH {
            return Err(invalid(
                format!(
                    "the socket's path {} is longer than the kernel's {SOCKET_PATH} bytes",
                    path.display()
                ),
                "Give a shorter one as `path` of [socket].",
            ));
        }
        let ids = |written: &Option<Vec<super::values::Id>>| -> Vec<u32> {
            written.iter().flatten().map(|id| id.0).collect()
        };
        let (mut uids, mut gids) = (ids(&socket.uids), ids(&socket.gids));
        uids.extend(self.looked_up(socket.users.as_ref(), "user", names::user)?);
        gids.extend(self.looked_up(socket.groups.as_ref(), "group", names::group)?);
        Ok(Some(SocketDoor { path, uids, gids }))
    }

    fn looked_up(
        &self,
        names: Option<&At<Vec<String>>>,
        what: &str,
        look_up: fn(&str) -> Option<u32>,
    ) -> Result<Vec<u32>, ProfileError> {
        let Some(At { value, span }) = names else { return Ok(Vec::new()) };
        let found = value.iter().map(|name| {
            look_up(name).ok_or_else(|| {
                self.problem(
                    span,
                    format!("there is no {what} `{}`", name.escape_debug()),
                    "name one that exists",
                )
            })
        });
        found.collect()
    }

    fn capacity(&self, written: &Written) -> Result<Capacity, ProfileError> {
        let (admission, usual) = (&written.admission, Capacity::default());
        if let Some(running) = admission.running.as_ref().filter(|running| running.value.0 > MOST_RUNNING) {
            let message = format!("no more than {MOST_RUNNING} executions can run at once");
            return Err(self.problem(&running.span, message, "give a smaller number"));
        }
        let running = admission.running.as_ref().map_or(usual.running, |running| running.value.0);
        Ok(Capacity {
            running,
            each_principal: admission.each_principal.map_or(usual.each_principal.min(running), |each| each.0),
            waiting: admission.waiting.map_or(usual.waiting, |waiting| waiting.0),
            wait: admission.wait.map_or(usual.wait, |wait| wait.0),
        })
    }

    fn drain(&self, written: &Written) -> Result<Duration, ProfileError> {
        match &written.drain {
            Some(drain) if drain.value.0 > LONGEST_DRAIN => Err(self.problem(
                &drain.span,
                "`drain` is longer than an hour".to_owned(),
                "give at most \"1h\"",
            )),
            Some(drain) => Ok(drain.value.0),
            None => Ok(DRAIN),
        }
    }

    fn workspaces(&self, written: &Written, state: &Path) -> Result<Workspaces, ProfileError> {
        let from_variable = self.around.path(variable::CWD)?;
        let default = match (&from_variable, &written.default_workspace) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(path)) => Some(self.absolute("default_workspace", path)?),
            (None, None) => None,
        };
        let roots = match (&written.workspaces, &default) {
            (Some(At { value, span }), _) => {
                if value.is_empty() || !value.iter().all(|path| path.is_absolute()) {
                    let message = "`workspaces` must be one or more absolute paths".to_owned();
                    return Err(self.problem(span, message, "start each with /"));
                }
                value.clone()
            }
            (None, Some(default)) => vec![default.clone()],
            (None, None) => vec![self.own_workspace(state)?],
        };
        let default = default.or_else(|| roots.first().cloned()).unwrap_or_default();
        if !roots.iter().any(|root| default.starts_with(root)) {
            let message = format!("the default workspace {} is in none of `workspaces`", default.display());
            let span = written.default_workspace.as_ref().or(None).map(|path| path.span.clone());
            let span = span.or_else(|| written.workspaces.as_ref().map(|roots| roots.span.clone()));
            return Err(self.problem(&span.unwrap_or_default(), message, "add it there, or choose another"));
        }
        let closed = self.closed(written)?;
        let home = self.around.home.clone();
        Ok(Workspaces { roots, default, state: state.to_owned(), closed, home, seen: Seen::default() })
    }

    /// Whoever may change these decides what the service does.
    fn closed(&self, written: &Written) -> Result<Vec<PathBuf>, ProfileError> {
        let secret = written.http.secret_file.as_ref().map(|path| self.absolute("secret_file", path));
        let config = self.file.map(|file| file.path().to_owned());
        let mut closed: Vec<PathBuf> = secret.transpose()?.into_iter().chain(config).collect();
        closed.extend(self.around.settings());
        closed.extend(self.around.program.iter().flat_map(|program| programs(program)));
        Ok(closed)
    }

    fn own_workspace(&self, state: &Path) -> Result<PathBuf, ProfileError> {
        match (self.around.scope, &self.around.current) {
            (Scope::System | Scope::Unit, _) => Ok(state.join(super::workspaces::OWN)),
            (Scope::Person | Scope::Root, Some(current)) => Ok(current.clone()),
            (Scope::Person | Scope::Root, None) => Err(invalid(
                "the current directory can't be read",
                "Change to one that exists, or write `workspaces`.",
            )),
        }
    }
}

/// All of an install: wherever this one looks for the others, and where people find theirs if this is in `libexec`.
fn programs(program: &Path) -> impl Iterator<Item = PathBuf> {
    let others = install::PROGRAMS.into_iter().flat_map(|name| install::places(program, name));
    let people = program.ancestors().nth(3).map(|prefix| prefix.join("bin/stockade"));
    others.chain(people)
}

pub(super) fn invalid(message: impl Into<String>, remedy: impl Into<String>) -> ProfileError {
    Refusal::new(Code::ConfigInvalid, message, remedy).into()
}
