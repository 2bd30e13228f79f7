//! A network namespace with AnyIP, made by the test: a child of ours lives in it and makes sockets there on
//! request. The test uses those sockets from outside, as the executor does.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, sockopt,
};

use stockade_egress::Inside;

const MARK: &str = "STOCKADE_EGRESS_INSIDE";
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Sandbox {
    link: Mutex<OwnedFd>,
    child: Child,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Sandbox {
    /// None where the machine has no user namespaces or no `ip`; said loudly.
    pub(crate) fn new() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
        let child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "sandbox::inside", "--nocapture"])
            .env(MARK, "1")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let sandbox = Self { link: Mutex::new(ours), child };
        match sandbox.make("ready") {
            Ok(_) => Some(sandbox),
            Err(error) => {
                skip(&format!("no network namespace with AnyIP on this machine: {error}"));
                None
            }
        }
    }

    fn make(&self, what: &str) -> io::Result<OwnedFd> {
        let link = self.link.lock().unwrap();
        rustix::net::send(&*link, what.as_bytes(), SendFlags::NOSIGNAL)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        recvmsg(&*link, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = control.drain().filter_map(|message| {
            let RecvAncillaryMessage::ScmRights(rights) = message else { return None };
            Some(rights)
        });
        let socket = descriptors.next().and_then(|mut rights| rights.next());
        socket.ok_or_else(|| io::Error::other(format!("no {what}")))
    }

    /// On every address inside, both families.
    pub(crate) fn listener(&self, port: u16) -> OwnedFd {
        self.make(&format!("listen [::]:{port}")).unwrap()
    }

    pub(crate) fn listener_at(&self, address: &str) -> TcpListener {
        TcpListener::from(self.make(&format!("listen {address}")).unwrap())
    }

    pub(crate) fn datagrams(&self, address: &str) -> OwnedFd {
        self.make(&format!("udp {address}")).unwrap()
    }

    pub(crate) fn udp(&self, address: &str) -> UdpSocket {
        let socket = UdpSocket::from(self.datagrams(address));
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    pub(crate) fn stream_socket(&self) -> io::Result<OwnedFd> {
        self.make("stream")
    }

    pub(crate) fn inside(&self) -> Inside {
        Inside { four: self.make("stream4").unwrap(), six: self.stream_socket().unwrap() }
    }

    /// As a program inside does it.
    pub(crate) fn connect(&self, address: IpAddr, port: u16) -> io::Result<TcpStream> {
        let socket = self.make(if address.is_ipv4() { "stream4" } else { "stream" })?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        rustix::net::connect(&stream, &SocketAddr::new(address, port))?;
        Ok(stream)
    }
}

/// Says loudly that a test did not happen. With `STOCKADE_TEST_NO_SKIP` set it is a failure: then another
/// machine must have shown it.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIP {why}");
    assert!(std::env::var_os("STOCKADE_TEST_NO_SKIP").is_none(), "{why}");
}

/// The child: no test of its own.
#[test]
fn inside() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let ready = [
        &["link", "set", "lo", "up"][..],
        &["route", "add", "local", "0.0.0.0/0", "dev", "lo"],
        &["-6", "route", "add", "local", "::/0", "dev", "lo"],
    ]
    .iter()
    .all(|arguments| Command::new("ip").args(*arguments).status().is_ok_and(|status| status.success()));
    let link = rustix::stdio::stdin();
    let mut request = [0; 100];
    // Until the test closes its end.
    while let Ok((count @ 1.., _)) = rustix::net::recv(link, &mut request[..], RecvFlags::empty()) {
        let words = std::str::from_utf8(&request[..count]).unwrap();
        let made = if ready { make(words) } else { Err(io::ErrorKind::Unsupported.into()) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let socket = made.ok();
        let descriptors: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        sendmsg(link, &[IoSlice::new(b".")], &mut control, SendFlags::NOSIGNAL).unwrap();
    }
}

fn make(words: &str) -> io::Result<OwnedFd> {
    let socket = |family, kind| {
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        if family == AddressFamily::INET6 {
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        io::Result::Ok(socket)
    };
    let (verb, address) = words.split_once(' ').unwrap_or((words, ""));
    let address: SocketAddr = address.parse().unwrap_or((Ipv6Addr::UNSPECIFIED, 0).into());
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    match verb {
        "ready" | "stream" => socket(AddressFamily::INET6, SocketType::STREAM),
        "stream4" => socket(AddressFamily::INET, SocketType::STREAM),
        "udp" => {
            let made = socket(family, SocketType::DGRAM)?;
            rustix::net::bind(&made, &address)?;
            Ok(made)
        }
        "listen" => {
            let made = socket(family, SocketType::STREAM)?;
            sockopt::set_socket_reuseaddr(&made, true)?;
            rustix::net::bind(&made, &address)?;
            rustix::net::listen(&made, 4096)?;
            Ok(made)
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
