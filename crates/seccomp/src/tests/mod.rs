//! Tests of the compiler and of the filters that ship. Nothing here installs a filter: that needs a
//! process to spend, and is the escape suite's; it issues every [`crate::RuleRow::sample`] for real.

mod equivalence;
mod layout;
mod oracle;
mod parsing;
mod shipped;
mod tables;

use crate::interpret::{self, Returned};
use crate::model::{Action, Call, Instruction};
use crate::rules::RuleSet;

const DEFAULT: &str = include_str!("../../../../resources/seccomp/default.toml");
const SOCKETS: &str = include_str!("../../../../resources/seccomp/sockets.toml");

fn default_set() -> RuleSet {
    RuleSet::parse(DEFAULT, &|_| None).expect("the shipped rules parse")
}

fn sockets_set() -> RuleSet {
    RuleSet::parse(SOCKETS, &|name| (name == "default").then(|| DEFAULT.to_owned())).expect("they extend")
}

fn run(program: &[Instruction], call: &Call) -> Returned {
    interpret::run(program, call).expect("a compiled program is well formed")
}

fn decide(program: &[Instruction], call: &Call) -> Action {
    Action::from_return(run(program, call).value).expect("a compiled program returns actions")
}
