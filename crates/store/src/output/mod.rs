//! What executions wrote: one append-only file each, `<shard>/<id>`, of frames. The file is made here and handed to the
//! process that appends; everyone else reads it by a cursor, so nothing is held in memory and nothing is lost
//! with a process. What is short when it has ended goes into its record, and the file is used again (`blanks`).

mod blanks;
mod read;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::OFlags;

use crate::ExecutionId;
use crate::error::StoreError;
use blanks::Blanks;
pub use read::{Chunk, Cursor, Piece, READ_LIMIT, Rest};
use read::{HEADER_BYTES, Reader};
pub use stockade_frames::{FRAME_LIMIT, Frames, HEADER, Header, Stream};

/// An output up to here goes into its record: it is one read of the kernel's, and a few pages of the database.
const SHORT: u64 = 16 << 10;
/// No shard, and no id.
const BLANKS: &str = "blank";

/// An output that nothing follows any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// What it takes on the disk.
    pub bytes: u64,
    /// All of it, if it is short and its writer has ended it.
    pub whole: Option<Whole>,
}

/// The whole of a short output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    pub piece: Piece,
    /// The same as it lies in the file.
    pub frames: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Output {
    directory: PathBuf,
    blanks: Arc<Blanks>,
}

impl Output {
    /// Makes the directory if there is none.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let blanks = make_directory(directory).and_then(|()| Blanks::open(directory.join(BLANKS)));
        let blanks = blanks.map_err(|source| StoreError::Output { path: directory.to_owned(), source })?;
        Ok(Self { directory: directory.to_owned(), blanks: Arc::new(blanks) })
    }

    fn path(&self, id: &ExecutionId) -> PathBuf {
        self.directory.join(id.shard()).join(id.to_string())
    }

    /// An empty file that can only be appended to, for [`Frames`] here or in another process.
    pub fn create(&self, id: &ExecutionId) -> Result<File, StoreError> {
        let path = self.path(id);
        let create = || match self.blanks.take(&path) {
            Some(blank) => Ok(blank),
            None => OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path),
        };
        let created = match create() {
            // The first of its shard.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(&self.directory.join(id.shard())).and_then(|()| create())
            }
            other => other,
        };
        created.map_err(|source| StoreError::Output { path, source })
    }

    /// The frames after the cursor, about `limit` bytes of them, but at least one if there is one. `None` where there is
    /// no file: what was written may be on record, for `Executions::output`.
    pub fn read(&self, id: &ExecutionId, cursor: Cursor, limit: usize) -> Result<Option<Piece>, StoreError> {
        let read = self.open_file(id).and_then(|opened| self.read_opened(id, opened, cursor, limit));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some).map_err(|source| self.failed(id, source)),
        }
    }

    fn read_opened(
        &self,
        id: &ExecutionId,
        (file, length): (File, u64),
        cursor: Cursor,
        limit: usize,
    ) -> io::Result<Piece> {
        let piece = Reader::new(file, length).read(cursor, limit);
        // Without its name it may have been another's meanwhile, and an error in it that other's.
        fs::symlink_metadata(self.path(id))?;
        piece
    }

    /// The same of frames that were kept elsewhere.
    pub(crate) fn read_kept(
        &self,
        id: &ExecutionId,
        frames: &[u8],
        cursor: Cursor,
        limit: usize,
    ) -> Result<Piece, StoreError> {
        Reader::of(frames).read(cursor, limit).map_err(|source| self.failed(id, source))
    }

    /// Says in the file of an execution whose writer died that nothing follows: cuts an unfinished frame off and
    /// appends the end. Only when nobody writes to it any more.
    pub fn seal(&self, id: &ExecutionId) -> Result<Sealed, StoreError> {
        self.append_end(id).map_err(|source| self.failed(id, source))
    }

    fn append_end(&self, id: &ExecutionId) -> io::Result<Sealed> {
        let (mut file, bytes) = self.open_file(id)?;
        let (position, rest, whole) = if bytes <= SHORT {
            let mut frames = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
            file.by_ref().take(SHORT).read_to_end(&mut frames)?;
            let piece = Reader::of(&frames).read(Cursor::START, READ_LIMIT)?;
            (piece.next.position(), piece.rest, Some(Whole { piece, frames }))
        } else {
            let (position, rest) = Reader::new(file, bytes).end()?;
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

    fn open_file(&self, id: &ExecutionId) -> io::Result<(File, u64)> {
        let file = OpenOptions::new().read(true).custom_flags(no_follow()).open(self.path(id))?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    /// Its bytes are on record, and nobody writes to it any more: the file is for another. Where that fails it lies there
    /// until its record goes.
    pub(crate) fn use_again(&self, id: &ExecutionId) {
        drop(self.blanks.give_back(&self.path(id)));
    }

    fn failed(&self, id: &ExecutionId, source: io::Error) -> StoreError {
        StoreError::Output { path: self.path(id), source }
    }

    pub(crate) fn missing(&self, id: &ExecutionId) -> StoreError {
        self.failed(id, io::ErrorKind::NotFound.into())
    }

    /// How many bytes it takes; 0 for one that is not there.
    pub(crate) fn size(&self, id: &ExecutionId) -> u64 {
        fs::symlink_metadata(self.path(id)).map_or(0, |metadata| metadata.len())
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
