//! Names in the workspace that a protection needs to stand on while an execution lasts. Each
//! executor lists what it made in a file of its own before it makes it, so that the next start can
//! take away what a killed one left. Several executions may share a workspace: removing a name
//! detaches the mounts on it in every namespace, so the last one out takes it away. An executor
//! enters its workspace before the survey looks: what it sees there then stays until it leaves.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use stockade_proto::{Bytes, Code, Fault, MountKind, Placeholder, PlaceholderKind, Plan};

use crate::Abort;

/// One process may prepare several executions.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

const LIST_SUFFIX: &str = ".placeholders";
/// Held while lists are read or written, and names made or removed.
const LOCK: &str = "lock";

/// What one executor made. On disk: NUL-ended fields, the workspace first, then a letter and a path each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct List {
    workspace: Bytes,
    made: Vec<Placeholder>,
}

fn letter(kind: PlaceholderKind) -> u8 {
    match kind {
        PlaceholderKind::EmptyDirectory => b'd',
        PlaceholderKind::EmptyFile => b'f',
        PlaceholderKind::GitCommondir => b'c',
    }
}

impl List {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.workspace.as_slice(), b"\0"].concat();
        for Placeholder { path, kind } in &self.made {
            bytes.push(letter(*kind));
            bytes.extend_from_slice(path.as_slice());
            bytes.push(0);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let workspace = Bytes::from(fields.next()?);
        let made = fields.map(|field| {
            let (letter, path) = field.split_first()?;
            let kind = match letter {
                b'd' => PlaceholderKind::EmptyDirectory,
                b'f' => PlaceholderKind::EmptyFile,
                b'c' => PlaceholderKind::GitCommondir,
                _ => return None,
            };
            Some(Placeholder { path: Bytes::from(path), kind })
        });
        Some(Self { workspace, made: made.collect::<Option<_>>()? })
    }
}

/// This executor in its workspace, until it leaves.
#[derive(Debug)]
pub(crate) struct Presence {
    state: State,
    /// Shared locks on every name that a protection of ours stands on. Lists are one user's and one
    /// environment's; these hold against everybody who might take such a name away.
    held: RefCell<Vec<OwnedFd>>,
    has_left: Cell<bool>,
}

/// Where the lists are, and which one is ours.
#[derive(Debug)]
struct State {
    directory: PathBuf,
    own: PathBuf,
}

/// `$XDG_RUNTIME_DIR/stockade`, `/run/stockade` for root, else a private directory in `/tmp`.
fn state_directory() -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        _ if uid == 0 && Path::new("/run").is_dir() => PathBuf::from("/run/stockade"),
        Some(runtime) if runtime.is_absolute() && runtime.is_dir() => runtime.join("stockade"),
        _ => PathBuf::from(format!("/tmp/stockade-{uid}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // In `/tmp` someone else may have been first.
    let metadata = fs::symlink_metadata(&directory)?;
    if metadata.is_dir() && metadata.uid() == uid && metadata.mode() & 0o022 == 0 {
        Ok(directory)
    } else {
        let why = format!("{} belongs to someone else", directory.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

/// Field 22 of `/proc/PID/stat`, counted from behind the parenthesis that ends the name: a reused
/// pid has another start time.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&stat);
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    Ok(fields.split_whitespace().nth(19).and_then(|field| field.parse().ok()))
}

fn is_alive(list: &Path) -> io::Result<bool> {
    let name =
        list.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(LIST_SUFFIX));
    let mut parts = name.unwrap_or("").split('-');
    let owner = (|| Some((parts.next()?.parse().ok()?, parts.next()?.parse::<u64>().ok()?)))();
    match owner {
        Some((pid, started)) => Ok(start_time(pid)? == Some(started)),
        None => Ok(false),
    }
}

impl State {
    fn open() -> io::Result<Self> {
        let directory = state_directory()?;
        let pid = std::process::id();
        let started = start_time(pid)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let own = directory.join(format!("{pid}-{started}-{sequence}{LIST_SUFFIX}"));
        Ok(Self { directory, own })
    }

    /// Released when the file is dropped.
    fn lock(&self) -> io::Result<File> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.directory.join(LOCK))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Lists of other executors, with whether each lives.
    fn others(&self) -> io::Result<Vec<(PathBuf, List, bool)>> {
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let is_list = path.as_os_str().as_encoded_bytes().ends_with(LIST_SUFFIX.as_bytes());
            if !is_list || path == self.own {
                continue;
            }
            if let Some(list) = List::decode(&fs::read(&path)?) {
                let alive = is_alive(&path)?;
                others.push((path, list, alive));
            }
        }
        Ok(others)
    }

    /// Takes away what a list names, or hands it to a living execution of the same workspace.
    fn release(&self, path: &Path, list: &List, others: &mut [(PathBuf, List, bool)]) -> io::Result<()> {
        let heir = others
            .iter_mut()
            .find(|(other, theirs, alive)| *alive && other != path && theirs.workspace == list.workspace);
        if let Some((heir, theirs, _)) = heir {
            theirs.made.extend(list.made.iter().cloned());
            fs::write(heir, theirs.encode())?;
        } else {
            for placeholder in &list.made {
                take_away(placeholder)?;
            }
        }
        fs::remove_file(path)
    }

    fn enter(&self, workspace: &Bytes) -> io::Result<()> {
        let _lock = self.lock()?;
        let mut others = self.others()?;
        let dead: Vec<(PathBuf, List)> = others
            .iter()
            .filter(|(_, _, alive)| !alive)
            .map(|(path, list, _)| (path.clone(), list.clone()))
            .collect();
        for (path, list) in dead {
            self.release(&path, &list, &mut others)?;
        }
        fs::write(&self.own, List { workspace: workspace.clone(), made: Vec::new() }.encode())
    }

    fn hold(&self, plan: &Plan) -> io::Result<()> {
        let _lock = self.lock()?;
        // Read back: another execution may have handed us its names.
        let mut list =
            List::decode(&fs::read(&self.own)?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        list.made.extend(plan.placeholders.iter().cloned());
        // The list first: a kill between the two must not leave an unlisted name.
        fs::write(&self.own, list.encode())?;
        for placeholder in &plan.placeholders {
            put(placeholder)?;
        }
        Ok(())
    }

    fn leave(&self) -> io::Result<()> {
        let _lock = self.lock()?;
        // Read back: another execution may have handed us its names.
        if let Some(list) = List::decode(&fs::read(&self.own)?) {
            self.release(&self.own, &list, &mut self.others()?)?;
        }
        Ok(())
    }
}

fn fault(error: &io::Error) -> Abort {
    Fault::new(
        Code::SpawnFailed,
        format!("a name to protect in the workspace could not be held: {error}"),
        "Make the workspace writable for you, or create its .stockade directory yourself.",
    )
    .into()
}

impl Presence {
    pub(crate) fn enter(workspace: &Bytes) -> Result<Self, Abort> {
        let entered = State::open().and_then(|state| state.enter(workspace).map(|()| state));
        let state = entered.map_err(|error| fault(&error))?;
        Ok(Self { state, held: RefCell::default(), has_left: Cell::new(false) })
    }

    /// Puts up what the plan's protections stand on.
    pub(crate) fn hold(&self, plan: &Plan) -> Result<(), Abort> {
        if !plan.placeholders.is_empty() {
            self.state.hold(plan).map_err(|error| fault(&error))?;
        }
        for target in protected(plan) {
            match lock_name(target.as_path(), FlockOperation::NonBlockingLockShared) {
                Ok(fd) => self.held.borrow_mut().push(fd),
                // A socket, or what we may not read: nobody's placeholder.
                Err(Errno::NXIO | Errno::ACCESS | Errno::LOOP) => {}
                Err(errno) => return Err(fault(&errno.into())),
            }
        }
        Ok(())
    }

    /// Takes the names away, and says what could not be.
    pub(crate) fn leave(&self) -> Option<String> {
        if self.has_left.replace(true) {
            return None;
        }
        self.held.borrow_mut().clear();
        let left = self.state.leave();
        left.err().map(|error| format!("a placeholder in the workspace could not be removed: {error}"))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // On the way out of a failure, which is what the caller hears about.
        drop(self.leave());
    }
}

fn protected(plan: &Plan) -> impl Iterator<Item = &Bytes> {
    plan.mounts
        .iter()
        .filter(|mount| matches!(mount.kind, MountKind::Protect { .. }))
        .map(|mount| &mount.target)
        .filter(|target| target.as_path().starts_with(plan.workspace.as_path()))
}

fn lock_name(path: &Path, operation: FlockOperation) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&fd, operation)?;
    Ok(fd)
}

fn put(placeholder: &Placeholder) -> io::Result<()> {
    let path = placeholder.path.as_path();
    let made = match placeholder.kind.contents() {
        None => fs::DirBuilder::new().mode(0o755).create(path),
        Some(contents) => File::options()
            .create_new(true)
            .write(true)
            .mode(0o644)
            .open(path)
            .and_then(|mut file| file.write_all(contents)),
    };
    match made {
        Ok(()) => take_owner_of_parent(path),
        // Another execution of this workspace holds it already.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Root makes it, the workspace's owner has it.
fn take_owner_of_parent(path: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    let metadata = fs::symlink_metadata(parent)?;
    std::os::unix::fs::lchown(path, Some(metadata.uid()), Some(metadata.gid()))
}

/// Only what is still as it was made: anything else is a person's.
fn take_away(placeholder: &Placeholder) -> io::Result<()> {
    let path = placeholder.path.as_path();
    let _alone = match lock_name(path, FlockOperation::NonBlockingLockExclusive) {
        Ok(fd) => fd,
        // Gone, or a protection of another execution stands on it: then it stays.
        Err(_) => return Ok(()),
    };
    let removed = match placeholder.kind.contents() {
        None => fs::remove_dir(path),
        Some(contents) => match fs::read(path) {
            Ok(found) if found == contents => fs::remove_file(path),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        },
    };
    match removed {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}
