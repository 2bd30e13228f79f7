//! Real peers on the test's own side: daemons that are started for one test and end with it, and an outside
//! world with a resolver and a web server in namespaces of its own (`resources/peers.py`). What clients make
//! of them is in `tests/line/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::line::Line;
use crate::ran::Running;
use crate::world::World;
use crate::{am_root, have, skip, until};

/// A resolver and a web server, made of this.
const PEERS: &str = include_str!("../resources/peers.py");

/// One authority and one certificate for every name that the server has.
const AUTHORITY: &str = r#"
set -e
new_key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $new_key -days 2 -subj "/CN=Stockade's test authority" -keyout ca.key -out ca.pem
openssl req $new_key -subj "/CN=stockade.test" -keyout server.key -out server.csr
printf 'subjectAltName=DNS:*.stockade.test\nbasicConstraints=CA:FALSE\n' > extensions
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.crt
cat server.key server.crt > server.pem
"#;

/// How long a daemon may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// A daemon in the foreground. Asked to end when dropped, and waited for; if this process dies, so does it.
#[derive(Debug)]
pub struct Daemon {
    running: Running,
    stop: Signal,
}

impl Daemon {
    /// Starts `words` in `directory` as this user, or as `nobody` where root is not taken.
    #[track_caller]
    pub fn start(words: &[&str], directory: &Path, identity: Identity) -> Self {
        let mut command = identity.command(words);
        command.current_dir(directory).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { running: Running::start(command, None), stop: Signal::TERM }
    }

    /// Which signal ends it at once and in order.
    #[must_use]
    pub fn stopped_by(mut self, signal: Signal) -> Self {
        self.stop = signal;
        self
    }

    /// Waits until `look` finds it ready.
    #[must_use]
    #[track_caller]
    pub fn ready(self, what: &str, mut look: impl FnMut() -> bool) -> Self {
        until(what, || {
            assert!(!self.running.ends_within(Duration::ZERO), "{what} ended: {}", self.running.out_now());
            look().then_some(())
        });
        self
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.running.signal(self.stop);
        // One that does not listen is killed by its own drop.
        let _ended = self.running.ends_within(GRACE);
    }
}

/// Who runs a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    Caller,
    /// As the caller, but not as root: `nobody` then.
    NeverRoot,
}

impl Identity {
    const NOBODY: u32 = 65534;

    fn is_nobody(self) -> bool {
        self == Self::NeverRoot && am_root()
    }

    /// `words` as this identity, to die with the thread that starts it.
    pub fn command(self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL");
        if self.is_nobody() {
            command.args([
                format!("--reuid={}", Self::NOBODY),
                format!("--regid={}", Self::NOBODY),
                "--clear-groups".into(),
            ]);
        }
        command.args(words);
        command
    }

    /// A fresh directory of its own.
    #[track_caller]
    pub fn directory(self, path: PathBuf) -> PathBuf {
        std::fs::create_dir(&path).expect("a fresh directory");
        if self.is_nobody() {
            let nobody = Some(Self::NOBODY);
            std::os::unix::fs::chown(&path, nobody, nobody).expect("root gives it away");
        }
        path
    }
}

/// The outside world. `other.stockade.test` is served as well as the rest, and no profile lists it.
#[derive(Debug)]
pub struct Peers {
    /// Killed before its files go; ends by itself when its stdin is closed, which is when this process is gone.
    _server: Running,
    world: World,
    enter: Vec<String>,
}

impl Peers {
    /// None, said loudly, where namespaces can't be made or a program is missing.
    #[track_caller]
    pub fn new(clients: &[&str]) -> Option<Self> {
        if !have(&["python3", "openssl", "unshare", "nsenter"]) || !have(clients) {
            return None;
        }
        let leave: &[&str] = if am_root() {
            &["--net", "--mount"]
        } else {
            // With the capabilities of the new namespaces and still as this user: root is another to stockade.
            &["--user", "--map-current-user", "--keep-caps", "--net", "--mount"]
        };
        let probe = Command::new("unshare").args(leave).arg("true").output();
        if !probe.is_ok_and(|done| done.status.success()) {
            skip("unshare can't make a network and a mount namespace");
            return None;
        }
        let world = World::with_own_toolchains();
        let outside = world.base().join("outside");
        world.plant("outside/peers.py", PEERS);
        world.plant("outside/log", "");
        shell(&outside, AUTHORITY);
        world.plant("work/ca.pem", world.read("outside/ca.pem"));
        world.profile("net", PROFILE);

        let mut command = Command::new("unshare");
        command.args(leave).arg("python3").arg(outside.join("peers.py")).arg(&outside);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = Running::start(command, None);
        server.wait_out("ready\n");
        let mut enter = vec!["nsenter".to_owned(), format!("--target={}", server.pid())];
        if !am_root() {
            enter.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        enter.extend(["--net".into(), "--mount".into()]);
        Some(Self { _server: server, world, enter })
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// `stockade run --profile net -- sh -c SCRIPT`, on a host whose resolver is the one of these peers.
    pub fn sh(&self, script: &str) -> Line<'_> {
        let enter: Vec<&str> = self.enter.iter().map(String::as_str).collect();
        self.world.sh(script).before(&enter).profile("net")
    }

    /// What came to the resolver (`dns NAME`) and to the server (`web HOST PATH`).
    pub fn log(&self) -> String {
        self.world.read("outside/log")
    }

    /// A directory that the web server shows.
    pub fn site(&self) -> PathBuf {
        self.world.base().join("outside/site")
    }
}

/// The names of the peers but for `other`, and the one address that they lead to. `inward` leads elsewhere, and so does `lured`, by an alias.
const PROFILE: &str = r#"
extends = "default"
network = "allowlist"

[egress]
allow = ["files.stockade.test", "git.stockade.test", "pip.stockade.test", "npm.stockade.test",
         "crates.stockade.test", "inward.stockade.test", "alias.stockade.test", "lured.stockade.test", "gone.stockade.test",
         "files.stockade.test:81", "127.10.0.1", "127.10.0.1:81"]
"#;

/// A script that has to succeed, on the host.
#[track_caller]
pub fn shell(directory: &Path, script: &str) {
    let done = Command::new("sh").args(["-c", script]).current_dir(directory).output().expect("sh runs");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}
