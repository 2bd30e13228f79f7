//! Who asks. Values only.

use stockade_proto::Bytes;

/// The process that asks, as the kernel and its environment know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// From the passwd file.
    pub user: Option<Bytes>,
    /// Absolute; `/` where there is none.
    pub home: Bytes,
    pub env: Vec<(Bytes, Bytes)>,
}

impl Caller {
    pub fn variable(&self, name: &str) -> Option<&Bytes> {
        self.env.iter().find(|(known, _)| known.as_slice() == name.as_bytes()).map(|(_, value)| value)
    }
}
