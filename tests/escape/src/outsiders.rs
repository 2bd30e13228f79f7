//! Who lives outside: a victim process, and listeners that give their secret to whoever reaches them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::sandbox::{SECRET, Sandbox, attack_program};

/// A process outside with the secret in its argv, its environment, its memory, its working directory
/// and behind one of its descriptors; traceable by everybody. It leads its own process group.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    /// It lives until this closes.
    _stdin: ChildStdin,
    pidfd: OwnedFd,
    pub address: String,
    pub fd: String,
}

impl Victim {
    #[track_caller]
    pub fn start(sandbox: &Sandbox) -> Self {
        let mut child = Command::new(attack_program())
            .args(["victim", &sandbox.secret().display().to_string(), SECRET])
            .env("VICTIM_SECRET", SECRET)
            .current_dir(sandbox.outside())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the victim starts");
        let stdin = child.stdin.take().expect("stdin was piped");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout was piped"))
            .read_line(&mut line)
            .expect("its line");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, address, fd] = words[..] else { panic!("the victim said {line:?}") };
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("its pidfd");
        Self { child, _stdin: stdin, pidfd, address: address.to_owned(), fd: fd.to_owned() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_alive(&self) -> bool {
        self.dies_within(Duration::ZERO).is_none()
    }

    fn dies_within(&self, limit: Duration) -> Option<()> {
        let mut waits = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let timeout = Timespec::try_from(limit).ok()?;
        matches!(poll(&mut waits, Some(&timeout)), Ok(1..)).then_some(())
    }

    /// True once it has died; a signal that was sent has its effect within the deadline.
    pub fn has_died(&self) -> bool {
        self.dies_within(crate::ran::deadline()).is_some()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Stream listeners that answer each connection with the secret.
#[derive(Debug)]
pub struct Listener {
    pub address: Option<SocketAddr>,
}

impl Listener {
    /// None where the address family is not there.
    pub fn tcp(at: &str) -> Option<Self> {
        let listener = TcpListener::bind(at).ok()?;
        let address = listener.local_addr().ok();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                drop(stream.write_all(SECRET.as_bytes()));
            }
        });
        Some(Self { address })
    }

    pub fn udp(at: &str) -> Option<Self> {
        let socket = UdpSocket::bind(at).ok()?;
        let address = socket.local_addr().ok();
        std::thread::spawn(move || {
            let mut buffer = [0u8; 64];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                drop(socket.send_to(SECRET.as_bytes(), from));
            }
        });
        Some(Self { address })
    }

    fn unix(listener: UnixListener) -> Self {
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                drop(stream.write_all(SECRET.as_bytes()));
            }
        });
        Self { address: None }
    }

    #[track_caller]
    pub fn pathname(path: &Path) -> Self {
        let listener = UnixListener::bind(path).expect("a fresh socket");
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, everybody).expect("its owner sets its mode");
        Self::unix(listener)
    }

    #[track_caller]
    pub fn abstract_name(name: &str) -> Self {
        let address = UnixAddress::from_abstract_name(name).expect("a short name");
        Self::unix(UnixListener::bind_addr(&address).expect("a name of this test's own"))
    }

    /// The address as the attacker writes it.
    #[track_caller]
    pub fn at(&self) -> String {
        self.address.expect("an internet address").to_string()
    }
}

/// A datagram socket outside; what arrives, arrived.
#[derive(Debug)]
pub struct Datagrams {
    socket: UnixDatagram,
}

impl Datagrams {
    #[track_caller]
    pub fn abstract_name(name: &str) -> Self {
        let address = UnixAddress::from_abstract_name(name).expect("a short name");
        Self::new(UnixDatagram::bind_addr(&address).expect("a name of this test's own"))
    }

    #[track_caller]
    pub fn pathname(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a fresh socket");
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, everybody).expect("its owner sets its mode");
        Self::new(socket)
    }

    fn new(socket: UnixDatagram) -> Self {
        socket.set_nonblocking(true).expect("a socket of our own");
        Self { socket }
    }

    /// A datagram is queued before the sender's call returns, so there is nothing to wait for.
    pub fn arrived(&self) -> bool {
        self.socket.recv(&mut [0u8; 64]).is_ok()
    }
}
