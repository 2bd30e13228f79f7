//! AF_UNIX policy in the plan: which sockets the command may reach, and how the supervisor decides.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Origin};

/// What a call does, whatever its name: `sendto`, `sendmsg` and `sendmmsg` all send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketOperation {
    Connect,
    Bind,
    Listen,
    Send,
}

impl SocketOperation {
    pub const ALL: [Self; 4] = [Self::Connect, Self::Bind, Self::Listen, Self::Send];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Bind => "bind",
            Self::Listen => "listen",
            Self::Send => "send",
        }
    }
}

impl fmt::Display for SocketOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Allow,
    Deny,
    /// Allowed, and marked as worth a look.
    Audit,
}

impl Decision {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Audit => "audit",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketMode {
    Enforce,
    /// Everything is allowed; what would have been denied is recorded.
    Audit,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "of")]
pub enum SocketPattern {
    /// A glob over the resolved path in the sandbox; `*` stays within one component, `**` does not. A
    /// backslash takes a character's meaning away.
    Path(Bytes),
    /// A glob over an abstract name, without its leading NUL or `@`. Abstract names have no components:
    /// `*` crosses every byte.
    Abstract(Bytes),
    /// A socket that this execution bound itself, by path or by abstract name.
    Own,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRule {
    pub name: String,
    pub patterns: Vec<SocketPattern>,
    pub operations: Vec<SocketOperation>,
    pub decision: Decision,
    /// Shown to whoever is denied.
    pub message: Option<String>,
    /// The line of the profile; none for a built-in's.
    pub origin: Option<Box<Origin>>,
}

/// First match wins; no match is a denial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketPlan {
    pub mode: SocketMode,
    pub rules: Vec<SocketRule>,
}

impl SocketPlan {
    /// Whether nothing outside of the execution can be reached, and so no descriptor be left with anybody.
    pub fn stays_inside(&self) -> bool {
        let reaches = |rule: &SocketRule| {
            rule.decision != Decision::Deny
                && rule
                    .operations
                    .iter()
                    .any(|one| !matches!(one, SocketOperation::Bind | SocketOperation::Listen))
                && rule.patterns.iter().any(|pattern| *pattern != SocketPattern::Own)
        };
        self.mode == SocketMode::Enforce && !self.rules.iter().any(reaches)
    }
}
