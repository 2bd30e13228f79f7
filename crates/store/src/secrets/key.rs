//! The key that secrets are sealed with: 32 bytes in a file that only its owner can read, made at first use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::error::StoreError;
use crate::{ExecutionId, random};

pub(super) type Bytes = Zeroizing<[u8; 32]>;

/// None where there is no file. Refuses one that others could have read or put there.
pub(super) fn read(path: &Path) -> Result<Option<Bytes>, StoreError> {
    let failed = |source| StoreError::Key { path: path.to_owned(), source };
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    let unsafe_because = |what| Err(StoreError::KeyUnsafe { path: path.to_owned(), what });
    if !metadata.is_file() {
        return unsafe_because("no file");
    }
    if metadata.mode() & 0o077 != 0 {
        return unsafe_because("open to others");
    }
    let owner = metadata.uid();
    if owner != rustix::process::geteuid().as_raw() && owner != 0 {
        return unsafe_because("someone else's");
    }
    if metadata.len() != 32 {
        return unsafe_because("not 32 bytes long");
    }
    let mut bytes = Bytes::new([0; 32]);
    file.read_exact(&mut bytes[..]).map_err(failed)?;
    Ok(Some(bytes))
}

/// Of two processes that make one at the same time, one wins and both read the same.
pub(super) fn make(path: &Path) -> Result<Bytes, StoreError> {
    let bytes = random::<32>()?;
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", ExecutionId::new()));
    let new = PathBuf::from(new);
    let place = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&bytes[..])?;
        file.sync_all()?;
        // Unlike a rename, a link never takes the place of a key that others use already.
        match fs::hard_link(&new, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // On the disk before anything is sealed with it.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        File::open(above.unwrap_or(Path::new(".")))?.sync_all()
    };
    let placed = place();
    // Nothing but a copy of the key: if it can't be removed it is as private as the key itself.
    drop(fs::remove_file(&new));
    placed.map_err(|source| StoreError::Key { path: path.to_owned(), source })?;
    read(path)?.ok_or_else(|| StoreError::KeyMissing { path: path.to_owned() })
}
