//! What executions wrote: one append-only file each, `<shard>/<id>`, of frames. The file is made here and handed to the
//! process that appends; everyone else reads it by a cursor, so nothing is held in memory and nothing is lost
//! with a process.

mod read;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::OFlags;

use crate::ExecutionId;
use crate::error::StoreError;
pub use read::{Chunk, Cursor, Piece, READ_LIMIT, Rest};
use read::{HEADER_BYTES, Reader};
pub use stockade_frames::{FRAME_LIMIT, Frames, HEADER, Header, Stream};

/// An output up to here is read whole where it is looked at anyway: it is one read of the kernel's.
const SHORT: u64 = 16 << 10;

/// An output that nothing follows any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// What it takes on the disk.
    pub bytes: u64,
    /// All of it, if it is short and its writer has ended it.
    pub whole: Option<Piece>,
}

#[derive(Debug, Clone)]
pub struct Output {
    directory: PathBuf,
}

impl Output {
    /// Makes the directory if there is none.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        make_directory(directory)
            .map_err(|source| StoreError::Output { path: directory.to_owned(), source })?;
        Ok(Self { directory: directory.to_owned() })
    }

    fn path(&self, id: &ExecutionId) -> PathBuf {
        self.directory.join(id.shard()).join(id.to_string())
    }

    /// A new empty file that can only be appended to, for [`Frames`] here or in another process.
    pub fn create(&self, id: &ExecutionId) -> Result<File, StoreError> {
        let path = self.path(id);
        let create = || OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let created = match create() {
            // The first of its shard.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(&self.directory.join(id.shard())).and_then(|()| create())
            }
            other => other,
        };
        created.map_err(|source| StoreError::Output { path, source })
    }

    /// The frames after the cursor, about `limit` bytes of them, but at least one if there is one.
    pub fn read(&self, id: &ExecutionId, cursor: Cursor, limit: usize) -> Result<Piece, StoreError> {
        self.reader(id)
            .and_then(|reader| reader.read(cursor, limit))
            .map_err(|source| self.failed(id, source))
    }

    /// Says in the file of an execution whose writer died that nothing follows: cuts an unfinished frame off and
    /// appends the end. Only when nobody writes to it any more.
    pub fn seal(&self, id: &ExecutionId) -> Result<Sealed, StoreError> {
        self.append_end(id).map_err(|source| self.failed(id, source))
    }

    fn append_end(&self, id: &ExecutionId) -> io::Result<Sealed> {
        let reader = self.reader(id)?;
        let bytes = reader.length();
        let (position, rest, whole) = if bytes <= SHORT {
            let piece = reader.read(Cursor::START, READ_LIMIT)?;
            (piece.next.position(), piece.rest, Some(piece))
        } else {
            let (position, rest) = reader.end()?;
            (position, rest, None)
        };
        if rest == Rest::Ended {
            return Ok(Sealed { bytes, whole });
        }
        let file = OpenOptions::new().append(true).custom_flags(no_follow()).open(self.path(id))?;
        file.set_len(position.length)?;
        let mut frames = Frames::resume(file, Instant::now(), position);
        frames.end()?;
        Ok(Sealed { bytes: position.length.saturating_add(HEADER_BYTES), whole: None })
    }

    fn reader(&self, id: &ExecutionId) -> io::Result<Reader> {
        Reader::new(OpenOptions::new().read(true).custom_flags(no_follow()).open(self.path(id))?)
    }

    fn failed(&self, id: &ExecutionId, source: io::Error) -> StoreError {
        StoreError::Output { path: self.path(id), source }
    }

    /// How many bytes it takes; 0 for one that is not there.
    pub(crate) fn size(&self, id: &ExecutionId) -> u64 {
        fs::symlink_metadata(self.path(id)).map_or(0, |metadata| metadata.len())
    }

    /// The file of one that did not become an execution.
    pub fn discard(&self, id: &ExecutionId) -> Result<(), StoreError> {
        self.remove(id)
    }

    /// One that is not there is removed already.
    pub(crate) fn remove(&self, id: &ExecutionId) -> Result<(), StoreError> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(id, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn no_follow() -> i32 {
    // Flags fit: the kernel takes them as an int.
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests;
