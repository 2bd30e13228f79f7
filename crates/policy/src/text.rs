//! Profile texts and places in them. A value keeps the spot where it was written, so that every later
//! refusal can point at it. Lines are counted only when one is shown. Next: `written`.

use std::borrow::Cow;

use stockade_proto::{Bytes, Origin};

/// Where a profile text lies, least trusted first: a workspace belongs to whoever wrote the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Workspace,
    User,
    System,
    BuiltIn,
}

impl Place {
    pub const ALL: [Self; 4] = [Self::Workspace, Self::User, Self::System, Self::BuiltIn];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::User => "user",
            Self::System => "system",
            Self::BuiltIn => "built-in",
        }
    }

    /// The next more trusted place.
    pub(crate) const fn above(self) -> Option<Self> {
        match self {
            Self::Workspace => Some(Self::User),
            Self::User => Some(Self::System),
            Self::System => Some(Self::BuiltIn),
            Self::BuiltIn => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileText {
    pub place: Place,
    pub name: String,
    /// The path as people know it; `built-in:NAME` for ours.
    pub file: Bytes,
    pub text: Cow<'static, str>,
}

impl ProfileText {
    pub fn origin(&self, start: usize) -> Origin {
        let before = self.text.get(..start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Origin {
            file: self.file.clone(),
            line: count(before.bytes().filter(|byte| *byte == b'\n').count()).saturating_add(1),
            column: count(before[line_start..].chars().count()).saturating_add(1),
        }
    }
}

/// A byte range of one of the texts a profile was resolved from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    pub text: usize,
    pub start: usize,
    pub end: usize,
}

/// A value and the spot it was written at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    pub spot: Spot,
}

impl<T> At<T> {
    pub(crate) const fn new(value: T, spot: Spot) -> Self {
        Self { value, spot }
    }
}
