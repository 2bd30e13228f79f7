//! Policy: parse → resolve → narrow → plan. Pure: texts, environment and host facts come in as values, a
//! [`stockade_proto::Plan`] or a refusal goes out. Nothing here opens a file or reads a variable; the
//! executor's survey does. Next on the line: the executor spawns the plan.

mod check;
mod command;
mod decide;
mod egress;
mod environment;
mod explain;
mod git;
mod globs;
mod guidance;
mod landlock;
mod mounts;
mod narrow;
mod plan;
mod problem;
mod profile;
mod publish;
mod registries;
mod report;
mod request;
mod resolve;
mod socket_paths;
mod sockets;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod toolchains;
mod values;
mod workspace;
mod written;

pub use command::{MAX_STRING, check_length};
pub use decide::{
    Bound, ClosedRange, EgressRules, EgressVerdict, NameGrant, PatternError, SocketAddress, SocketRules,
    SocketVerdict, closed_range,
};
pub use egress::{egress_plan, wants_registries};
pub use environment::{Action, Row as EnvironmentRow, TABLE as ENVIRONMENT_TABLE};
pub use explain::{explain, explain_profile, show_profile};
pub use git::{GitFacts, GitIdentity, gitdir_of, identity as git_identity, is_worktree_of};
pub use globs::{Glob, Globs};
pub use guidance::{guidance_for_host, guidance_for_socket, host_reason, show_address, socket_reason};
pub use plan::{
    Ground, KEPT_OUTPUT, SANDBOX_ROOT_UID, Separation, bound_output, ground, hold_to_profile, home_inside,
    plan,
};
pub use problem::{Picture, ProfileError, nearest, render};
pub use profile::{Reach, Resolved, View};
pub use publish::publish;
pub use registries::{
    Configured, cargo_dl, cargo_index, cargo_settings, go_settings, host_of, npm_settings, pip_default,
    pip_settings,
};
pub use report::{
    Capacity, Extra, FoundSocket, HostReport, LayerReport, Match, NAME_FILES, NeededPath, NeededSocket,
    Needs, Object, Registry, SYSTEM_PATHS, Shown, SocketObject, SocketPlace, SystemPath, Unavailable,
    needed_paths, needs,
};
pub use request::Caller;
pub use resolve::{BUILT_IN, Sources, is_profile_name, resolve, resolve_text};
pub use sockets::{NameMatcher, SocketGround, name_matcher, needed_sockets, socket_plan};
pub use stockade_proto::{Command, Request, Variable};
pub use target::DEFAULT_PORTS;
pub use text::{At, Place, ProfileText, Spot};
pub use toolchains::{Candidates, candidates, holds_token, is_credential};
pub use values::{LIMITS, LimitRow, Unit, cores, duration, size};
pub use workspace::check_workspace;
pub use written::{List, RuleText, SocketWatch};
