//! The compiler: a [`RuleSet`] to a classic BPF program. Runs in build.rs and in the tests, never in a
//! shipped binary. The shape is always the same: architecture first, then a search tree over the
//! number, then the conditions of that call.

use std::collections::BTreeMap;

use crate::emit::{EmitError, emit};
use crate::graph::{Branch, Compare, Graph, NO_MASK, NodeId, Word};
use crate::model::{AUDIT_ARCH_X86_64, Instruction};
use crate::rules::RuleSet;
use crate::{syscalls, tree};

pub(crate) fn compile(set: &RuleSet) -> Result<Vec<Instruction>, EmitError> {
    let mut graph = Graph::default();
    let default = graph.action(set.default);
    let unknown = graph.action(set.unknown);
    let foreign = graph.action(set.foreign);
    let mut decisions: BTreeMap<u32, NodeId> =
        syscalls::TABLE.iter().map(|(_, number)| (*number, default)).collect();
    for (number, rules) in set.by_syscall() {
        decisions.insert(number, graph.rules(&rules, default));
    }
    let native = tree::search(&mut graph, &decisions, unknown, &set.frequent);
    // Numbers mean something else on another architecture, so nothing may look at one before this.
    let root = graph.branch(Branch {
        word: Word::Arch,
        mask: NO_MASK,
        compare: Compare::Equal,
        k: AUDIT_ARCH_X86_64,
        yes: native,
        no: foreign,
    });
    emit(&graph, root)
}
