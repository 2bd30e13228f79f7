//! What the executor of a service keeps between executions. Nothing of an execution is in any of it
//! (docs/design/0008); `stockade run` has none.

use std::sync::Arc;
use std::time::Duration;

use crate::cgroup::Groups;
use crate::lingering::Lingering;
use crate::mounts::Watch;
use crate::spawn::{OwnNetworks, Stems};

#[derive(Debug)]
pub struct Kept {
    /// None where init makes its own.
    pub(crate) networks: Option<OwnNetworks>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) stems: Stems,
    pub(crate) lingering: Arc<Lingering>,
    pub(crate) mounts: Watch,
}

impl Kept {
    /// A sandbox could not be built on what is kept.
    pub fn distrust(&self) {
        self.stems.forget_all();
    }

    /// Takes away what would be seen afterwards. Executions have ended before.
    pub fn close(&self, within: Duration) {
        self.lingering.close(within);
    }
}

impl Default for Kept {
    fn default() -> Self {
        let groups = Arc::default();
        Self {
            networks: OwnNetworks::new(),
            stems: Stems::new(&groups),
            groups,
            lingering: Arc::default(),
            mounts: Watch::new(),
        }
    }
}
