//! The filter as a graph of tests, before it has addresses. Equal nodes are one node, so that two calls
//! with the same conditions share their code. Children always stand before their parents.
//! Lowers conditions to 32-bit tests; `tree.rs` builds the search over numbers on top, `emit.rs` lays
//! the graph out as instructions.

use std::collections::HashMap;

use crate::model::{Action, Condition, Test, Width};
use crate::rules::Rule;

/// What a test looks at: one 32-bit word of `struct seccomp_data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    Arch,
    Number,
    Low(u8),
    High(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Branch {
    pub(crate) word: Word,
    /// Bits that are kept before comparing; all of them where there is no mask.
    pub(crate) mask: u32,
    pub(crate) compare: Compare,
    pub(crate) k: u32,
    pub(crate) yes: NodeId,
    pub(crate) no: NodeId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Return(Action),
    Branch(Branch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) usize);

#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    known: HashMap<Node, NodeId>,
}

pub(crate) const NO_MASK: u32 = u32::MAX;

impl Graph {
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn action(&mut self, action: Action) -> NodeId {
        self.intern(Node::Return(action))
    }

    pub(crate) fn branch(&mut self, branch: Branch) -> NodeId {
        if branch.yes == branch.no { branch.yes } else { self.intern(Node::Branch(branch)) }
    }

    fn intern(&mut self, node: Node) -> NodeId {
        let next = NodeId(self.nodes.len());
        let id = *self.known.entry(node).or_insert(next);
        if id == next {
            self.nodes.push(node);
        }
        id
    }

    /// The rules of one call, tried in order, with `default` after the last.
    pub(crate) fn rules(&mut self, rules: &[&Rule], default: NodeId) -> NodeId {
        let mut next = default;
        for rule in rules.iter().rev() {
            let mut node = self.action(rule.action);
            for condition in rule.conditions.iter().rev() {
                node = self.condition(condition, node, next);
            }
            next = node;
        }
        next
    }

    fn condition(&mut self, condition: &Condition, yes: NodeId, no: NodeId) -> NodeId {
        let lower = Lower { arg: condition.arg, width: condition.width };
        match condition.test {
            Test::Equal(value) => lower.equal(self, (u64::MAX, value), yes, no),
            Test::NotEqual(value) => lower.equal(self, (u64::MAX, value), no, yes),
            Test::MaskedEqual { mask, value } => lower.equal(self, (mask, value), yes, no),
            Test::MaskedNotEqual { mask, value } => lower.equal(self, (mask, value), no, yes),
            Test::MaskedNonzero { mask } => lower.any_bit(self, mask, yes, no),
            Test::Greater(value) => lower.order(self, (Compare::Greater, value), yes, no),
            Test::LessOrEqual(value) => lower.order(self, (Compare::Greater, value), no, yes),
            Test::GreaterOrEqual(value) => lower.order(self, (Compare::GreaterOrEqual, value), yes, no),
            Test::Less(value) => lower.order(self, (Compare::GreaterOrEqual, value), no, yes),
        }
    }
}

/// BPF compares 32 bits at a time; a 64-bit test is one test per half.
struct Lower {
    arg: u8,
    width: Width,
}

const fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

const fn high(value: u64) -> u32 {
    low(value >> 32)
}

impl Lower {
    fn equal(&self, graph: &mut Graph, (mask, value): (u64, u64), yes: NodeId, no: NodeId) -> NodeId {
        let half = |graph: &mut Graph, word, mask, k, yes| {
            if mask == 0 {
                return if k == 0 { yes } else { no };
            }
            graph.branch(Branch { word, mask, compare: Compare::Equal, k, yes, no })
        };
        let node = half(graph, Word::Low(self.arg), low(mask), low(value), yes);
        match self.width {
            Width::Bits32 => node,
            Width::Bits64 => half(graph, Word::High(self.arg), high(mask), high(value), node),
        }
    }

    fn any_bit(&self, graph: &mut Graph, mask: u64, yes: NodeId, no: NodeId) -> NodeId {
        let half = |graph: &mut Graph, word, k, no| {
            if k == 0 {
                return no;
            }
            graph.branch(Branch { word, mask: NO_MASK, compare: Compare::AnyBit, k, yes, no })
        };
        let node = half(graph, Word::Low(self.arg), low(mask), no);
        match self.width {
            Width::Bits32 => node,
            Width::Bits64 => half(graph, Word::High(self.arg), high(mask), node),
        }
    }

    fn order(&self, graph: &mut Graph, (compare, value): (Compare, u64), yes: NodeId, no: NodeId) -> NodeId {
        let mut test =
            |word, compare, k, yes, no| graph.branch(Branch { word, mask: NO_MASK, compare, k, yes, no });
        let node = test(Word::Low(self.arg), compare, low(value), yes, no);
        match self.width {
            Width::Bits32 => node,
            Width::Bits64 => {
                let upper = Word::High(self.arg);
                let same = test(upper, Compare::Equal, high(value), node, no);
                test(upper, Compare::Greater, high(value), yes, same)
            }
        }
    }
}
