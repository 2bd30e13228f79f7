//! The Unix socket of a door: made in a directory that nobody else can change, never taken from a process
//! that still answers on it, shown under its name only when it is ready and has its mode. Who connects is
//! known from the kernel and admitted, or told and closed, before a byte of theirs is read.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

use crate::error::Error;
use crate::frame::MAX_FRAME;
use crate::lock::Lock;
use crate::message;
use crate::share::Share;

/// The owner and the group connect.
const MODE: u32 = 0o660;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;
/// Writable by anyone but the owner. An access list shows in the group's bits.
const OTHERS_WRITE: u32 = 0o022;
/// After an accept that failed for want of descriptors or memory.
const SHORT_OF: Duration = Duration::from_millis(50);
const RETRY_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{} has no directory: a socket needs an absolute path", .path.display())]
    NotAbsolute { path: PathBuf },
    #[error("can't look at {}", .path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error("{} is no directory of ours alone: {why}", .path.display())]
    Directory { path: PathBuf, why: &'static str },
    #[error("{} is in use: a process answers on it", .path.display())]
    Live { path: PathBuf },
    #[error("{} is there and is no socket", .path.display())]
    NotASocket { path: PathBuf },
    #[error("another process is setting {} up", .path.display())]
    Locked { path: PathBuf },
    #[error("can't listen on {}", .path.display())]
    Bind { path: PathBuf, source: io::Error },
    #[error("the inherited descriptor is no listening Unix stream socket")]
    Inherited,
    #[error("the runtime can't take the socket")]
    Register(#[source] io::Error),
}

/// Who connected, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// For the record only: it may name another process by now.
    pub pid: Option<i32>,
}

/// Connections at once.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    pub all: usize,
    /// Of one user, so that nobody takes all.
    pub each_user: usize,
    /// Bytes of the unfinished frames of one user's connections together.
    pub unfinished: usize,
}

impl Default for Places {
    fn default() -> Self {
        Self { all: 256, each_user: 64, unfinished: 4 * MAX_FRAME }
    }
}

/// A connection that was admitted, with what the admission said.
#[derive(Debug)]
pub struct Admitted<T> {
    pub stream: UnixStream,
    pub caller: Caller,
    pub terms: T,
    /// Hold it as long as the connection.
    pub seat: Seat,
}

#[derive(Debug)]
struct Seats {
    places: Places,
    taken: Mutex<HashMap<u32, Taken>>,
}

/// What one user has.
#[derive(Debug)]
struct Taken {
    seats: usize,
    share: Share,
}

/// A place among the connections, given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Seat {
    uid: u32,
    share: Share,
    seats: Arc<Seats>,
}

impl Seat {
    /// What the connections of this user have together.
    pub fn share(&self) -> Share {
        self.share.clone()
    }
}

impl Seats {
    fn taken(&self) -> MutexGuard<'_, HashMap<u32, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, uid: u32) -> Option<Seat> {
        let mut taken = self.taken();
        let all: usize = taken.values().map(|taken| taken.seats).sum();
        let own = taken.get(&uid).map_or(0, |taken| taken.seats);
        if all >= self.places.all || own >= self.places.each_user {
            return None;
        }
        let new = || Taken { seats: 0, share: Share::new(self.places.unfinished) };
        let taken = taken.entry(uid).or_insert_with(new);
        taken.seats += 1;
        Some(Seat { uid, share: taken.share.clone(), seats: Arc::clone(self) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        let Some(own) = taken.get_mut(&self.uid) else { return };
        own.seats = own.seats.saturating_sub(1);
        if own.seats == 0 {
            taken.remove(&self.uid);
        }
    }
}

/// The socket file that we made: its name, and the inode that says that it is still ours.
#[derive(Debug)]
struct Own {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for Own {
    fn drop(&mut self) {
        let Ok(_lock) = Lock::take(&self.path) else { return };
        let ours = |there: Metadata| (there.dev(), there.ino()) == (self.device, self.inode);
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            match fs::remove_file(&self.path) {
                // Left behind, it is a dead socket, which the next start replaces.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// A listening socket. Dropped, it closes, and removes its file if that is still its own.
#[derive(Debug)]
pub struct Listener {
    /// Before the socket: its inode can't be another's while the socket is open.
    _own: Option<Own>,
    socket: UnixListener,
    seats: Arc<Seats>,
}

impl Listener {
    /// Makes the socket at `path`. Within the runtime.
    pub fn bind(path: &Path, places: Places) -> Result<Self, ListenError> {
        let (Some(parent), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
            return Err(ListenError::NotAbsolute { path: path.to_owned() });
        };
        let parent = fs::canonicalize(parent)
            .map_err(|source| ListenError::Look { path: parent.to_owned(), source })?;
        check_directory(&parent)?;
        let path = parent.join(name);
        let lock = Lock::take(&path).map_err(|source| {
            let path = path.clone();
            let locked = source.kind() == io::ErrorKind::WouldBlock;
            if locked { ListenError::Locked { path } } else { ListenError::Bind { path, source } }
        })?;
        check_vacant(&path)?;
        let (socket, own) = make(&path).map_err(|source| ListenError::Bind { path, source })?;
        drop(lock);
        Self::new(Some(own), socket, places)
    }

    /// A socket that was bound before us, by who starts us. Its file stays. Within the runtime.
    pub fn inherited(socket: OwnedFd, places: Places) -> Result<Self, ListenError> {
        let listens = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&socket) == Ok(SocketType::STREAM)
            && sockopt::socket_acceptconn(&socket) == Ok(true);
        if !listens {
            return Err(ListenError::Inherited);
        }
        Self::new(None, socket, places)
    }

    fn new(own: Option<Own>, socket: OwnedFd, places: Places) -> Result<Self, ListenError> {
        let socket = StdListener::from(socket);
        socket.set_nonblocking(true).map_err(ListenError::Register)?;
        let socket = UnixListener::from_std(socket).map_err(ListenError::Register)?;
        Ok(Self { _own: own, socket, seats: Arc::new(Seats { places, taken: Mutex::default() }) })
    }

    /// The next connection that is admitted. Others are told why not, in a line, and closed. Nothing is lost
    /// where this is dropped unfinished. An error is the socket's end: those that pass are waited out.
    pub async fn accept<T>(&self, admit: impl Fn(Caller) -> Result<T, Error>) -> io::Result<Admitted<T>> {
        loop {
            let stream = match self.socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) if passes(&error) => {
                    sleep(SHORT_OF).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Gone already, or nobody that the kernel knows.
            let Ok(peer) = stream.peer_cred() else { continue };
            let caller = Caller { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() };
            let terms = match admit(caller) {
                Ok(terms) => terms,
                Err(error) => {
                    turn_away(stream, error);
                    continue;
                }
            };
            match self.seats.take(caller.uid) {
                Some(seat) => return Ok(Admitted { stream, caller, terms, seat }),
                None => turn_away(stream, Error::busy("too many connections", RETRY_AFTER)),
            }
        }
    }
}

/// What comes from the caller or from a shortage, not from the socket.
fn passes(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let passing = [Errno::CONNABORTED, Errno::INTR, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    errno.is_some_and(|errno| passing.contains(&errno))
}

/// One line in a fresh socket's buffer always fits. Which framing the caller speaks isn't known yet.
fn turn_away(stream: UnixStream, error: Error) {
    let line = format!("{}\n", message::response(None, &Err::<(), _>(error)));
    // Past the runtime, which hasn't seen yet that the socket can be written to.
    match stream.into_std().and_then(|mut stream| stream.write(line.as_bytes())) {
        // A caller that is gone needs no reason.
        Ok(_) | Err(_) => {}
    }
}

fn check_directory(path: &Path) -> Result<(), ListenError> {
    let there = fs::metadata(path).map_err(|source| ListenError::Look { path: path.to_owned(), source })?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&there.uid());
    let why = match (there.is_dir(), own, there.mode() & OTHERS_WRITE) {
        (true, true, 0) => return Ok(()),
        (false, _, _) => "it is something else",
        (true, false, _) => "it is another user's",
        (true, true, _) => "others can write to it",
    };
    Err(ListenError::Directory { path: path.to_owned(), why })
}

/// That nothing is there, or a socket that nobody listens on any more.
fn check_vacant(path: &Path) -> Result<(), ListenError> {
    let path = || path.to_owned();
    match fs::symlink_metadata(path()) {
        Ok(there) if !there.file_type().is_socket() => return Err(ListenError::NotASocket { path: path() }),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ListenError::Look { path: path(), source }),
    }
    let bind = |errno: Errno| ListenError::Bind { path: path(), source: errno.into() };
    let probe = stream_socket().map_err(bind)?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(path()).map_err(bind)?) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        // A full backlog, another type or a missing permission are somebody, too.
        Ok(()) | Err(Errno::AGAIN | Errno::ACCESS | Errno::PROTOTYPE) => {
            Err(ListenError::Live { path: path() })
        }
        Err(errno) => Err(bind(errno)),
    }
}

/// Never waits: a connect to a full backlog would.
fn stream_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Under a name of its own first: nobody can connect before it listens, nor see it with another mode, and the
/// rename replaces a dead socket in one step.
fn make(path: &Path) -> io::Result<(OwnedFd, Own)> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    // Short, since an address has room for 108 bytes with the directory.
    let unfinished = path.with_file_name(format!(".{:x}.{number:x}", std::process::id()));
    match fs::remove_file(&unfinished) {
        // Of a process that died here; under the lock it is nobody's.
        Ok(()) | Err(_) => {}
    }
    let made = listen_at(&unfinished).and_then(|(socket, there)| {
        fs::rename(&unfinished, path)?;
        Ok((socket, Own { path: path.to_owned(), device: there.dev(), inode: there.ino() }))
    });
    if made.is_err() {
        match fs::remove_file(&unfinished) {
            // The first failure is the one to tell.
            Ok(()) | Err(_) => {}
        }
    }
    made
}

fn listen_at(path: &Path) -> io::Result<(OwnedFd, Metadata)> {
    let socket = stream_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, fs::symlink_metadata(path)?))
}
