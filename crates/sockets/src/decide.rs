//! What is asked of the rules, and who is told. The rules themselves are the policy's.

use std::net::SocketAddr;

use stockade_proto::{Decision, SocketOperation, UnixSocketOp};

/// What a call would reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address<'a> {
    Path {
        /// In the sandbox's view, without symbolic links.
        path: &'a [u8],
        /// Of the socket; for a bind, which makes it, of its directory. Zero where the socket has no file
        /// any more.
        dev: u64,
        ino: u64,
    },
    /// Without the leading NUL; with any that follow. Empty for a bind that leaves the choice to the kernel.
    Abstract(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    pub operation: SocketOperation,
    pub address: Address<'a>,
    /// Bound by this execution.
    pub own: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    pub decision: Decision,
    /// The rule that decided; none is the default.
    pub rule: Option<String>,
}

/// Answers at once and from memory: every call of the tree waits behind it.
pub trait Decide: Send + Sync {
    fn decide(&self, asked: &Asked<'_>) -> Verdict;
}

impl<F: Fn(&Asked<'_>) -> Verdict + Send + Sync> Decide for F {
    fn decide(&self, asked: &Asked<'_>) -> Verdict {
        self(asked)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

/// A call to an address that is not the sandbox's own loopback. Whether it leads anywhere is for the wall around the
/// network to say; this one only sees it pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outward {
    pub operation: SocketOperation,
    pub transport: Transport,
    pub address: SocketAddr,
}

/// Is told of every decision, after the call was answered.
pub trait Witness: Send + Sync {
    fn saw(&self, op: UnixSocketOp);
    /// Of what was not decided here; most have no use for it.
    fn saw_outward(&self, _: Outward) {}
}
