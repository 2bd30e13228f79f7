//! Every word that crosses a boundary: plans, outcomes, refusals, codes. Plain values with serde on
//! them; nothing here opens, runs or decides anything. The planner (`stockade-policy`) makes a
//! [`Plan`], the executor turns it into an [`ExecutionResult`].

mod bytes;
mod code;
pub mod door;
mod egress;
mod event;
pub mod install;
mod layer;
pub mod link;
mod outcome;
mod path;
mod plan;
mod request;
mod socket;

pub use bytes::Bytes;
pub use code::{Code, CodeRow, Fault, Origin, Refusal, exit};
pub use egress::{EgressPlan, Publish, PublishedPort, Target, TargetHost};
pub use event::{Blocked, Event, HostTraffic, NetworkKind, NetworkOp, UnixSocketOp, Unreached};
pub use layer::{Enforcement, Layer, Layers, Requirement, State};
pub use outcome::{Cancel, ExecutionResult, LimitKind, Outcome, StreamTotals, Usage};
pub use path::is_plain;
pub use plan::{
    Access, ArgvCommand, Bind, Identity, LandlockPlan, LandlockRule, Limits, Mode, Mount, MountKind, Network,
    Placeholder, PlaceholderKind, Plan, Source, Stdin, Stdio,
};
pub use request::{Command, Request, Variable};
pub use socket::{Decision, SocketMode, SocketOperation, SocketPattern, SocketPlan, SocketRule};
