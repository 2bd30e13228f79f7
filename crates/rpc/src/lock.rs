//! Who may set a socket up, or take it away: one process at a time. The lock is a file beside the socket that
//! only its owner can open, since a lock on the directory could be held by anyone who may read it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// It is held for a few system calls.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// `WouldBlock` where another keeps it.
    pub(crate) fn take(socket: &Path) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        for _ in 0..TRIES {
            let file = open(&path)?;
            match file.try_lock() {
                // The one before us removes the file that it locked: ours must be the one that is there.
                Ok(()) if is_at(&file, &path) => return Ok(Self { path, _file: file }),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            // A file that stays is locked by nobody, which is as good.
            Ok(()) | Err(_) => {}
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nothing_stays() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let lock = Lock::take(&socket).unwrap();
        assert_eq!(Lock::take(&socket).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        drop(Lock::take(&socket).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn many_threads_never_hold_it_together() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        // A thread may be out of luck; none may be in with another.
                        let Ok(_lock) = Lock::take(&socket) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
