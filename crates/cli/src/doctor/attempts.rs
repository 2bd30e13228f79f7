//! What the probe tries, one row each. Runs inside the sandbox, and once more without one: an attempt says
//! what the kernel answered and judges nothing. Next: `inside` prints the answers.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use stockade_proto::Layer;

/// The namespaces of the process layer.
pub(super) const NAMESPACES: [&str; 5] = ["user", "pid", "ipc", "uts", "cgroup"];

/// A connect to this machine is answered at once, or the wall swallows it.
const CONNECT: Duration = Duration::from_secs(5);

/// What doctor put outside the workspace for the probe to go for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Targets {
    pub(super) canary: PathBuf,
    pub(super) outside: PathBuf,
    pub(super) socket: PathBuf,
    /// In the workspace, where only the supervisor of sockets stands before it.
    pub(super) near_socket: PathBuf,
    pub(super) abstract_name: String,
    pub(super) port: u16,
    pub(super) pid: u32,
    /// As `/proc/self/ns/*` reads for doctor, in the order of `NAMESPACES`.
    pub(super) namespaces: Vec<PathBuf>,
}

/// `Ok`: it worked, and what was got. `Err`: what stood in the way.
pub(super) type Tried = Result<String, String>;

pub(super) struct Attempt {
    pub(super) name: &'static str,
    pub(super) layer: Layer,
    pub(super) go: fn(&Targets) -> Tried,
}

pub(super) const READ_OUTSIDE: &str = "read-outside";
pub(super) const WRITE_OUTSIDE: &str = "write-outside";
pub(super) const ABSTRACT_SOCKET: &str = "connect-abstract-socket";

/// In this order: the last one leaves the probe in another user namespace.
pub(super) const ATTEMPTS: [Attempt; 17] = [
    Attempt { name: READ_OUTSIDE, layer: Layer::Filesystem, go: read_outside },
    Attempt { name: WRITE_OUTSIDE, layer: Layer::Filesystem, go: write_outside },
    Attempt { name: "write-usr", layer: Layer::Filesystem, go: |_| unnamed_file("/usr") },
    Attempt { name: "write-etc", layer: Layer::Filesystem, go: |_| unnamed_file("/etc") },
    Attempt { name: "connect-socket-outside", layer: Layer::Filesystem, go: socket_outside },
    // A /proc of its own is part of the new root, whatever the PID namespace hides.
    Attempt { name: "see-processes", layer: Layer::Filesystem, go: see_processes },
    Attempt { name: "signal-outsider", layer: Layer::Process, go: signal_outsider },
    Attempt { name: "share-namespaces", layer: Layer::Process, go: share_namespaces },
    Attempt { name: "keep-privileges", layer: Layer::Process, go: keep_privileges },
    Attempt { name: "connect-loopback", layer: Layer::Network, go: loopback },
    Attempt { name: ABSTRACT_SOCKET, layer: Layer::Network, go: abstract_socket },
    Attempt { name: "see-interfaces", layer: Layer::Network, go: see_interfaces },
    Attempt { name: "connect-socket-in-workspace", layer: Layer::Sockets, go: socket_near },
    Attempt { name: "unfiltered-calls", layer: Layer::Seccomp, go: unfiltered },
    Attempt { name: "io-uring", layer: Layer::Seccomp, go: io_uring },
    Attempt { name: "keyring", layer: Layer::Seccomp, go: keyring },
    Attempt { name: "new-user-namespace", layer: Layer::Seccomp, go: user_namespace },
];

fn said(error: impl Into<io::Error>) -> String {
    error.into().to_string()
}

fn read_outside(targets: &Targets) -> Tried {
    let mut bytes = Vec::new();
    let read = File::open(&targets.canary).and_then(|file| file.take(64).read_to_end(&mut bytes));
    read.map(|count| format!("read {count} bytes")).map_err(said)
}

fn write_outside(targets: &Targets) -> Tried {
    let path = targets.outside.join("written");
    File::create_new(&path).map_err(said)?;
    fs::remove_file(&path).map_err(said)?;
    Ok("made a file".to_owned())
}

/// A file without a name: nothing is left of it, whatever happens to us.
fn unnamed_file(directory: &str) -> Tried {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    open(directory, flags, Mode::from_raw_mode(0o600)).map_err(said)?;
    Ok(format!("made a file in {directory}"))
}

fn socket_outside(targets: &Targets) -> Tried {
    UnixStream::connect(&targets.socket).map_err(said)?;
    Ok("connected".to_owned())
}

fn socket_near(targets: &Targets) -> Tried {
    UnixStream::connect(&targets.near_socket).map_err(said)?;
    Ok("connected".to_owned())
}

fn own_namespace(name: &str) -> Result<PathBuf, String> {
    fs::read_link(Path::new("/proc/self/ns").join(name)).map_err(said)
}

fn signal_outsider(targets: &Targets) -> Tried {
    let pid = i32::try_from(targets.pid).ok().and_then(Pid::from_raw).ok_or("not a process id")?;
    test_kill_process(pid).map_err(said)?;
    // In another PID namespace the number is somebody else's: small ones are always taken.
    if !targets.namespaces.contains(&own_namespace("pid")?) {
        return Err("that number is a process of the sandbox".to_owned());
    }
    Ok(format!("may signal process {pid}"))
}

fn see_processes(_: &Targets) -> Tried {
    let own = std::process::id();
    let others = fs::read_dir("/proc")
        .map_err(said)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != 1 && *pid != own)
        .count();
    if others == 0 { Err("only itself and its init".to_owned()) } else { Ok(format!("sees {others} others")) }
}

fn share_namespaces(targets: &Targets) -> Tried {
    let mut shared = Vec::new();
    for name in NAMESPACES {
        if targets.namespaces.contains(&own_namespace(name)?) {
            shared.push(name);
        }
    }
    if shared.is_empty() {
        Err("all its own".to_owned())
    } else {
        Ok(format!("shares {}", shared.join(", ")))
    }
}

/// The value of a line such as `NoNewPrivs:\t1`.
fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn keep_privileges(_: &Targets) -> Tried {
    privileges(&fs::read_to_string("/proc/self/status").map_err(said)?)
}

fn privileges(status: &str) -> Tried {
    const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let kept: Vec<&str> = SETS
        .into_iter()
        .filter(|set| field(status, set).and_then(|value| u64::from_str_radix(value, 16).ok()) != Some(0))
        .collect();
    let may_gain = field(status, "NoNewPrivs") != Some("1");
    match (kept.as_slice(), may_gain) {
        ([], false) => Err("no capability, no_new_privs".to_owned()),
        ([], true) => Ok("no_new_privs is not set".to_owned()),
        (kept, _) => Ok(format!("{} not empty", kept.join(", "))),
    }
}

fn loopback(targets: &Targets) -> Tried {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, targets.port));
    TcpStream::connect_timeout(&address, CONNECT).map_err(said)?;
    Ok("connected".to_owned())
}

fn abstract_socket(targets: &Targets) -> Tried {
    let address = UnixAddress::from_abstract_name(&targets.abstract_name).map_err(said)?;
    UnixStream::connect_addr(&address).map_err(said)?;
    Ok("connected".to_owned())
}

fn see_interfaces(_: &Targets) -> Tried {
    interfaces(&fs::read_to_string("/proc/self/net/dev").map_err(said)?)
}

/// Two lines of headings, then `name: counters`.
fn interfaces(table: &str) -> Tried {
    let names: Vec<&str> = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .filter(|name| *name != "lo")
        .collect();
    if names.is_empty() { Err("lo only".to_owned()) } else { Ok(format!("sees {}", names.join(", "))) }
}

fn unfiltered(_: &Targets) -> Tried {
    let status = fs::read_to_string("/proc/self/status").map_err(said)?;
    match field(&status, "Seccomp") {
        Some("2") => Err("filter mode".to_owned()),
        Some(mode) => Ok(format!("mode {mode}")),
        None => Ok("not told by the kernel".to_owned()),
    }
}

fn io_uring(_: &Targets) -> Tried {
    stockade_sys::io_uring_setup().map_err(said)?;
    Ok("made a ring".to_owned())
}

fn keyring(_: &Targets) -> Tried {
    stockade_sys::session_keyring().map_err(said)?;
    Ok("found its session keyring".to_owned())
}

fn user_namespace(_: &Targets) -> Tried {
    stockade_sys::unshare_user().map_err(said)?;
    Ok("made one, with every capability in it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const INSIDE: &str = "Name:\tstockade\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n\
        CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";

    #[test]
    fn names_are_unique_and_every_wall_but_two_has_an_attempt() {
        let names: BTreeSet<&str> = ATTEMPTS.iter().map(|attempt| attempt.name).collect();
        assert_eq!(names.len(), ATTEMPTS.len());
        for layer in Layer::ALL {
            // Two are examined by executions of their own.
            let alone = matches!(layer, Layer::Landlock | Layer::Limits);
            assert_eq!(ATTEMPTS.iter().any(|attempt| attempt.layer == layer), !alone, "{layer}");
        }
    }

    #[test]
    fn a_capability_or_a_missing_line_counts_as_kept() {
        assert!(privileges(INSIDE).is_err());
        assert!(privileges(&INSIDE.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0")).is_ok());
        let bounding = INSIDE.replace("CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff");
        assert_eq!(privileges(&bounding), Ok("CapBnd not empty".to_owned()));
        assert!(privileges(&INSIDE.replace("CapAmb", "Other")).is_ok());
        assert!(privileges("").is_ok());
    }

    #[test]
    fn interfaces_but_loopback_are_seen() {
        let head = "Inter-|   Receive\n face |bytes\n";
        assert!(interfaces(&format!("{head}    lo: 1 2 3\n")).is_err());
        assert_eq!(
            interfaces(&format!("{head}    lo: 1\n  eth0: 1\nwlan0: 2\n")),
            Ok("sees eth0, wlan0".to_owned())
        );
    }

    #[test]
    fn targets_survive_the_command_line() {
        let targets = Targets {
            canary: "/x/canary".into(),
            outside: "/x".into(),
            socket: "/x/socket".into(),
            near_socket: "/w/socket".into(),
            abstract_name: "stockade-doctor".to_owned(),
            port: 1,
            pid: 2,
            namespaces: vec!["pid:[1]".into()],
        };
        let text = serde_json::to_string(&targets).expect("plain words");
        assert_eq!(serde_json::from_str::<Targets>(&text).expect("its own words"), targets);
    }
}
