//! The anchor: how many entries there are, the first one's hash and the last one's. A chain alone doesn't show
//! that its end was cut off, or that its last line was edited; the anchor beside it does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::AuditError;
use super::line::Hash;

pub(crate) const NAME: &str = "anchor";
const NEW: &str = "anchor.new";
/// Three short fields; more is no anchor.
const LIMIT: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Anchor {
    pub(crate) count: u64,
    pub(crate) first: Hash,
    /// Of the entry numbered `count`.
    pub(crate) head: Hash,
}

impl Anchor {
    pub(crate) const EMPTY: Self = Self { count: 0, first: Hash::ZERO, head: Hash::ZERO };

    /// None where there is none.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, AuditError> {
        let path = directory.join(NAME);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AuditError::Read { path, source }),
        };
        let mut text = Vec::new();
        file.take(LIMIT)
            .read_to_end(&mut text)
            .map_err(|source| AuditError::Read { path: path.clone(), source })?;
        serde_json::from_slice(&text).map(Some).map_err(|source| AuditError::Anchor { path, source })
    }

    /// There is always a whole one: the new one takes the old one's place, and only when it is on the disk.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), AuditError> {
        let (new, path) = (directory.join(NEW), directory.join(NAME));
        let mut text = serde_json::to_vec(self).map_err(|source| AuditError::Encode { source })?;
        text.push(b'\n');
        let replace = || {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(directory)?.sync_all()
        };
        replace().map_err(|source| AuditError::Write { path: path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_comes_back_and_a_torn_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Anchor::read(directory.path()).unwrap(), None);
        let anchor = Anchor { count: 7, first: Hash::of(b"first"), head: Hash::of(b"head") };
        anchor.write(directory.path()).unwrap();
        assert_eq!(Anchor::read(directory.path()).unwrap(), Some(anchor));
        let path = directory.path().join(NAME);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(matches!(Anchor::read(directory.path()), Err(AuditError::Anchor { .. })));
    }
}
