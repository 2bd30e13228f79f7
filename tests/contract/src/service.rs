//! `stockaded` in a temporary world: `state`, `work` (the default workspace), `run`, `home`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{Answer, deadline, until};

const PLAIN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where `stockaded`, `stockade-executor` and `stockade-init` are.
pub fn programs() -> PathBuf {
    if let Some(directory) = std::env::var_os("STOCKADE_BIN_DIR") {
        return PathBuf::from(directory);
    }
    let me = std::env::current_exe().expect("a running program has a path");
    // target/debug/deps/contract-HASH
    me.parent().and_then(Path::parent).expect("a test binary is two levels down").to_path_buf()
}

#[track_caller]
pub fn stockaded() -> PathBuf {
    for name in ["stockaded", "stockade-executor", "stockade-init"] {
        let path = programs().join(name);
        assert!(path.exists(), "{} is missing: build the workspace's programs first", path.display());
    }
    programs().join("stockaded")
}

/// How a service is started.
#[derive(Debug, Default)]
pub struct Options {
    pub secret: Option<String>,
    /// Lines of the configuration behind `state` and `[http]`.
    pub config: String,
    pub env: Vec<(String, String)>,
    /// In place of `127.0.0.1:0`.
    pub address: Option<String>,
    /// Its user's profiles: names and texts.
    pub profiles: Vec<(&'static str, &'static str)>,
    /// Its state directory is a small disk of its own.
    pub small_disk: bool,
}

/// As much as a state directory needs, and little more. Gone when it is dropped.
#[derive(Debug)]
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Self {
        fs::create_dir(at).expect("a fresh directory");
        mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(c"size=8m,mode=0700")).expect("root mounts");
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        match unmount(&self.0, UnmountFlags::DETACH) {
            // The test's own failure says more.
            Ok(()) | Err(_) => {}
        }
    }
}

#[derive(Debug)]
pub struct Service {
    child: Child,
    address: SocketAddr,
    said: Arc<Mutex<String>>,
    secret: Option<String>,
    _disk: Option<Disk>,
    base: TempDir,
}

/// A world and the command that would start a service in it.
fn prepare(options: &Options) -> (TempDir, Command) {
    // Not /tmp: an ordinary user's may be small.
    let above =
        std::env::var_os("STOCKADE_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let base = TempDir::with_prefix_in("stockade-contract-", above).expect("a temporary directory");
    for name in ["work", "run", "home"] {
        fs::create_dir(base.path().join(name)).expect("a fresh directory");
    }
    let at = |name: &str| base.path().join(name);
    let address = options.address.as_deref().unwrap_or("127.0.0.1:0");
    let config = format!(
        "state = {:?}\n\n[socket]\nenabled = false\n\n[http]\naddress = {address:?}\n\n{}",
        at("state"),
        options.config
    );
    let profiles = at("home").join("stockade/profiles");
    for (name, text) in &options.profiles {
        fs::create_dir_all(&profiles).expect("a fresh directory");
        fs::write(profiles.join(format!("{name}.toml")), text).expect("a fresh file");
    }
    fs::write(at("config.toml"), config).expect("a file in a fresh directory");
    let mut command = Command::new(stockaded());
    command.arg("--config").arg(at("config.toml"));
    command.env_clear().env("PATH", PLAIN_PATH).env("HOME", at("home"));
    command
        .env("XDG_RUNTIME_DIR", at("run"))
        .env("XDG_CONFIG_HOME", at("home"))
        .env("DEFAULT_CWD", at("work"));
    if let Some(secret) = &options.secret {
        command.env("EXECUTOR_SECRET", secret);
    }
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    (base, command)
}

impl Service {
    /// Started, listening, and with an executor.
    #[track_caller]
    pub fn start(options: Options) -> Self {
        let (base, mut command) = prepare(&options);
        let disk = options.small_disk.then(|| Disk::mount(&base.path().join("state")));
        let mut child = command.spawn().expect("stockaded starts");
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("it is piped");
        let log = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned() + "\n";
                log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
            }
        });
        let mut service = Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            said,
            secret: options.secret,
            _disk: disk,
            base,
        };
        service.address = until("stockaded to listen", || {
            let gone = service.child.try_wait().expect("it is our child");
            assert!(gone.is_none(), "stockaded ended: {}", service.said());
            service.listening()
        });
        until("an executor", || (service.get("/v1/doctor").json()["status"] == "ok").then_some(()));
        service
    }

    #[track_caller]
    pub fn plain() -> Self {
        Self::start(Options::default())
    }

    /// What a service that refuses to start says.
    #[track_caller]
    pub fn refused(options: &Options) -> String {
        let (_base, mut command) = prepare(options);
        let output = command.output().expect("stockaded starts");
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn listening(&self) -> Option<SocketAddr> {
        let said = self.said();
        let (_, behind) = said.split_once("http: listening on ")?;
        behind.split_once([' ', '\n', '"']).and_then(|(address, _)| address.parse().ok())
    }

    /// Everything on its stderr so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `work`, `state`, …
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// The header of a new token with these scopes.
    #[track_caller]
    pub fn token(&self, name: &str, scopes: &[&str]) -> String {
        let mut create = Command::new(programs().join("stockade"));
        create.args(["token", "create", name]).args(scopes.iter().flat_map(|scope| ["--scope", scope]));
        let made = create.arg("--state").arg(self.path("state")).output().expect("stockade starts");
        assert!(made.status.success(), "{made:?}");
        format!("Authorization: Bearer {}", String::from_utf8_lossy(&made.stdout).trim())
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(deadline())).expect("a timeout");
        stream.set_write_timeout(Some(deadline())).expect("a timeout");
        stream
    }

    /// Sends these bytes, and gives what comes back until the other side closes.
    #[track_caller]
    pub fn raw(&self, request: impl AsRef<[u8]>) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request.as_ref()).expect("it reads");
        rest(&mut stream)
    }

    /// A request with a body, its length, and the secret if there is one.
    pub fn request(&self, line: &str, fields: &[&str], body: &[u8]) -> Vec<u8> {
        let mut head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        if let Some(secret) = &self.secret {
            head.push_str(&format!("X-Executor-Secret: {secret}\r\n"));
        }
        for field in fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        request
    }

    #[track_caller]
    pub fn ask(&self, line: &str, fields: &[&str], body: impl AsRef<[u8]>) -> Answer {
        Answer::only(&self.raw(self.request(line, fields, body.as_ref())))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], "")
    }

    #[track_caller]
    pub fn execute(&self, body: impl AsRef<[u8]>) -> Answer {
        self.ask("POST /execute", &["Content-Type: application/json"], body)
    }

    #[track_caller]
    pub fn start_execution(&self, body: &serde_json::Value) -> Answer {
        self.ask("POST /v1/executions", &["Content-Type: application/json"], body.to_string())
    }

    /// Asks it to stop, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self) {
        self.ask_to_stop();
        let status = until("stockaded to end", || self.child.try_wait().expect("it is our child"));
        assert!(status.success(), "{status}: {}", self.said());
    }

    pub fn ask_to_stop(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // An error: it has ended.
            match kill_process(pid, Signal::TERM) {
                // It may have ended.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Until the other side closes.
#[track_caller]
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it answers and closes");
    bytes
}

impl Drop for Service {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.ask_to_stop();
            let end = std::time::Instant::now() + deadline();
            while matches!(self.child.try_wait(), Ok(None)) {
                if std::time::Instant::now() > end {
                    drop(self.child.kill());
                    break;
                }
                std::thread::sleep(crate::LOOK_AGAIN);
            }
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            // The test's own failure says what; this says why.
            drop(std::io::stderr().write_all(self.said().as_bytes()));
        }
    }
}
