//! A resolved profile: every key has a value, and every value knows who wrote it. Nothing here is about
//! one execution or one host yet. Next: `plan`.

use stockade_proto::{Code, Layer, Mode, Origin, Requirement};

use crate::problem::ProfileError;
use crate::text::{At, Place, ProfileText, Spot};
use crate::values::LIMIT_COUNT;
use crate::written::{List, RuleText, SocketWatch};

/// How much of the file system the command sees, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    WorkspaceReadonly,
    WorkspaceRw,
    Inherit,
}

/// How far the network reaches, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    Deny,
    Allowlist,
    Inherit,
}

#[derive(Debug, Clone)]
pub struct Resolved {
    pub name: String,
    pub texts: Vec<ProfileText>,
    pub description: Option<At<String>>,
    pub mode: At<Mode>,
    pub fs: At<View>,
    pub readable: List,
    pub writable: List,
    /// Paths of the trusted base (and whether they are writable) that a workspace's own must stay below.
    pub bounds: Vec<(At<String>, bool)>,
    pub deny: List,
    pub deny_write: List,
    pub toolchains: At<bool>,
    pub network: At<Reach>,
    pub egress_allow: List,
    /// By name, the most specific text's.
    pub egress_sets: Vec<(At<String>, List)>,
    pub watch: At<SocketWatch>,
    /// In the order in which they are asked: a workspace's, then the most specific text's first.
    pub socket_rules: Vec<RuleText>,
    pub env_allow: List,
    pub env_set: Vec<(At<String>, At<String>)>,
    pub shell_program: At<String>,
    pub shell_args: List,
    pub shell_allowed_programs: List,
    pub shell_allowed_args: List,
    /// In the order of `LIMITS`.
    pub limits: [At<Option<u64>>; LIMIT_COUNT],
    /// In the order of `Layer::ALL`.
    pub layers: [At<Requirement>; Layer::ALL.len()],
    /// Values of the built-ins that gave way to what a person wrote.
    pub warnings: Vec<String>,
}

impl Resolved {
    pub fn place(&self, spot: Spot) -> Place {
        self.texts.get(spot.text).map_or(Place::BuiltIn, |text| text.place)
    }

    pub fn origin(&self, spot: Spot) -> Option<Origin> {
        self.texts.get(spot.text).map(|text| text.origin(spot.start))
    }

    pub fn layer(&self, layer: Layer) -> &At<Requirement> {
        let [filesystem, landlock, process, network, seccomp, sockets, limits] = &self.layers;
        match layer {
            Layer::Filesystem => filesystem,
            Layer::Landlock => landlock,
            Layer::Process => process,
            Layer::Network => network,
            Layer::Seccomp => seccomp,
            Layer::Sockets => sockets,
            Layer::Limits => limits,
        }
    }

    pub(crate) fn is_built_in(&self, spot: Spot) -> bool {
        self.place(spot) == Place::BuiltIn
    }

    pub(crate) fn error(
        &self,
        code: Code,
        spot: Spot,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ProfileError {
        match self.texts.get(spot.text) {
            Some(text) => ProfileError::new(code, text, spot, message, remedy),
            None => stockade_proto::Refusal::new(code, message, remedy).into(),
        }
    }

    /// A sentence of a check, once: profiles are checked again after a workspace narrowed them.
    pub(crate) fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// `file:line:column` for sentences.
    pub(crate) fn whereabouts(&self, spot: Spot) -> String {
        self.origin(spot).map_or_else(|| "built-in".to_owned(), |origin| origin.to_string())
    }
}
