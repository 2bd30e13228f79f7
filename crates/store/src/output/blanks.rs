//! Empty files that wait for their next execution. A file that is made anew for each one costs more than it seems: a file
//! system without a journal passes by every inode that was freed within the last minutes, each time (0.2 ms for 4,000
//! of them on ext4), and what lies in it goes to the disk although nobody reads it again. So a file whose bytes went into the
//! record is emptied and used again.
//!
//! A reader that has such a file open may read another execution's output in it. So a file first loses its name, which
//! nothing gets again, and a reader that has read looks whether the name is still there: if so, what it read was its own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{make_directory, no_follow};

/// As many as run at once in most services. A crowd's others are removed.
const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Blanks {
    directory: PathBuf,
    /// Open for appending, and empty.
    waiting: Mutex<Vec<Blank>>,
    named: AtomicU64,
}

#[derive(Debug)]
struct Blank {
    file: File,
    path: PathBuf,
}

impl Blanks {
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        make_directory(&directory)?;
        for entry in fs::read_dir(&directory)? {
            // An earlier daemon's: nobody knows whether somebody writes there. What can't be removed is in nobody's way.
            drop(fs::remove_file(entry?.path()));
        }
        Ok(Self { directory, waiting: Mutex::default(), named: AtomicU64::new(0) })
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Blank>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them as the file of that name, which nothing has yet. `None` where none waits, or it can't be that: a file can be
    /// made for every name.
    pub(super) fn take(&self, name: &Path) -> Option<File> {
        let blank = self.waiting().pop()?;
        // Whoever wrote to it last has closed it; if that is not so, it is not given to another.
        let is_empty = blank.file.metadata().is_ok_and(|metadata| metadata.len() == 0);
        match if is_empty { put(&blank.path, name) } else { Ok(Moved::Not) } {
            Ok(Moved::There) => return Some(blank.file),
            // There is no such directory yet, or the blank itself is gone: then it is not tried again.
            Err(error) if error.kind() == io::ErrorKind::NotFound && blank.path.exists() => {
                self.waiting().push(blank);
            }
            // What can't be removed is at the next start.
            Ok(Moved::Not) | Err(_) => drop(fs::remove_file(blank.path)),
        }
        None
    }

    /// The file of that name is nobody's any more: its bytes are elsewhere. It is emptied and waits; where enough wait, it
    /// is removed.
    pub(super) fn give_back(&self, name: &Path) -> io::Result<()> {
        let path = self.directory.join(self.named.fetch_add(1, Ordering::Relaxed).to_string());
        match put(name, &path)? {
            Moved::There => {
                let file = empty(&path).inspect_err(|_| drop(fs::remove_file(&path)))?;
                let mut waiting = self.waiting();
                if waiting.len() < MOST {
                    waiting.push(Blank { file, path });
                    return Ok(());
                }
                drop(waiting);
                fs::remove_file(path)
            }
            Moved::Not => fs::remove_file(name),
        }
    }
}

/// Only what has left its name: a reader would take an empty file there for what was written.
///
/// By a descriptor of its own, which is closed at once: ext4 writes a file that was cut to nothing to the disk at its next
/// close (`auto_da_alloc`), and that one has nothing in it yet.
fn empty(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.custom_flags(no_follow());
    drop(options.clone().write(true).truncate(true).open(path)?);
    options.append(true).open(path)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    There,
    /// This file system has no such move.
    Not,
}

/// Never in place of something.
fn put(from: &Path, to: &Path) -> io::Result<Moved> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(Moved::There),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Ok(Moved::Not),
        Err(errno) => Err(errno.into()),
    }
}
