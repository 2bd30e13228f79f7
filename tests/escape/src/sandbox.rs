//! One temporary world per test: `work` (the workspace), `outside` (secrets that every user of the
//! machine may read and write, so that only a wall can be what stops an attack), `home`, `config`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use stockade_proto::Layer;
use tempfile::TempDir;

use crate::ran::{Ran, Running};
use crate::verdict::Verdict;
use crate::wall::am_root;

/// What attackers look for. Plain words: nothing that a redactor would take for a token.
pub const SECRET: &str = "the walrus sleeps at noon";

/// A uid that no account has.
const ORDINARY: u32 = 64_321;

const PROFILE: &str = "escape";

#[derive(Debug)]
pub struct Sandbox {
    base: TempDir,
    env: Vec<(String, String)>,
    options: Vec<String>,
    stage: Vec<String>,
    cwd: Option<PathBuf>,
    group: Option<i32>,
    profile: String,
}

fn programs() -> PathBuf {
    if let Some(directory) = std::env::var_os("STOCKADE_BIN_DIR") {
        return PathBuf::from(directory);
    }
    let me = std::env::current_exe().expect("a running program has a path");
    // target/debug/deps/escape-HASH
    me.parent().and_then(Path::parent).expect("a test binary is two levels down").to_path_buf()
}

#[track_caller]
fn program(name: &str) -> PathBuf {
    let path = programs().join(name);
    assert!(
        path.exists(),
        "{} is missing: cargo build -p stockade-cli -p stockade-init -p stockade-attack",
        path.display()
    );
    path
}

#[track_caller]
pub fn stockade_program() -> PathBuf {
    program("stockade")
}

#[track_caller]
pub fn attack_program() -> PathBuf {
    program("stockade-attack")
}

/// Attackers get a marker backwards, so that they do not find it in their own argv.
pub fn reversed(marker: &str) -> String {
    marker.chars().rev().collect()
}

fn directory(path: &Path, mode: u32) {
    fs::create_dir(path).expect("a fresh directory");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its owner sets its mode");
}

/// Above the base. A sandbox has a scratch of its own at `/tmp` and `/var/tmp`, which hides a workspace's
/// neighbours by itself, so root takes a place where only the wall can.
fn ground() -> PathBuf {
    PathBuf::from(if am_root() { "/var/lib" } else { "/var/tmp" })
}

/// A link, because a copy made here could be refused with ETXTBSY while another test's child still
/// holds the half-written file; where links are refused, another process makes the copy.
fn place(from: &Path, to: &Path) {
    // A link to a symlink would be that symlink.
    let from = &fs::canonicalize(from).expect("a program that exists");
    if fs::hard_link(from, to).is_err() {
        let copied = Command::new("cp").arg(from).arg(to).status().expect("cp runs");
        assert!(copied.success(), "cp {} {}", from.display(), to.display());
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    #[track_caller]
    pub fn new() -> Self {
        let above = std::env::var_os("STOCKADE_TEST_DIR").map_or_else(ground, PathBuf::from);
        let base = TempDir::with_prefix_in("stockade-escape-", above).expect("a temporary directory");
        fs::set_permissions(base.path(), Permissions::from_mode(0o755)).expect("its owner sets its mode");
        let sandbox = Self {
            base,
            env: Vec::new(),
            options: Vec::new(),
            stage: Vec::new(),
            cwd: None,
            group: None,
            profile: String::new(),
        };
        directory(&sandbox.workspace(), 0o755);
        directory(&sandbox.outside(), 0o777);
        directory(&sandbox.home(), 0o755);
        directory(&sandbox.base().join("config"), 0o755);
        fs::create_dir_all(sandbox.base().join("config/stockade/profiles")).expect("the profile directory");
        place(&attack_program(), &sandbox.workspace().join("attack"));
        sandbox.plant("outside/secret", SECRET);
        sandbox
    }

    pub fn base(&self) -> &Path {
        self.base.path()
    }

    pub fn workspace(&self) -> PathBuf {
        self.base().join("work")
    }

    pub fn outside(&self) -> PathBuf {
        self.base().join("outside")
    }

    pub fn home(&self) -> PathBuf {
        self.base().join("home")
    }

    pub fn secret(&self) -> PathBuf {
        self.outside().join("secret")
    }

    /// A file below the base that everybody may read and write.
    pub fn plant(&self, path: &str, contents: &str) -> PathBuf {
        let path = self.base().join(path);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("its directory");
        fs::write(&path, contents).expect("a fresh file");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("its owner sets its mode");
        path
    }

    /// The body of the profile that extends the default one.
    #[must_use]
    pub fn profile(mut self, body: &str) -> Self {
        self.profile = body.to_owned();
        self
    }

    /// As `profile`, for a body that names paths of this sandbox.
    #[must_use]
    pub fn profile_with(self, body: impl Fn(&Path) -> String) -> Self {
        let body = body(self.base());
        self.profile(&body)
    }

    /// Everything as by default, but for these layers and what can't be without them: a promise that no
    /// layer would keep is refused, so it is taken back, and a namespace goes with the one it stands on.
    #[must_use]
    pub fn without(self, layers: &[Layer]) -> Self {
        let mut off = layers.to_vec();
        if off.contains(&Layer::Process) {
            off.extend([Layer::Filesystem, Layer::Network]);
        }
        if off.contains(&Layer::Seccomp) {
            off.push(Layer::Sockets);
        }
        off.sort();
        off.dedup();
        let mut body = String::new();
        if off.contains(&Layer::Filesystem) && off.contains(&Layer::Landlock) {
            body.push_str("fs = \"inherit\"\n");
        }
        if off.contains(&Layer::Network) {
            body.push_str("network = \"inherit\"\n");
        }
        body.push_str("[layers]\n");
        for layer in off {
            body.push_str(&format!("{layer} = \"off\"\n"));
        }
        self.profile(&body)
    }

    /// Root gives the workspace to an ordinary user, and to everybody to write in: without a user namespace
    /// that user is who the command runs as, and without id-mapped mounts the command is somebody else again.
    #[must_use]
    pub fn given_away(self) -> Self {
        if am_root() {
            let owner = format!("{ORDINARY}:{ORDINARY}");
            let given = Command::new("chown").args(["-R", &owner]).arg(self.workspace()).status();
            assert!(given.expect("chown runs").success());
            fs::set_permissions(self.workspace(), Permissions::from_mode(0o777)).expect("root sets its mode");
        }
        self
    }

    /// A variable of the caller: of `stockade` itself, not of the command.
    #[must_use]
    pub fn caller_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// An option of `stockade run`.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Start through a stage step of the attacker's program: `with-fds ... --`.
    #[must_use]
    pub fn staged(mut self, words: &str) -> Self {
        self.stage = words.split(' ').map(str::to_owned).collect();
        self
    }

    /// Where `stockade` itself is started.
    #[must_use]
    pub fn from_directory(mut self, cwd: &Path) -> Self {
        self.cwd = Some(cwd.to_path_buf());
        self
    }

    /// Start in the process group of another process.
    #[must_use]
    pub fn in_group(mut self, group: u32) -> Self {
        self.group = i32::try_from(group).ok();
        self
    }

    fn command(&self, words: &[String]) -> Command {
        let mut words = words.to_vec();
        if !self.stage.is_empty() {
            let mut staged = vec![attack_program().display().to_string()];
            staged.extend(self.stage.iter().cloned());
            staged.push(String::from("--"));
            staged.append(&mut words);
            words = staged;
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", self.home()).env("XDG_CONFIG_HOME", self.base().join("config"));
        command.env("LANG", "C").env("TERM", "dumb").env("USER", "tester");
        // An ordinary user's own systemd, where there is one, is asked for a delegated cgroup.
        for name in ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(group) = self.group {
            command.process_group(group);
        }
        command
    }

    fn json(&self) -> PathBuf {
        self.base().join("result.json")
    }

    fn stockade(&self, words: &[&str]) -> Command {
        let profile = format!("extends = \"default\"\n{}", self.profile);
        let path = self.base().join("config/stockade/profiles").join(format!("{PROFILE}.toml"));
        fs::write(path, profile).expect("the profile");
        let mut line: Vec<String> = vec![stockade_program().display().to_string()];
        line.extend(["run", "--profile", PROFILE, "--workspace"].map(str::to_owned));
        line.push(self.workspace().display().to_string());
        line.extend([String::from("--json"), self.json().display().to_string()]);
        line.extend(self.options.iter().cloned());
        line.push(String::from("--"));
        line.extend(words.iter().map(|word| (*word).to_owned()));
        let mut command = self.command(&line);
        command.current_dir(self.cwd.clone().unwrap_or_else(|| self.workspace()));
        command
    }

    /// A command in the sandbox, under way.
    #[track_caller]
    pub fn start(&self, words: &[&str]) -> Running {
        // The result of an execution before this one must not be taken for this one's.
        drop(fs::remove_file(self.json()));
        Running::start(self.stockade(words), Some(self.json()))
    }

    #[track_caller]
    pub fn run(&self, words: &[&str]) -> Ran {
        self.start(words).finish()
    }

    /// The attacker in the sandbox, under way; steps as one line.
    #[track_caller]
    pub fn start_attack(&self, steps: &str) -> Running {
        let attack = self.workspace().join("attack").display().to_string();
        let mut words = vec![attack.as_str()];
        words.extend(steps.split(' '));
        self.start(&words)
    }

    /// As `start_attack`, with a shell between the test and `stockade`.
    #[track_caller]
    pub fn start_under_shell(&self, steps: &str) -> Running {
        let attack = self.workspace().join("attack").display().to_string();
        let mut words = vec![attack.as_str()];
        words.extend(steps.split(' '));
        let inner = self.stockade(&words);
        let mut shell = Command::new("/bin/sh");
        // A second command keeps the shell from becoming the first one.
        shell.args(["-c", "\"$@\"; :", "sh"]).arg(inner.get_program()).args(inner.get_args());
        shell.env_clear().current_dir(self.workspace());
        shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running::start(shell, None)
    }

    #[track_caller]
    pub fn run_attack(&self, steps: &str) -> Ran {
        self.start_attack(steps).finish()
    }

    #[track_caller]
    pub fn attack(&self, steps: &str) -> Verdict {
        Verdict::of(&self.run_attack(steps))
    }

    /// The attacker on the host: no `stockade` in between, same stage, same directory, same variables.
    #[track_caller]
    pub fn start_bare(&self, steps: &str) -> Running {
        let mut words = vec![attack_program().display().to_string()];
        words.extend(steps.split(' ').map(str::to_owned));
        let mut command = self.command(&words);
        command.current_dir(self.workspace());
        Running::start(command, None)
    }

    #[track_caller]
    pub fn run_bare(&self, steps: &str) -> Ran {
        self.start_bare(steps).finish()
    }

    #[track_caller]
    pub fn bare(&self, steps: &str) -> Verdict {
        Verdict::of(&self.run_bare(steps))
    }

    /// `stockade` with these arguments, as the test's user.
    #[track_caller]
    pub fn start_cli(&self, words: &[&str]) -> Running {
        let mut line = vec![stockade_program().display().to_string()];
        line.extend(words.iter().map(|word| (*word).to_owned()));
        let mut command = self.command(&line);
        command.current_dir(self.cwd.clone().unwrap_or_else(|| self.workspace()));
        Running::start(command, None)
    }

    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> Ran {
        self.start_cli(words).finish()
    }
}
