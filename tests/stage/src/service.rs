//! One service per test: started with a configuration file, watched by its stderr, ended with the test.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stockade_line_tests::{World, children, command_line, deadline, kill, programs, unique, until};

use crate::wire::{Framing, Wire};

/// What a service has to end what runs before it is killed.
const GRACE: Duration = Duration::from_secs(40);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[track_caller]
pub fn stockaded() -> PathBuf {
    for name in ["stockaded", "stockade-executor", "stockade-init"] {
        let path = programs().join(name);
        assert!(path.exists(), "{} is missing: build stockade-daemon and its friends first", path.display());
    }
    programs().join("stockaded")
}

/// What a test changes of the configuration, as TOML.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Before the first table.
    pub top: String,
    /// Within `[socket]`.
    pub socket: String,
    /// Tables.
    pub tables: String,
}

/// A running `stockaded`.
#[derive(Debug)]
pub struct Service {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    config: PathBuf,
}

impl Service {
    #[track_caller]
    pub fn start(world: &World) -> Self {
        Self::with(world, &Settings::default())
    }

    #[track_caller]
    pub fn with(world: &World, settings: &Settings) -> Self {
        let mut service = Self::launch(world, settings);
        let ended = until("the service to listen", || {
            let ended = service.child.try_wait().expect("a child can be asked");
            let listens = service.log().contains("socket: listening on");
            (ended.is_some() || listens).then_some(ended)
        });
        assert!(ended.is_none(), "it did not start: {}", service.log());
        service
    }

    /// Started, and nothing waited for.
    #[track_caller]
    pub fn launch(world: &World, settings: &Settings) -> Self {
        let socket = world.base().join("s.sock");
        let mut text =
            format!("state = {:?}\nworkspaces = [{:?}]\n", world.base().join("state"), world.work());
        writeln!(text, "{}\n[socket]\npath = {socket:?}\n{}", settings.top, settings.socket)
            .expect("a string takes it");
        if !settings.tables.contains("[http]") {
            text.push_str("[http]\nenabled = false\n");
        }
        writeln!(text, "[log]\nformat = \"text\"\n{}", settings.tables).expect("a string takes it");
        let config = world.plant(&unique("config-"), text);
        let log = world.base().join(unique("log-"));
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=TERM").arg(stockaded()).arg("--config").arg(&config).env_clear();
        for name in ["PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("HOME", world.home()).env("XDG_CONFIG_HOME", world.base().join("config"));
        command.env("LANG", "C").current_dir(world.work()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).expect("a fresh file"));
        let child = command.spawn().expect("setpriv is part of every Debian");
        Self { child, socket, log, config }
    }

    pub fn log(&self) -> String {
        fs::read(&self.log).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn config(&self) -> &PathBuf {
        &self.config
    }

    pub fn socket(&self) -> &PathBuf {
        &self.socket
    }

    #[track_caller]
    pub fn connect(&self) -> Wire {
        Wire::connect(&self.socket, Framing::Lines)
    }

    #[track_caller]
    pub fn connect_counted(&self) -> Wire {
        Wire::connect(&self.socket, Framing::Lengths)
    }

    /// The executor that it has now.
    #[track_caller]
    pub fn executor(&self) -> u32 {
        let own = |pid: &u32| command_line(*pid).contains("stockade-executor");
        until("an executor", || children(self.pid()).into_iter().find(own))
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// How it ended, which it must within the deadline.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        match self.within(deadline()) {
            Some(status) => status,
            None => panic!("the service does not end: {}", self.log()),
        }
    }

    fn within(&mut self, time: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + time;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return Some(status);
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// SIGKILL, and gone when this returns.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.ended().signal(), Some(Signal::KILL.as_raw()));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.within(GRACE).is_none() {
            self.signal(Signal::KILL);
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            drop(std::io::Write::write_all(&mut std::io::stderr(), self.log().as_bytes()));
        }
    }
}
