//! What the executor of a service keeps between executions. Nothing of an execution is in any of it
//! (docs/design/0008); `stockade run` has none.

use std::sync::Arc;

use crate::cgroup::Groups;
use crate::spawn::{OwnNetworks, Stems};

#[derive(Debug)]
pub struct Kept {
    /// None where init makes its own.
    pub(crate) networks: Option<OwnNetworks>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) stems: Stems,
}

impl Default for Kept {
    fn default() -> Self {
        Self { networks: OwnNetworks::new(), groups: Arc::default(), stems: Stems::default() }
    }
}
