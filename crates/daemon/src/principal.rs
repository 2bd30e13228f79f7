//! Who asks, as a door knows them, and what they may do. Made by a door from a token, a secret or the kernel's
//! word about a socket's other end; never from what a request says.

use std::fmt;

use serde::Serialize;

/// What a caller may do. The words are those of `stockade token create --scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Start executions, and read, feed and stop one's own.
    Execute,
    /// Read one's own executions.
    Read,
    /// Read, feed and stop anybody's, read the audit log, write secrets.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 3] = [Self::Execute, Self::Read, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// `token:ci`, `uid:1000`, `http:secret`: who the records name.
    name: String,
    scopes: Vec<Scope>,
}

impl Principal {
    pub fn new(name: impl Into<String>, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { name: name.into(), scopes: scopes.into_iter().collect() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Whether an execution that `owner` started is this caller's to see.
    pub fn sees(&self, owner: &str) -> bool {
        self.name == owner || self.may(Scope::Admin)
    }
}
