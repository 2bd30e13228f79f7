//! The Aho–Corasick automaton over all forms of all secrets: one state per byte of a form, linear in
//! the input whatever the input is. Our own, because a stream needs to know how deep a state is (how
//! many bytes to hold) and because every copy of a secret must be wiped on drop. `known.rs` drives it.

use zeroize::Zeroize;

use crate::secret::append_wiped;

pub(crate) type State = u32;
pub(crate) const ROOT: State = 0;

/// 32 bytes each, so 128 MiB at the worst; ten ordinary keys need some 30,000.
pub(crate) const MAX_STATES: usize = 4 << 20;

/// Which secret a form belongs to: an index into the redactor's markers.
pub(crate) type Owner = u32;

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    byte: u8,
    terminal: bool,
    owner: Owner,
    child: State,
    sibling: State,
    fail: State,
    /// As `fail`, past the states that would refuse the next byte for the same reason.
    retry: State,
    /// The nearest state on the failure path, this one included, where a form ends; ROOT if none.
    /// It is the longest form that ends here, and it covers all shorter ones.
    ends: State,
    depth: u32,
}

impl Zeroize for Node {
    fn zeroize(&mut self) {
        self.byte.zeroize();
        self.owner.zeroize();
        let links = [&mut self.child, &mut self.sibling, &mut self.fail, &mut self.retry, &mut self.ends];
        for link in links.into_iter().chain([&mut self.depth]) {
            link.zeroize();
        }
    }
}

pub(crate) struct Trie {
    nodes: Vec<Node>,
    first: [State; 256],
}

/// The automaton would exceed [`MAX_STATES`].
pub(crate) struct Full;

impl Trie {
    pub(crate) fn new() -> Self {
        Self { nodes: vec![Node::default()], first: [ROOT; 256] }
    }

    /// A form that two secrets share stays with the first.
    pub(crate) fn insert(&mut self, form: &[u8], owner: Owner) -> Result<(), Full> {
        let mut state = ROOT;
        for &byte in form {
            state = match self.child(state, byte) {
                ROOT => self.grow(state, byte)?,
                next => next,
            };
        }
        let node = &mut self.nodes[state as usize];
        if !node.terminal {
            node.terminal = true;
            node.owner = owner;
        }
        Ok(())
    }

    fn grow(&mut self, parent: State, byte: u8) -> Result<State, Full> {
        if self.nodes.len() >= MAX_STATES {
            return Err(Full);
        }
        let new = State::try_from(self.nodes.len()).map_err(|_| Full)?;
        let up = self.nodes[parent as usize];
        let node = Node { byte, sibling: up.child, depth: up.depth + 1, ..Node::default() };
        append_wiped(&mut self.nodes, &[node]);
        if parent == ROOT {
            self.first[usize::from(byte)] = new;
        }
        self.nodes[parent as usize].child = new;
        Ok(new)
    }

    /// Sets the failure links, shallow states first, after the last `insert`.
    pub(crate) fn link(&mut self) {
        let mut order: Vec<State> = Vec::with_capacity(self.nodes.len());
        order.extend(self.children(ROOT));
        let mut at = 0;
        while let Some(&state) = order.get(at) {
            at += 1;
            let node = self.nodes[state as usize];
            let ends = if node.terminal { state } else { self.nodes[node.fail as usize].ends };
            self.nodes[state as usize].ends = ends;
            let back = self.nodes[node.fail as usize];
            let same = self.only_child(node).is_some_and(|byte| self.only_child(back) == Some(byte));
            let retry = if same && node.fail != ROOT { back.retry } else { node.fail };
            self.nodes[state as usize].retry = retry;
            let mut child = node.child;
            while child != ROOT {
                let Node { byte, sibling, .. } = self.nodes[child as usize];
                self.nodes[child as usize].fail = self.step(node.fail, byte);
                order.push(child);
                child = sibling;
            }
        }
        order.zeroize();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    fn children(&self, state: State) -> impl Iterator<Item = State> {
        let mut child = self.nodes[state as usize].child;
        std::iter::from_fn(move || {
            let found = (child != ROOT).then_some(child)?;
            child = self.nodes[child as usize].sibling;
            Some(found)
        })
    }

    fn child(&self, state: State, byte: u8) -> State {
        if state == ROOT {
            return self.first[usize::from(byte)];
        }
        let mut child = self.nodes[state as usize].child;
        while child != ROOT && self.nodes[child as usize].byte != byte {
            child = self.nodes[child as usize].sibling;
        }
        child
    }

    pub(crate) fn step(&self, mut state: State, byte: u8) -> State {
        loop {
            let next = self.child(state, byte);
            if next != ROOT || state == ROOT {
                return next;
            }
            state = self.nodes[state as usize].retry;
        }
    }

    /// The byte that alone leads on, if it is one.
    fn only_child(&self, node: Node) -> Option<u8> {
        let child = &self.nodes[node.child as usize];
        (node.child != ROOT && child.sibling == ROOT).then_some(child.byte)
    }

    /// How many of the last bytes may be the beginning of a form.
    pub(crate) fn depth(&self, state: State) -> usize {
        self.nodes[state as usize].depth as usize
    }

    /// As `depth`, less what can't grow into a (longer) form any more.
    pub(crate) fn open_depth(&self, mut state: State) -> usize {
        while state != ROOT && self.nodes[state as usize].child == ROOT {
            state = self.nodes[state as usize].fail;
        }
        self.depth(state)
    }

    /// The longest form that ends in this state: its length and owner.
    pub(crate) fn ended(&self, state: State) -> Option<(usize, Owner)> {
        match self.nodes[state as usize].ends {
            ROOT => None,
            end => Some((self.depth(end), self.nodes[end as usize].owner)),
        }
    }

    pub(crate) fn fail(&self, state: State) -> State {
        self.nodes[state as usize].fail
    }

    /// The owner of the shortest form that begins as this state does and has at most `longest` bytes.
    pub(crate) fn grows_into(&self, state: State, longest: usize) -> Option<Owner> {
        let mut best: Option<(u32, Owner)> = None;
        let mut stack = vec![state];
        while let Some(state) = stack.pop() {
            let node = &self.nodes[state as usize];
            if node.depth as usize > longest {
                continue;
            }
            if node.terminal {
                let this = (node.depth, node.owner);
                best = Some(best.map_or(this, |best| best.min(this)));
            } else {
                stack.extend(self.children(state));
            }
        }
        best.map(|(_, owner)| owner)
    }

    /// Every path of exactly `depth` bytes and its state.
    pub(crate) fn prefixes(&self, depth: usize, visit: &mut dyn FnMut(&[u8], State)) {
        let mut path = zeroize::Zeroizing::new(vec![0; depth]);
        let mut stack: Vec<State> = self.children(ROOT).collect();
        while let Some(state) = stack.pop() {
            let node = self.nodes[state as usize];
            path[node.depth as usize - 1] = node.byte;
            if node.depth as usize == depth {
                visit(&path, state);
            } else {
                stack.extend(self.children(state));
            }
        }
        stack.zeroize();
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        self.nodes.zeroize();
        self.first.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trie(forms: &[&str]) -> Trie {
        let mut trie = Trie::new();
        for (owner, form) in (0..).zip(forms) {
            assert!(trie.insert(form.as_bytes(), owner).is_ok());
        }
        trie.link();
        trie
    }

    fn walk(trie: &Trie, text: &str) -> State {
        text.bytes().fold(ROOT, |state, b| trie.step(state, b))
    }

    #[test]
    fn reports_the_longest_form_that_ends_here() {
        let trie = trie(&["she", "he", "hers", "xshe"]);
        assert_eq!(trie.ended(walk(&trie, "ushe")), Some((3, 0)));
        assert_eq!(trie.ended(walk(&trie, "xshe")), Some((4, 3)));
        assert_eq!(trie.ended(walk(&trie, "ahe")), Some((2, 1)));
        assert_eq!(trie.ended(walk(&trie, "ushers")), Some((4, 2)));
        assert_eq!(trie.ended(walk(&trie, "user")), None);
    }

    #[test]
    fn depth_counts_what_may_still_grow() {
        let trie = trie(&["aaaa", "abcd"]);
        assert_eq!(trie.depth(walk(&trie, "xaaaa")), 4);
        assert_eq!(trie.open_depth(walk(&trie, "xaaaa")), 3);
        assert_eq!(trie.open_depth(walk(&trie, "abcd")), 0);
        assert_eq!(trie.open_depth(walk(&trie, "abc")), 3);
    }

    #[test]
    fn prefixes_are_all_paths() {
        let trie = trie(&["abcd", "abef", "xbcd"]);
        let mut seen = Vec::new();
        trie.prefixes(3, &mut |path, state| seen.push((path.to_vec(), trie.depth(state))));
        seen.sort();
        assert_eq!(seen, [(b"abc".to_vec(), 3), (b"abe".to_vec(), 3), (b"xbc".to_vec(), 3)]);
    }
}
