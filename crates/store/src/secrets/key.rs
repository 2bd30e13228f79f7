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

/// Bits of a mode that make a key somebody else's, too.
const OTHERS: u32 = 0o077;
/// Of a credential: systemd may give it to the service by an access list, which shows as the group's right to read.
const OTHERS_OF_CREDENTIAL: u32 = 0o037;

/// None where there is no file. Refuses one that others could have read or put there.
pub(super) fn read(path: &Path) -> Result<Option<Bytes>, StoreError> {
    read_closed_to(OTHERS, path)
}

/// What systemd hands to the service. One that is not there is as bad as a broken one.
pub(super) fn credential(path: &Path) -> Result<Bytes, StoreError> {
    let broken = |what| StoreError::Credential { path: path.to_owned(), what };
    match read_closed_to(OTHERS_OF_CREDENTIAL, path) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(broken("gone")),
        Err(StoreError::KeyUnsafe { what, .. }) => Err(broken(what)),
        Err(_) => Err(broken("not to be read")),
    }
}

fn read_closed_to(others: u32, path: &Path) -> Result<Option<Bytes>, StoreError> {
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
    if metadata.mode() & others != 0 {
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

/// Beside the key file, and empty: the key is a credential.
fn mark(key_file: &Path) -> PathBuf {
    key_file.with_extension("credential")
}

pub(super) fn mark_elsewhere(key_file: &Path) -> Result<(), StoreError> {
    let path = mark(key_file);
    let made = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    made.map(drop).map_err(|source| StoreError::Key { path, source })
}

/// For a service without a credential, whatever there was before.
pub(super) fn mark_here(key_file: &Path) -> Result<(), StoreError> {
    let path = mark(key_file);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(StoreError::Key { path, source }),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) fn check_not_elsewhere(key_file: &Path) -> Result<(), StoreError> {
    let mark = mark(key_file);
    if mark.exists() { Err(StoreError::KeyElsewhere { mark }) } else { Ok(()) }
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
