//! A directory with `stockaded`, a stand-in for the executor beside it, and a configuration. Whatever runs is ended
//! with it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn patience() -> Duration {
    let slow = std::env::var("STOCKADE_TEST_SLOW").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    PATIENCE * slow
}

#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(place.path("bin")).unwrap();
        fs::create_dir(place.path("work")).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_stockaded"));
        if fs::hard_link(program, place.path("bin/stockaded")).is_err() {
            fs::copy(program, place.path("bin/stockaded")).unwrap();
        }
        let executor = place.path("bin/stockade-executor");
        fs::write(&executor, include_str!("executor.py")).unwrap();
        fs::set_permissions(&executor, fs::Permissions::from_mode(0o755)).unwrap();
        place.configure("");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The configuration: places of its own, and what `rest` says.
    pub(crate) fn configure(&self, rest: &str) {
        let here = self.directory.path().display();
        let text = format!("state = \"{here}/state\"\nworkspaces = [\"{here}/work\"]\n{rest}");
        let text = if text.contains("[http]") {
            text
        } else {
            format!("{text}\n[http]\naddress = \"127.0.0.1:0\"\n")
        };
        let text = if text.contains("[socket]") {
            text
        } else {
            format!("{text}\n[socket]\npath = \"{here}/run/s\"\n")
        };
        fs::write(self.path("c.toml"), text).unwrap();
    }

    /// With an environment of its own.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.path("bin/stockaded"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.directory.path()).current_dir(self.path("work"));
        command.arg("--config").arg(self.path("c.toml")).stdin(Stdio::null());
        command
    }

    /// To its end.
    pub(crate) fn said(mut command: Command) -> (Option<i32>, String) {
        let output = command.output().unwrap();
        assert!(output.stdout.is_empty());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// What the stand-ins heard, in order.
    pub(crate) fn heard(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("bin/heard")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(crate) fn heard_methods(&self, method: &str) -> Vec<Value> {
        self.heard()
            .into_iter()
            .filter(|word| word["method"] == method)
            .map(|mut word| word["params"].take())
            .collect()
    }

    pub(crate) fn start(&self) -> Running {
        Running::start(self.command())
    }
}

pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Running {
    /// Returns when it serves.
    pub(crate) fn start(mut command: Command) -> Self {
        let running = Self::begin(&mut command);
        running.until_said("\"serving\"");
        running
    }

    pub(crate) fn begin(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (mut stderr, heard) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&said));
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while stderr.by_ref().take(1 << 20).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                heard.lock().unwrap().push(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        });
        Self { child, said }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    #[track_caller]
    pub(crate) fn until_said(&self, word: &str) {
        until(&format!("{word}; so far:\n{}", self.said()), || self.said().contains(word).then_some(()));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        until("its end", || self.child.try_wait().unwrap())
    }

    /// Asked to stop, it does, and says that all is well.
    #[track_caller]
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        assert_eq!(self.ended().code(), Some(0), "{}", self.said());
        self.said()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// A process that was told to end, or is ending.
pub(crate) fn is_alive(pid: u64) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// What a service manager hears.
pub(crate) struct Notes {
    socket: UnixDatagram,
    pub(crate) path: PathBuf,
    heard: Vec<String>,
}

impl Notes {
    pub(crate) fn new(place: &Place) -> Self {
        let path = place.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(patience())).unwrap();
        Self { socket, path, heard: Vec::new() }
    }

    /// The next note that has `word`.
    #[track_caller]
    pub(crate) fn until(&mut self, word: &str) -> String {
        loop {
            let mut note = [0; 4096];
            let length = self
                .socket
                .recv(&mut note)
                .unwrap_or_else(|error| panic!("{word}: {error}; {:?}", self.heard));
            let note = String::from_utf8_lossy(&note[..length]).into_owned();
            self.heard.push(note.clone());
            if note.contains(word) {
                return note;
            }
        }
    }
}
