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
use read::Reader;
pub use read::{Chunk, Cursor, Piece, READ_LIMIT, Rest};
pub use stockade_frames::{FRAME_LIMIT, Frames, HEADER, Header, Stream};

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
        let create = || {
            make_directory(&self.directory.join(id.shard()))?;
            OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)
        };
        create().map_err(|source| StoreError::Output { path: path.clone(), source })
    }

    /// The frames after the cursor, about `limit` bytes of them, but at least one if there is one.
    pub fn read(&self, id: &ExecutionId, cursor: Cursor, limit: usize) -> Result<Piece, StoreError> {
        self.reader(id)
            .and_then(|reader| reader.read(cursor, limit))
            .map_err(|source| self.failed(id, source))
    }

    /// Says in the file of an execution whose writer died that nothing follows: cuts an unfinished frame off and
    /// appends the end. Only when nobody writes to it any more.
    pub fn seal(&self, id: &ExecutionId) -> Result<(), StoreError> {
        self.append_end(id).map_err(|source| self.failed(id, source))
    }

    fn append_end(&self, id: &ExecutionId) -> io::Result<()> {
        let (position, rest) = self.reader(id)?.end()?;
        if rest == Rest::Ended {
            return Ok(());
        }
        let file = OpenOptions::new().append(true).custom_flags(no_follow()).open(self.path(id))?;
        file.set_len(position.length)?;
        Frames::resume(file, Instant::now(), position).end().map(drop)
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
