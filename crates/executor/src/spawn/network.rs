//! Network namespaces for the sandboxes of a service. The kernel takes as long to make and to take back one as for
//! everything else of a sandbox, so one in which nothing happened is used again: no packet, no socket left, no count
//! changed, and nobody in it. They are made, and entered, by whoever has power over them: a stem over its own, host root
//! over all; for others init makes a new one each time, as for `stockade run`.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use stockade_sys::new_network_namespace;

/// Waiting at once. One that was just used waits longest: the kernel frees sockets a little later than they are closed.
const MOST: usize = 32;
/// For that little. What is not as new by then never will be.
const SETTLED: Duration = Duration::from_secs(1);

/// One that waited longer is of another time, as a sandbox would be.
const AGE: Duration = Duration::from_secs(60);
/// A thread that can't come back for want of memory gets another chance.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// What a command could have left in a namespace, beside sockets: packets, failed tries to send some, and labels that
/// linger.
const TRACES: [&str; 4] = ["dev", "snmp", "snmp6", "ip6_flowlabel"];
const SOCKETS: &str = "sockstat";
/// More than any of them holds.
const TRACES_BYTES: usize = 4096;

/// Those of one owner that wait.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    /// In the order in which they are looked at.
    idle: Mutex<VecDeque<(Instant, Namespace)>>,
}

/// Held open are its files in `/proc`, too: to open them takes longer than to read them.
#[derive(Debug)]
pub(crate) struct Namespace {
    fd: OwnedFd,
    ino: u64,
    sockets: File,
    /// With what was in them when it was unused.
    traces: Vec<(File, Vec<u8>)>,
}

/// One sandbox's, and nobody else's until it is given back.
#[derive(Debug)]
pub(crate) struct Lent {
    namespace: Namespace,
    networks: Arc<Networks>,
}

impl Namespace {
    /// An unused one. `directory` is the `net` directory, in `/proc`, of somebody who is in there.
    pub(super) fn new(fd: OwnedFd, directory: &Path) -> io::Result<Self> {
        let sockets = File::open(directory.join(SOCKETS))?;
        let mut traces = Vec::with_capacity(TRACES.len());
        for name in TRACES {
            match File::open(directory.join(name)) {
                Ok(file) => {
                    let mut buffer = [0; TRACES_BYTES];
                    let text = read_again(&file, &mut buffer)?.to_vec();
                    if file.read_at(&mut [0], text.len() as u64)? != 0 {
                        return Err(io::ErrorKind::FileTooLarge.into());
                    }
                    traces.push((file, text));
                }
                // A kernel without IPv6 counts none of it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let ino = rustix::fs::fstat(&fd)?.st_ino;
        Ok(Self { fd, ino, sockets, traces })
    }

    fn is_as_new(&self) -> io::Result<bool> {
        let mut buffer = [0; TRACES_BYTES];
        if !no_socket(read_again(&self.sockets, &mut buffer)?) {
            return Ok(false);
        }
        for (file, unused) in &self.traces {
            if read_again(file, &mut buffer)? != unused.as_slice() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A file of the kernel's, from its beginning. One that fits a page it gives whole.
fn read_again<'b>(file: &File, buffer: &'b mut [u8; TRACES_BYTES]) -> io::Result<&'b [u8]> {
    let count = file.read_at(buffer, 0)?;
    Ok(&buffer[..count])
}

/// Neither one that somebody holds nor a connection that is remembered.
fn no_socket(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let count = |line: &str, what: &str| {
        let mut words = text.lines().find_map(|text| text.strip_prefix(line))?.split_whitespace();
        words.find(|word| *word == what)?;
        words.next()?.parse::<u64>().ok()
    };
    count("sockets:", "used") == Some(0) && count("TCP:", "tw") == Some(0)
}

impl Networks {
    fn idle(&self) -> MutexGuard<'_, VecDeque<(Instant, Namespace)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that is as new, or a new one with its loopback up.
    pub(super) fn lend(self: &Arc<Self>, make: impl FnOnce() -> io::Result<Namespace>) -> io::Result<Lent> {
        while let Some((since, namespace)) = self.next() {
            if since.elapsed() > AGE {
                continue;
            }
            if namespace.is_as_new()? {
                return Ok(Lent { namespace, networks: Arc::clone(self) });
            }
            if since.elapsed() < SETTLED {
                self.idle().push_back((since, namespace));
                break;
            }
        }
        Ok(Lent { namespace: make()?, networks: Arc::clone(self) })
    }

    fn next(&self) -> Option<(Instant, Namespace)> {
        self.idle().pop_front()
    }
}

impl Lent {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.namespace.fd.as_fd()
    }

    /// As `stat` of a process's `ns/net` says it.
    pub(crate) fn ino(&self) -> u64 {
        self.namespace.ino
    }

    /// When nobody is in it any more. Dropped instead, it ends with the last who is.
    pub(crate) fn give_back(self) {
        let mut idle = self.networks.idle();
        if idle.len() < MOST {
            idle.push_back((Instant::now(), self.namespace));
        }
    }
}

/// Those that this process itself has power over: host root's.
#[derive(Debug)]
pub(crate) struct OwnNetworks {
    /// Where this process is, and every thread of it stays.
    home: OwnedFd,
    networks: Arc<Networks>,
}

/// Takes the thread back to where it belongs.
struct Visit<'n>(BorrowedFd<'n>);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            if enter(self.0).is_ok() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        // All that this thread did from here on, it would do in a sandbox's network.
        std::process::abort();
    }
}

fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

impl OwnNetworks {
    /// None where this process is not host root.
    pub(crate) fn new() -> Option<Self> {
        let home = || Some(OwnedFd::from(File::open("/proc/self/ns/net").ok()?));
        let home = home().filter(|_| rustix::process::geteuid().is_root())?;
        let own = Self { home, networks: Arc::default() };
        // Root in a container may be nobody's root: then there is nothing to lend.
        own.lend().ok()?.give_back();
        Some(own)
    }

    pub(super) fn lend(&self) -> io::Result<Lent> {
        self.networks.lend(|| {
            let fd = new_network_namespace()?;
            let other = fd.try_clone()?;
            self.inside(other.as_fd(), || Namespace::new(fd, Path::new("/proc/thread-self/net"))).flatten()
        })
    }

    /// Does something in it, on this thread.
    pub(super) fn inside<T>(&self, namespace: BorrowedFd<'_>, act: impl FnOnce() -> T) -> io::Result<T> {
        enter(namespace)?;
        let _visit = Visit(self.home.as_fd());
        Ok(act())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    fn networks() -> Option<OwnNetworks> {
        let networks = OwnNetworks::new();
        if networks.is_none() {
            eprintln!("skipped: only host root lends network namespaces");
        }
        networks
    }

    /// Whether the namespace that `act` was done in is lent again.
    fn again<T>(networks: &OwnNetworks, act: impl FnOnce() -> T) -> bool {
        networks.networks.idle().clear();
        let lent = networks.lend().unwrap();
        // Held, so that its number is nobody else's.
        let (ino, _held) = (lent.ino(), lent.namespace.fd.try_clone().unwrap());
        let left = networks.inside(lent.fd(), act).unwrap();
        lent.give_back();
        // The kernel frees what was closed when it has the time: longer than anybody waits for it here.
        let deadline = Instant::now() + SETTLED * 2;
        let same = loop {
            // The only one that waits, or a new one beside it.
            let lent = networks.lend().unwrap();
            if lent.ino() == ino || Instant::now() > deadline {
                break lent.ino() == ino;
            }
            drop(lent);
            std::thread::sleep(PAUSE);
        };
        drop(left);
        same
    }

    #[test]
    fn what_nothing_happened_in_is_lent_again() {
        let Some(networks) = networks() else { return };
        assert!(again(&networks, || ()));
        let name = SocketAddr::from_abstract_name("x").unwrap();
        assert!(again(&networks, || drop(UnixListener::bind_addr(&name).unwrap())));
        assert!(again(&networks, || drop(TcpListener::bind("127.0.0.1:0").unwrap())));
    }

    #[test]
    fn what_was_used_is_not_lent_again() {
        let Some(networks) = networks() else { return };
        let send = |to: &str| UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"x", to);
        assert!(!again(&networks, || assert_eq!(send("127.0.0.1:9").unwrap(), 1)), "a packet");
        assert!(!again(&networks, || drop(send("192.0.2.1:9").unwrap_err())), "a packet that went nowhere");
        assert!(!again(&networks, || TcpListener::bind("127.0.0.1:0").unwrap()), "a socket somebody has");
        let name = SocketAddr::from_abstract_name("left").unwrap();
        assert!(!again(&networks, || UnixListener::bind_addr(&name).unwrap()), "a name somebody has");
    }

    #[test]
    fn a_thread_comes_back() {
        let Some(networks) = networks() else { return };
        let ino = || std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let (before, lent) = (ino(), networks.lend().unwrap());
        assert_eq!(networks.inside(lent.fd(), ino).unwrap(), lent.ino());
        assert_ne!(lent.ino(), before);
        assert_eq!(ino(), before);
        // Two at once are two.
        assert_ne!(networks.lend().unwrap().ino(), lent.ino());
    }
}
