//! Stable codes: one append-only table. A `Refusal` is our "no", a `Fault` is our failure; each
//! carries a code, one sentence and what to do next.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Exit codes of `stockade run` that are not the command's own.
pub mod exit {
    pub const LOST: u8 = 121;
    pub const FAULT: u8 = 122;
    pub const LIMIT: u8 = 123;
    pub const TIMED_OUT: u8 = 124;
    pub const REFUSED: u8 = 125;
    pub const NOT_EXECUTABLE: u8 = 126;
    pub const NOT_FOUND: u8 = 127;
    pub const OOM_KILLED: u8 = 137;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeRow {
    pub code: Code,
    pub id: &'static str,
    pub meaning: &'static str,
    pub exit: u8,
    pub http_status: u16,
    pub retryable: bool,
}

macro_rules! codes {
    ($($variant:ident $id:literal $exit:ident $http:literal $retry:literal $meaning:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum Code { $(#[serde(rename = $id)] $variant,)* }

        impl Code {
            pub const TABLE: &'static [CodeRow] = &[
                $(CodeRow { code: Self::$variant, id: $id, meaning: $meaning, exit: exit::$exit,
                    http_status: $http, retryable: $retry },)*
            ];

            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            pub const fn exit(self) -> u8 {
                match self { $(Self::$variant => exit::$exit,)* }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $http,)* }
            }

            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$variant => $retry,)* }
            }
        }
    };
}

// Append only: never renumber, never reuse. R is a refusal, F a fault.
codes! {
    CommandEmpty         "SK-R001" REFUSED 400 false "the command is empty"
    CommandByte          "SK-R002" REFUSED 400 false "the command holds a NUL or CR byte"
    CommandTooLong       "SK-R003" REFUSED 400 false "an argument, or all of them with the environment, exceeds the kernel's limit"
    ShellNotAllowed      "SK-R004" REFUSED 400 false "the shell or its argument is not in the allowlist"
    EnvironmentRefused   "SK-R005" REFUSED 400 false "an environment name is refused"
    WorkspaceMissing     "SK-R010" REFUSED 400 false "the workspace does not exist or can't be read"
    WorkspaceForbidden   "SK-R011" REFUSED 400 false "the workspace is a system path, the root or the home directory"
    WorkspaceTooLarge    "SK-R012" REFUSED 400 false "the workspace has more entries than deny globs can be checked against"
    CwdOutside           "SK-R013" REFUSED 400 false "the working directory is not inside the sandbox"
    ProfileUnknown       "SK-R020" REFUSED 400 false "no profile of that name"
    ProfileInvalid       "SK-R021" REFUSED 400 false "a profile can't be parsed or contradicts itself"
    ProfileWidens        "SK-R022" REFUSED 403 false "a workspace's profile asks for more than the user's own allows"
    LimitInvalid         "SK-R023" REFUSED 400 false "a limit is zero or beyond the host's"
    LayerUnavailable     "SK-R030" REFUSED 503 false "the host can't enforce a layer the profile requires"
    HostUnsupported      "SK-R031" REFUSED 503 false "this operating system or kernel is not supported"
    InsideSandbox        "SK-R032" REFUSED 503 false "already inside a sandbox"
    SecretInvalid        "SK-R040" REFUSED 400 false "a secret can't be read or is too short to redact"
    OptionInvalid        "SK-R041" REFUSED 400 false "an option's value is invalid"
    PortUnavailable      "SK-R042" REFUSED 409 true  "a port of the host can't be published on: it is taken, reserved or not there"
    RequestInvalid       "SK-R050" REFUSED 400 false "a field of the request is missing, unknown or of the wrong kind"
    NotPermitted         "SK-R051" REFUSED 403 false "the caller may not do this"
    WorkspaceNotAllowed  "SK-R052" REFUSED 403 false "the workspace is not one that the service's configuration allows"
    ExecutionUnknown     "SK-R053" REFUSED 404 false "no execution of that id is on record for this caller"
    ExecutionEnded       "SK-R054" REFUSED 409 false "the execution has ended, or takes no input"
    TooBusy              "SK-R055" REFUSED 503 true  "too many executions run or wait"
    Draining             "SK-R056" REFUSED 503 true  "the service is stopping and takes no more"
    ConfigInvalid        "SK-R060" REFUSED 400 false "the service's configuration can't be used"
    CredentialMissing    "SK-R070" REFUSED 401 false "the request has no valid credential"
    RouteUnknown         "SK-R071" REFUSED 404 false "nothing is at that path"
    MethodUnknown        "SK-R072" REFUSED 405 false "the path does not take that method"
    BodyTooSlow          "SK-R073" REFUSED 408 true  "the request's body did not come in time"
    BodyTooLarge         "SK-R074" REFUSED 413 false "the request's body is too large"
    MediaTypeUnknown     "SK-R075" REFUSED 415 false "the request's body is of another kind than the path takes"
    SecretUnknown        "SK-R076" REFUSED 404 false "no secret of that name"
    InitMissing          "SK-F001" FAULT   500 false "stockade-init is not beside the running executable"
    SpawnFailed          "SK-F002" FAULT   500 true  "the sandbox process could not be created"
    SetupFailed          "SK-F003" FAULT   500 true  "a setup stage failed"
    SuperviseFailed      "SK-F004" FAULT   500 true  "supervision failed"
    OutputFailed         "SK-F005" FAULT   500 true  "the result could not be written"
    HostUnreadable       "SK-F006" FAULT   500 true  "a fact about the host could not be read"
    ProgramMissing       "SK-F007" FAULT   500 false "a program of this install is not beside the running executable"
    ExecutorLost         "SK-F010" FAULT   503 true  "the executor died, or can't be reached"
    RecordFailed         "SK-F011" FAULT   503 true  "the audit log or the record can't be written"
    ServiceUnreachable   "SK-F020" FAULT   503 true  "no service answers on the socket"
    ServiceLost          "SK-F021" LOST    503 true  "the execution, or the way to it, was lost with the service"
    ServiceAnswer        "SK-F022" FAULT   502 false "the service answered something that this program does not know"
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Where in a file the reason stands. Lines and columns count from one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Origin {
    pub file: Bytes,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// We said no, before anything started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    pub code: Code,
    /// One sentence: what, where.
    pub message: String,
    /// What to do next, as a sentence or a command.
    pub remedy: String,
    pub origin: Option<Box<Origin>>,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: remedy.into(), origin: None }
    }

    #[must_use]
    pub fn at(mut self, origin: Origin) -> Self {
        self.origin = Some(Box::new(origin));
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        write!(f, "{} [{}]", self.message, self.code)
    }
}

impl std::error::Error for Refusal {}

/// We failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    pub code: Code,
    pub message: String,
    pub remedy: String,
}

impl Fault {
    pub fn new(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_shaped() {
        let ids: BTreeSet<_> = Code::TABLE.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), Code::TABLE.len());
        for row in Code::TABLE {
            let shape = row.id.strip_prefix("SK-").expect("prefix");
            assert_eq!(shape.starts_with('R'), row.exit == exit::REFUSED, "{}", row.id);
        }
    }
}
