//! Lays a graph out as instructions, from the last to the first: a jump in classic BPF only goes
//! forward, so every target has its place before the jump to it is written. A conditional jump reaches
//! 255 instructions; beyond that an unconditional one stands in between, or a second copy of the
//! return it wanted.

use thiserror::Error;

use crate::bpf::{
    ALU_AND_K, ARG_SIZE, HALF_SIZE, JMP_JA, JMP_JEQ_K, JMP_JGE_K, JMP_JGT_K, JMP_JSET_K, LD_W_ABS,
    OFFSET_ARCH, OFFSET_ARGS, OFFSET_NUMBER, RET_K,
};
use crate::graph::{Branch, Compare, Graph, NO_MASK, Node, NodeId, Word};
use crate::model::{Action, Instruction};

/// BPF_MAXINSNS: the kernel takes no longer program.
pub(crate) const PROGRAM_MAX: usize = 4096;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum EmitError {
    #[error("the program has {0} instructions and the kernel takes {PROGRAM_MAX}: use fewer rules")]
    TooLong(usize),
}

/// What the accumulator holds: a word, and the bits of it that are left.
type Held = Option<(Word, u32)>;

/// Where a placed node can be entered, counted from the end of the program.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// With nothing known of the accumulator.
    load: usize,
    /// With the node's word in it.
    and: usize,
    /// With the node's word in it, masked.
    test: usize,
}

struct Layout<'a> {
    graph: &'a Graph,
    entries: Vec<Option<Entry>>,
    places: Vec<Option<Place>>,
    reversed: Vec<Instruction>,
}

pub(crate) fn emit(graph: &Graph, root: NodeId) -> Result<Vec<Instruction>, EmitError> {
    let mut layout = Layout {
        graph,
        entries: entries(graph, root),
        places: vec![None; graph.nodes().len()],
        reversed: Vec::new(),
    };
    layout.place(root);
    let mut program = layout.reversed;
    program.reverse();
    if program.len() > PROGRAM_MAX {
        return Err(EmitError::TooLong(program.len()));
    }
    Ok(program)
}

/// For each node the earliest entry that some path takes; none for a node that no path reaches. Parents
/// stand after their children, so one pass from the back meets every parent first.
fn entries(graph: &Graph, root: NodeId) -> Vec<Option<Entry>> {
    let mut entries = vec![None; graph.nodes().len()];
    entries[root.0] = Some(Entry::Load);
    for (at, node) in graph.nodes().iter().enumerate().rev() {
        let Node::Branch(parent) = node else { continue };
        if entries[at].is_none() {
            continue;
        }
        for child in [parent.yes, parent.no] {
            if let Node::Branch(branch) = graph.nodes()[child.0] {
                entries[child.0] = entries[child.0].max(Some(entry(&branch, after(parent))));
            }
        }
    }
    entries
}

/// How much of a node has to run, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Test,
    And,
    Load,
}

fn entry(branch: &Branch, held: Held) -> Entry {
    match held {
        Some((word, mask)) if word == branch.word && mask == branch.mask => Entry::Test,
        Some((word, NO_MASK)) if word == branch.word => Entry::And,
        Some(_) | None => Entry::Load,
    }
}

const fn after(branch: &Branch) -> Held {
    Some((branch.word, branch.mask))
}

impl Layout<'_> {
    fn place(&mut self, id: NodeId) -> Place {
        if let Some(place) = self.places[id.0] {
            return place;
        }
        match self.graph.nodes()[id.0] {
            Node::Return(action) => self.place_return(id, action),
            Node::Branch(branch) => self.place_branch(id, &branch),
        }
    }

    /// A second return of the same action takes the place of the first, which is further away.
    fn place_return(&mut self, id: NodeId, action: Action) -> Place {
        let at = self.push(RET_K, 0, 0, action.to_return());
        *self.places[id.0].insert(Place { load: at, and: at, test: at })
    }

    fn place_branch(&mut self, id: NodeId, branch: &Branch) -> Place {
        self.place(branch.yes);
        self.place(branch.no);
        let held = after(branch);
        let (mut yes, mut no) = (self.target(branch.yes, held), self.target(branch.no, held));
        // Each island moves the branch one further away, so both are looked at again; two islands
        // are next to the branch, so this ends.
        let (jt, jf) = loop {
            match (self.distance(yes), self.distance(no)) {
                (Some(jt), Some(jf)) => break (jt, jf),
                (None, _) => yes = self.island(branch.yes, yes),
                (Some(_), None) => no = self.island(branch.no, no),
            }
        };
        let code = match branch.compare {
            Compare::Equal => JMP_JEQ_K,
            Compare::Greater => JMP_JGT_K,
            Compare::GreaterOrEqual => JMP_JGE_K,
            Compare::AnyBit => JMP_JSET_K,
        };
        let test = self.push(code, jt, jf, branch.k);
        let first = self.entries[id.0];
        let and = if branch.mask != NO_MASK && first >= Some(Entry::And) {
            self.push(ALU_AND_K, 0, 0, branch.mask)
        } else {
            test
        };
        let load =
            if first == Some(Entry::Load) { self.push(LD_W_ABS, 0, 0, offset(branch.word)) } else { and };
        *self.places[id.0].insert(Place { load, and, test })
    }

    /// Where to jump to for a child, with that in the accumulator.
    fn target(&mut self, child: NodeId, held: Held) -> usize {
        let place = self.place(child);
        match self.graph.nodes()[child.0] {
            Node::Return(_) => place.test,
            Node::Branch(branch) => match entry(&branch, held) {
                Entry::Load => place.load,
                Entry::And => place.and,
                Entry::Test => place.test,
            },
        }
    }

    /// The jump from an instruction pushed next, if it reaches.
    fn distance(&self, target: usize) -> Option<u8> {
        u8::try_from(self.reversed.len() - target - 1).ok()
    }

    fn island(&mut self, child: NodeId, target: usize) -> usize {
        match self.graph.nodes()[child.0] {
            Node::Return(action) => self.place_return(child, action).test,
            Node::Branch(_) => {
                // A distance that does not fit 32 bits is far past `PROGRAM_MAX`, which refuses it.
                let k = u32::try_from(self.reversed.len() - target - 1).unwrap_or(u32::MAX);
                self.push(JMP_JA, 0, 0, k)
            }
        }
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> usize {
        self.reversed.push(Instruction { code, jt, jf, k });
        self.reversed.len() - 1
    }
}

fn offset(word: Word) -> u32 {
    let arg = |index: u8| OFFSET_ARGS + ARG_SIZE * u32::from(index);
    match word {
        Word::Arch => OFFSET_ARCH,
        Word::Number => OFFSET_NUMBER,
        Word::Low(index) => arg(index),
        Word::High(index) => arg(index) + HALF_SIZE,
    }
}
