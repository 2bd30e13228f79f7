//! Policy: parse → resolve → narrow → plan. Pure: texts, environment and host facts come in as values, a
//! [`stockade_proto::Plan`] or a refusal goes out. Nothing here opens a file or reads a variable; the
//! executor's survey does. Next on the line: the executor spawns the plan.

mod check;
mod command;
mod environment;
mod explain;
mod git;
mod globs;
mod landlock;
mod mounts;
mod narrow;
mod plan;
mod problem;
mod profile;
mod report;
mod request;
mod resolve;
#[cfg(test)]
mod tests;
mod text;
mod toolchains;
mod values;
mod workspace;
mod written;

pub use command::MAX_STRING;
pub use environment::{Action, Row as EnvironmentRow, TABLE as ENVIRONMENT_TABLE};
pub use explain::{explain, explain_profile, show_profile};
pub use git::{GitFacts, GitIdentity, gitdir_of, identity as git_identity, is_worktree_of};
pub use globs::{Glob, Globs};
pub use plan::{Ground, SANDBOX_ROOT_UID, ground, plan};
pub use problem::{Picture, ProfileError, render};
pub use profile::{Reach, Resolved, View};
pub use report::{
    Capacity, Extra, HostReport, LayerReport, Match, NeededPath, Needs, Object, SYSTEM_PATHS, Shown,
    SystemPath, Unavailable, needs,
};
pub use request::{Caller, Command, Request, Variable};
pub use resolve::{BUILT_IN, Sources, is_profile_name, resolve, resolve_text};
pub use text::{At, Place, ProfileText, Spot};
pub use toolchains::{Candidates, candidates, holds_token, is_credential};
pub use values::{LIMITS, LimitRow, Unit, duration, size};
pub use workspace::check_workspace;
