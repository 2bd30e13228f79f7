//! One `stockade` command line, put together step by step.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::ran::{Ran, Running};
use crate::unique;
use crate::world::{World, stockade};

#[derive(Debug)]
enum Input {
    Null,
    Bytes(Vec<u8>),
    /// The test writes to it.
    Open,
    From(OwnedFd),
}

#[derive(Debug)]
#[must_use]
pub struct Line<'w> {
    world: &'w World,
    /// Before the command, if there is one.
    options: Vec<OsString>,
    command: Option<Vec<OsString>>,
    /// What starts `stockade`: `setsid -c -w`, a shell with a redirection.
    before: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    clear: bool,
    cwd: PathBuf,
    workspace: Option<OsString>,
    json: Option<PathBuf>,
    input: Input,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl<'w> Line<'w> {
    pub(crate) fn cli(world: &'w World, words: Vec<OsString>) -> Self {
        Self {
            world,
            options: words,
            command: None,
            before: Vec::new(),
            env: Vec::new(),
            clear: false,
            cwd: world.work(),
            workspace: None,
            json: None,
            input: Input::Null,
            stdout: None,
            stderr: None,
        }
    }

    pub(crate) fn run(world: &'w World, command: Vec<OsString>) -> Self {
        Self {
            command: Some(command),
            workspace: Some(world.work().into()),
            json: Some(world.base().join(format!("{}.json", unique("result-")))),
            ..Self::cli(world, vec![OsString::from("run")])
        }
    }

    pub fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.options.extend([OsString::from(name), value.as_ref().to_owned()]);
        self
    }

    pub fn flag(mut self, name: &str) -> Self {
        self.options.push(OsString::from(name));
        self
    }

    pub fn profile(self, name: &str) -> Self {
        self.option("--profile", name)
    }

    pub fn timeout(self, time: &str) -> Self {
        self.option("--timeout", time)
    }

    /// A variable of the caller's: of `stockade` itself, not of the command.
    pub fn caller_env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Nothing in the caller's environment but what follows.
    pub fn clear_env(mut self) -> Self {
        self.clear = true;
        self
    }

    pub fn workspace(mut self, path: impl AsRef<OsStr>) -> Self {
        self.workspace = Some(path.as_ref().to_owned());
        self
    }

    /// Leave `--workspace` away.
    pub fn no_workspace(mut self) -> Self {
        self.workspace = None;
        self
    }

    /// Leave `--json` away.
    pub fn no_json(mut self) -> Self {
        self.json = None;
        self
    }

    /// Where `stockade` itself is started.
    pub fn from_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = path.into();
        self
    }

    pub fn before(mut self, words: &[&str]) -> Self {
        self.before = words.iter().map(OsString::from).collect();
        self
    }

    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Input::Bytes(bytes.into());
        self
    }

    pub fn input_from(mut self, fd: impl Into<OwnedFd>) -> Self {
        self.input = Input::From(fd.into());
        self
    }

    /// stdin stays open until the test closes it.
    pub fn input_open(mut self) -> Self {
        self.input = Input::Open;
        self
    }

    pub fn stdout_to(mut self, fd: impl Into<OwnedFd>) -> Self {
        self.stdout = Some(fd.into());
        self
    }

    pub fn stderr_to(mut self, fd: impl Into<OwnedFd>) -> Self {
        self.stderr = Some(fd.into());
        self
    }

    fn words(&self) -> Vec<OsString> {
        let mut words = self.before.clone();
        words.push(stockade().into());
        let (verb, options) = self.options.split_first().expect("a verb");
        words.push(verb.clone());
        if let Some(workspace) = &self.workspace {
            words.extend(["--workspace".into(), workspace.clone()]);
        }
        if let Some(json) = &self.json {
            words.extend(["--json".into(), json.clone().into()]);
        }
        words.extend(options.iter().cloned());
        if let Some(command) = &self.command {
            words.push("--".into());
            words.extend(command.iter().cloned());
        }
        words
    }

    /// As a test starts it by hand. `input`, `stdout_to` and `stderr_to` have no say here.
    pub fn command(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().current_dir(&self.cwd);
        if !self.clear {
            command.envs(self.world.environment().iter().map(|(name, value)| (name, value)));
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    #[track_caller]
    pub fn start(self) -> Running {
        let mut command = self.command();
        let bytes = match self.input {
            Input::Null => {
                command.stdin(Stdio::null());
                None
            }
            Input::From(fd) => {
                command.stdin(Stdio::from(fd));
                None
            }
            Input::Open => {
                command.stdin(Stdio::piped());
                None
            }
            Input::Bytes(bytes) => {
                command.stdin(Stdio::piped());
                Some(bytes)
            }
        };
        command.stdout(self.stdout.map_or_else(Stdio::piped, Stdio::from));
        command.stderr(self.stderr.map_or_else(Stdio::piped, Stdio::from));
        let mut running = Running::start(command, self.json);
        if let Some(bytes) = bytes {
            running.feed(bytes);
        }
        running
    }

    #[track_caller]
    pub fn go(self) -> Ran {
        self.start().finish()
    }
}
