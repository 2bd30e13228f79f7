//! What the process was started with: its variables, its directories, whose service it is. Read once, and kept for
//! a reload. Next: `resolve`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use secrecy::SecretString;
use stockade_policy::ProfileError;
use stockade_proto::{Bytes, Code, Refusal};

/// A variable that stands in for a key, and wins over it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub name: &'static str,
    pub key: &'static str,
    pub form: &'static str,
}

const fn row(name: &'static str, key: &'static str, form: &'static str) -> Row {
    Row { name, key, form }
}

pub(super) const SECRET: &str = "EXECUTOR_SECRET";
pub(super) const PORT: &str = "EXECUTOR_PORT";
pub(super) const CWD: &str = "DEFAULT_CWD";
pub(super) const SOCKET: &str = "EXECUTOR_SOCKET_PATH";
pub(super) const MEMORY: &str = "EXECUTOR_MEMORY_LIMIT_MB";
pub(super) const CPU: &str = "EXECUTOR_CPU_LIMIT_PERCENT";
pub(super) const NETWORK: &str = "EXECUTOR_NETWORK_POLICY";
pub(super) const TIMEOUT: &str = "RUN_TIMEOUT_MS";
pub(super) const PRODUCTION: &str = "STOCKADE_PRODUCTION";

/// Those of the two compatible servers, and one of ours.
pub(super) const VARIABLES: [Row; 9] = [
    row(SECRET, "http.secret_file", "the secret itself; empty is none"),
    row(PORT, "http.address", "its port, from 0 to 65535"),
    row(CWD, "default_workspace", "an absolute path; also `workspaces` where that is not written"),
    row(SOCKET, "socket.path", "an absolute path"),
    row(MEMORY, "limits.memory", "mebibytes, a whole number above zero"),
    row(CPU, "limits.cpu", "percent of one core, a whole number above zero"),
    row(NETWORK, "limits.network", "`deny_all` or `registry_allowlist`"),
    row(TIMEOUT, "stage_timeout", "milliseconds, a whole number above zero"),
    row(PRODUCTION, "production", "anything: `true`"),
];

/// Whose service it is, and so where everything lies that nobody chose a place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A person's, in the person's own directories.
    Person,
    /// A person's, kept by the service manager: nobody watches it.
    Unit,
    /// Root's, by hand: the system's directories, and the current one to work in.
    Root,
    /// The system's.
    System,
}

#[derive(Debug, Clone)]
pub struct Surroundings {
    pub scope: Scope,
    pub variables: BTreeMap<&'static str, OsString>,
    pub home: Option<PathBuf>,
    pub runtime: Option<PathBuf>,
    pub state_home: Option<PathBuf>,
    pub config_home: Option<PathBuf>,
    pub current: Option<PathBuf>,
    /// Where systemd puts what only this service may read.
    pub credentials: Option<PathBuf>,
    /// Of this program: the others of the install are beside it.
    pub program: Option<PathBuf>,
    /// What [`SECRET`] said; it is not among the variables any more.
    pub secret: Option<SecretString>,
}

impl Surroundings {
    pub fn of_this_process(scope: Scope, secret: Option<SecretString>) -> Self {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let set = |row: Row| std::env::var_os(row.name).map(|value| (row.name, value));
        Self {
            scope,
            variables: VARIABLES.into_iter().filter(|row| row.name != SECRET).filter_map(set).collect(),
            home: absolute("HOME"),
            runtime: absolute("XDG_RUNTIME_DIR"),
            state_home: absolute("XDG_STATE_HOME"),
            config_home: absolute("XDG_CONFIG_HOME"),
            current: std::env::current_dir().ok(),
            credentials: absolute("CREDENTIALS_DIRECTORY"),
            program: std::env::current_exe().ok(),
            secret,
        }
    }

    /// Whether it was started by no person, in no directory that anybody chose.
    pub(super) fn unattended(&self) -> bool {
        match self.scope {
            Scope::System | Scope::Unit => true,
            Scope::Person | Scope::Root => false,
        }
    }

    /// Where a person's profiles and configuration are, whether or not there are any yet.
    pub(super) fn own_settings(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".config"));
        self.config_home.clone().or_else(home).map(|config| config.join("stockade"))
    }

    /// The same, with the system's.
    pub(super) fn settings(&self) -> impl Iterator<Item = PathBuf> {
        self.own_settings().into_iter().chain([PathBuf::from("/etc/stockade")])
    }

    pub(super) fn path(&self, name: &'static str) -> Result<Option<PathBuf>, ProfileError> {
        let Some(value) = self.variables.get(name) else { return Ok(None) };
        let path = PathBuf::from(value);
        if path.is_absolute() { Ok(Some(path)) } else { Err(self.wrong(name)) }
    }

    /// A whole number in decimal digits, and nothing around it.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u64>, ProfileError> {
        let Some(value) = self.variables.get(name) else { return Ok(None) };
        let digits = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name)),
        }
    }

    /// The sentence about a variable that can't be used.
    pub(super) fn wrong(&self, name: &'static str) -> ProfileError {
        let value = self.variables.get(name).cloned().unwrap_or_default();
        let row = VARIABLES.into_iter().find(|row| row.name == name).unwrap_or(row(name, "", ""));
        Refusal::new(
            Code::ConfigInvalid,
            format!("the variable {name} is \"{}\" and must be: {}", Bytes::from(value), row.form),
            format!("Correct it, or unset it and write `{}` into the configuration.", row.key),
        )
        .into()
    }
}
