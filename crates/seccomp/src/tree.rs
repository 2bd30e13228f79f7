//! The search over call numbers: cuts the numbers into runs with one decision each and builds the
//! cheapest binary search tree over them. When a filter is installed, the kernel runs it once for
//! every call number to learn which calls it always allows, so the cost of a tree is the sum of the
//! depths of all numbers; calls named as frequent count for more.

use std::collections::BTreeMap;

use crate::graph::{Branch, Compare, Graph, NO_MASK, NodeId, Word};

/// What one more instruction weighs against one more test on the path of one number. The kernel checks,
/// translates and compiles each instruction at every installation: measured, 0.3 µs against 5 ns.
const NODE_WEIGHT: u64 = 64;

/// What one frequent call weighs against a call that is only looked at when the filter is installed:
/// four instructions more or less are worth a step on its path.
const FREQUENT_WEIGHT: u64 = 256;

/// The most single numbers that are compared one after the other where a tree would need more
/// instructions. Small, so that no path becomes a list.
const CHAIN_MAX: usize = 3;

/// Numbers from `start` up to the next run's start, all with one decision.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: u32,
    node: NodeId,
    weight: u64,
}

/// The decision for every number: `decisions` for those it names, `elsewhere` for the rest.
pub(crate) fn search(
    graph: &mut Graph,
    decisions: &BTreeMap<u32, NodeId>,
    elsewhere: NodeId,
    frequent: &[u32],
) -> NodeId {
    let runs = runs(decisions, elsewhere, frequent);
    let plan = Plan::new(&runs);
    plan.build(graph, &runs, 0, runs.len() - 1)
}

fn runs(decisions: &BTreeMap<u32, NodeId>, elsewhere: NodeId, frequent: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut add = |start: u32, node: NodeId, weight: u64| match runs.last_mut() {
        Some(last) if last.node == node => last.weight += weight,
        _ => runs.push(Run { start, node, weight }),
    };
    let mut next = 0;
    for (&number, &node) in decisions {
        if number > next {
            add(next, elsewhere, u64::from(number - next));
        }
        add(number, node, if frequent.contains(&number) { FREQUENT_WEIGHT } else { 1 });
        next = number.saturating_add(1);
    }
    add(next, elsewhere, 1);
    runs
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// One run: no test.
    Leaf,
    /// The runs from this one on are to the right.
    Split(usize),
    /// Every second run is a single number, and the runs between them agree: compare with each number.
    Chain,
}

/// The cheapest tree for every stretch of runs, by dynamic programming.
struct Plan {
    count: usize,
    steps: Vec<Step>,
}

impl Plan {
    fn new(runs: &[Run]) -> Self {
        let count = runs.len();
        let mut cost = vec![0_u64; count * count];
        let mut steps = vec![Step::Leaf; count * count];
        let mut sums = vec![0_u64];
        for run in runs {
            sums.push(sums.last().copied().unwrap_or(0) + run.weight);
        }
        for length in 2..=count {
            for first in 0..=count - length {
                let last = first + length - 1;
                let mut best = (u64::MAX, Step::Leaf);
                for split in first + 1..=last {
                    let both = cost[first * count + split - 1] + cost[split * count + last];
                    if both < best.0 {
                        best = (both, Step::Split(split));
                    }
                }
                best.0 += sums[last + 1] - sums[first] + NODE_WEIGHT;
                if let Some(chain) = chain_cost(runs, first, last).filter(|chain| *chain < best.0) {
                    best = (chain, Step::Chain);
                }
                (cost[first * count + last], steps[first * count + last]) = best;
            }
        }
        Self { count, steps }
    }

    fn build(&self, graph: &mut Graph, runs: &[Run], first: usize, last: usize) -> NodeId {
        let test = |compare, k, yes, no| Branch { word: Word::Number, mask: NO_MASK, compare, k, yes, no };
        match self.steps[first * self.count + last] {
            Step::Leaf => runs[first].node,
            Step::Chain => {
                runs[first..last].iter().skip(1).step_by(2).rev().fold(runs[last].node, |no, single| {
                    graph.branch(test(Compare::Equal, single.start, single.node, no))
                })
            }
            Step::Split(split) => {
                let no = self.build(graph, runs, first, split - 1);
                let yes = self.build(graph, runs, split, last);
                let branch = test(Compare::GreaterOrEqual, runs[split].start, yes, no);
                graph.branch(branch)
            }
        }
    }
}

/// The cost of comparing with each single number in turn, if these runs allow it.
fn chain_cost(runs: &[Run], first: usize, last: usize) -> Option<u64> {
    let singles = (last - first) / 2;
    if !(last - first).is_multiple_of(2) || singles > CHAIN_MAX {
        return None;
    }
    let mut cost = 0;
    let mut depth = 0;
    for at in (first + 1..last).step_by(2) {
        let alone = runs[at + 1].start - runs[at].start == 1;
        if !alone || runs[at - 1].node != runs[at + 1].node {
            return None;
        }
        depth += 1;
        cost += NODE_WEIGHT + depth * runs[at].weight;
    }
    let between: u64 = runs[first..=last].iter().step_by(2).map(|run| run.weight).sum();
    Some(cost + depth * between)
}
