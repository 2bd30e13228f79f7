//! What this execution bound itself. Bounded: the oldest is forgotten first, and is then decided like any
//! other socket.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::os::fd::OwnedFd;

/// More than a test suite that binds a socket per case leaves alive.
const REMEMBERED: usize = 4096;
/// Files held open because they have no birth: each is a descriptor.
const HELD: usize = 64;

/// A file that can't be taken for another: numbers come back when a file is gone, its birth does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// Seconds and nanoseconds; none where the file system does not keep it. Then a number is told from its
    /// next use only while the file is held open.
    pub(crate) born: Option<(i64, u32)>,
}

/// What a socket of ours was bound to, found again by the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) file: FileId,
    pub(crate) path: Vec<u8>,
    /// As the kernel has it.
    pub(crate) name: Vec<u8>,
}

#[derive(Debug)]
struct Memory<K, V> {
    known: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Hash + Eq + Clone, V> Memory<K, V> {
    fn new() -> Self {
        Self { known: HashMap::new(), order: VecDeque::new() }
    }

    fn add(&mut self, key: K, value: V) {
        if self.known.insert(key.clone(), value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &K) {
        self.known.remove(key);
        self.order.retain(|one| one != key);
    }
}

#[derive(Debug)]
pub(crate) struct Own {
    files: Memory<FileId, Option<OwnedFd>>,
    /// Which of the files are held, the oldest first.
    held: VecDeque<FileId>,
    names: Memory<Vec<u8>, ()>,
    sockets: Memory<u64, Bound>,
}

impl Own {
    pub(crate) fn new() -> Self {
        Self { files: Memory::new(), held: VecDeque::new(), names: Memory::new(), sockets: Memory::new() }
    }

    /// `socket` is its cookie, `fd` a descriptor of the file.
    pub(crate) fn add_file(&mut self, socket: u64, bound: Bound, fd: OwnedFd) {
        let file = bound.file;
        self.files.add(file, file.born.is_none().then_some(fd));
        if file.born.is_none() && !self.held.contains(&file) {
            self.held.push_back(file);
            if self.held.len() > HELD
                && let Some(oldest) = self.held.pop_front()
            {
                self.files.remove(&oldest);
            }
        }
        self.sockets.add(socket, bound);
    }

    pub(crate) fn add_name(&mut self, name: &[u8]) {
        self.names.add(name.to_vec(), ());
    }

    pub(crate) fn has_file(&self, file: &FileId) -> bool {
        self.files.known.contains_key(file)
    }

    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.names.known.contains_key(name)
    }

    /// What the socket of that cookie, and of that name, was bound to.
    pub(crate) fn bound(&self, socket: u64, name: &[u8]) -> Option<Bound> {
        self.sockets.known.get(&socket).filter(|bound| bound.name == name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut own = Own::new();
        for number in 0..=REMEMBERED {
            own.add_name(&number.to_ne_bytes());
        }
        assert!(!own.has_name(&0_usize.to_ne_bytes()));
        assert!(own.has_name(&1_usize.to_ne_bytes()) && own.has_name(&REMEMBERED.to_ne_bytes()));
        own.add_name(&1_usize.to_ne_bytes());
        assert_eq!(own.names.order.len(), REMEMBERED);
    }

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("opened").into()
    }

    #[test]
    fn a_file_without_a_birth_is_known_while_it_is_held() {
        let mut own = Own::new();
        let file = |ino| FileId { dev: 1, ino, born: None };
        for ino in 0..=64 {
            let bound = Bound { file: file(ino), path: b"/s".to_vec(), name: b"s".to_vec() };
            own.add_file(ino, bound.clone(), descriptor());
            own.add_file(ino, bound, descriptor());
        }
        assert_eq!((own.held.len(), own.files.known.len(), own.files.order.len()), (HELD, HELD, HELD));
        assert!(!own.has_file(&file(0)) && own.has_file(&file(1)) && own.has_file(&file(64)));
        assert!(own.bound(0, b"s").is_some(), "the socket is still where it was bound");
    }

    #[test]
    fn a_file_is_known_by_its_birth() {
        let mut own = Own::new();
        let file = FileId { dev: 1, ino: 2, born: Some((3, 4)) };
        own.add_file(9, Bound { file, path: b"/s".to_vec(), name: b"s".to_vec() }, descriptor());
        assert!(own.has_file(&file) && own.held.is_empty());
        assert!(!own.has_file(&FileId { born: Some((3, 5)), ..file }), "the number was used again");
        assert!(own.bound(9, b"s").is_some() && own.bound(9, b"t").is_none() && own.bound(8, b"s").is_none());
    }
}
