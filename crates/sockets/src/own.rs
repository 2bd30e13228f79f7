//! What this execution bound itself. Bounded: the oldest is forgotten first, and is then decided like any
//! other socket.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::os::fd::OwnedFd;

use rustix::process::{Resource, getrlimit};

/// More than a test suite that binds a socket per case leaves alive.
const REMEMBERED: usize = 4096;
/// Of the descriptors that the executor may open, files take one in so many: with the usual 1024 there is room
/// beside them for what blocked calls and passed descriptors hold.
const SHARE: u64 = 8;
/// Where there are more than enough. When it is full every one is looked at.
const HELD_MAX: usize = 1024;

/// A file, for as long as it is held open: the number of one that nobody holds goes to the next that is made, at
/// once and within the tick of the clock that its birth is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
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
}

/// Files by their numbers, each with the descriptor that keeps its number from being used again.
#[derive(Debug)]
struct Files {
    held: HashMap<FileId, OwnedFd>,
    /// The oldest first.
    order: VecDeque<FileId>,
    most: usize,
}

impl Files {
    fn new(most: usize) -> Self {
        Self { held: HashMap::new(), order: VecDeque::new(), most }
    }

    fn add(&mut self, file: FileId, fd: OwnedFd) {
        if self.held.insert(file, fd).is_some() {
            return;
        }
        self.order.push_back(file);
        if self.order.len() > self.most {
            self.drop_unnamed();
        }
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.held.remove(&oldest);
        }
    }

    /// No path leads to them any more. Number and descriptor go together, so that none is known by its number alone.
    fn drop_unnamed(&mut self) {
        self.held.retain(|_, fd| rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_nlink > 0));
        self.order.retain(|file| self.held.contains_key(file));
    }
}

/// How many files may be held.
fn most_held() -> usize {
    let share = getrlimit(Resource::Nofile).current.map(|limit| limit / SHARE);
    share.and_then(|share| usize::try_from(share).ok()).map_or(HELD_MAX, |share| share.min(HELD_MAX))
}

#[derive(Debug)]
pub(crate) struct Own {
    files: Files,
    names: Memory<Vec<u8>, ()>,
    sockets: Memory<u64, Bound>,
    /// Whether there was ever a file.
    pub(crate) had_file: bool,
}

impl Own {
    pub(crate) fn new() -> Self {
        Self { files: Files::new(most_held()), names: Memory::new(), sockets: Memory::new(), had_file: false }
    }

    /// `socket` is its cookie, `fd` a descriptor of the file.
    pub(crate) fn add_file(&mut self, socket: u64, bound: Bound, fd: OwnedFd) {
        self.had_file = true;
        self.files.add(bound.file, fd);
        self.sockets.add(socket, bound);
    }

    pub(crate) fn add_name(&mut self, name: &[u8]) {
        self.names.add(name.to_vec(), ());
    }

    pub(crate) fn has_file(&self, file: &FileId) -> bool {
        self.files.held.contains_key(file)
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

    fn path_descriptor(path: &std::path::Path) -> (FileId, OwnedFd) {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).expect("opened");
        let stat = rustix::fs::fstat(&fd).expect("there");
        (FileId { dev: stat.st_dev, ino: stat.st_ino }, fd)
    }

    fn made(place: &std::path::Path, name: usize) -> (FileId, OwnedFd) {
        let path = place.join(name.to_string());
        std::fs::write(&path, "").expect("made");
        path_descriptor(&path)
    }

    #[test]
    fn a_number_is_not_used_again_while_it_is_own() {
        let place = tempfile::tempdir().expect("made");
        let mut own = Own::new();
        let path = place.path().join("0");
        for cookie in 0..100 {
            let (file, fd) = made(place.path(), 0);
            assert!(!own.has_file(&file), "made by someone else");
            own.add_file(cookie, Bound { file, path: b"/s".to_vec(), name: b"s".to_vec() }, fd);
            assert!(own.has_file(&file));
            std::fs::remove_file(&path).expect("removed");
        }
        assert!(
            own.bound(9, b"s").is_some() && own.bound(9, b"t").is_none() && own.bound(100, b"s").is_none()
        );
    }

    #[test]
    fn files_without_a_name_are_dropped_first_then_the_oldest() {
        let place = tempfile::tempdir().expect("made");
        let mut files = Files::new(4);
        let ids: Vec<FileId> = (0..4)
            .map(|name| {
                let (file, fd) = made(place.path(), name);
                files.add(file, fd);
                file
            })
            .collect();
        for name in ["1", "3"] {
            std::fs::remove_file(place.path().join(name)).expect("removed");
        }
        assert!(ids.iter().all(|file| files.held.contains_key(file)), "there is room");
        let (fifth, fd) = made(place.path(), 4);
        files.add(fifth, fd);
        let known = |files: &Files| ids.iter().map(|file| files.held.contains_key(file)).collect::<Vec<_>>();
        assert_eq!(known(&files), [true, false, true, false]);
        for name in 5..7 {
            let (file, fd) = made(place.path(), name);
            files.add(file, fd);
        }
        // The numbers of those dropped may have been used again by now, and then are known for it.
        assert!(!files.held.contains_key(&ids[0]) && files.held.contains_key(&ids[2]));
        assert!(files.held.contains_key(&fifth));
        assert_eq!((files.held.len(), files.order.len()), (4, 4));
    }

    #[test]
    fn a_share_of_the_descriptors_is_held() {
        assert!((1..=HELD_MAX).contains(&most_held()));
    }
}
