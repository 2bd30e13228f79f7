//! One temporary world per test: `work` (the workspace), `home`, `config`, and room beside them.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::line::Line;

/// What a login shell of an ordinary user has, and root's directories.
pub(crate) const PLAIN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that name toolchains outside of the system's directories.
const TOOLCHAINS: [&str; 4] = ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR"];

/// Where `stockade` and `stockade-init` are.
pub fn programs() -> PathBuf {
    if let Some(directory) = std::env::var_os("STOCKADE_BIN_DIR") {
        return PathBuf::from(directory);
    }
    let me = std::env::current_exe().expect("a running program has a path");
    // target/debug/deps/line-HASH
    me.parent().and_then(Path::parent).expect("a test binary is two levels down").to_path_buf()
}

#[track_caller]
pub fn stockade() -> PathBuf {
    let path = programs().join("stockade");
    assert!(path.exists(), "{} is missing: build stockade-cli and stockade-init first", path.display());
    path
}

#[derive(Debug)]
pub struct World {
    base: TempDir,
    env: Vec<(OsString, OsString)>,
}

fn directory(path: &Path) {
    fs::create_dir(path).expect("a fresh directory");
    // Whatever umask the test was started with.
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its owner sets its mode");
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    #[track_caller]
    pub fn new() -> Self {
        // Not /tmp: an ordinary user's may be small, and is another file system than a project's.
        let above =
            std::env::var_os("STOCKADE_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let base = TempDir::with_prefix_in("stockade-line-", above).expect("a temporary directory");
        fs::set_permissions(base.path(), Permissions::from_mode(0o755)).expect("its owner sets its mode");
        let world = Self { env: plain_environment(base.path()), base };
        for name in ["work", "home", "config", "config/stockade", "config/stockade/profiles"] {
            directory(&world.base().join(name));
        }
        world
    }

    /// As `new`, with the caller's own PATH and home: for programs that live in toolchains.
    #[track_caller]
    pub fn with_own_toolchains() -> Self {
        let mut world = Self::new();
        for name in ["PATH", "HOME"].iter().chain(&TOOLCHAINS) {
            if let Some(value) = std::env::var_os(name) {
                world.set(name, value);
            }
        }
        world
    }

    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.into()));
    }

    pub fn unset(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    pub(crate) fn environment(&self) -> &[(OsString, OsString)] {
        &self.env
    }

    pub fn base(&self) -> &Path {
        self.base.path()
    }

    pub fn work(&self) -> PathBuf {
        self.base().join("work")
    }

    pub fn home(&self) -> PathBuf {
        self.base().join("home")
    }

    /// A file below the base.
    pub fn plant(&self, path: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.base().join(path);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("its directory");
        fs::write(&path, contents).expect("a fresh file");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("its owner sets its mode");
        path
    }

    pub fn executable(&self, path: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.plant(path, contents);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its owner sets its mode");
        path
    }

    /// A profile of the user's own.
    pub fn profile(&self, name: &str, text: &str) -> PathBuf {
        self.plant(&format!("config/stockade/profiles/{name}.toml"), text)
    }

    /// A profile in the workspace, where commands may write.
    pub fn workspace_profile(&self, name: &str, text: &str) -> PathBuf {
        self.plant(&format!("work/.stockade/{name}.toml"), text)
    }

    pub fn read(&self, path: &str) -> String {
        let path = self.base().join(path);
        match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }

    /// `stockade run ... -- WORDS`.
    pub fn line<W: Into<OsString> + Clone>(&self, words: &[W]) -> Line<'_> {
        Line::run(self, words.iter().cloned().map(Into::into).collect())
    }

    /// `stockade run ... -- sh -c SCRIPT`.
    pub fn sh(&self, script: &str) -> Line<'_> {
        self.line(&["sh", "-c", script])
    }

    /// `stockade WORDS`.
    pub fn cli(&self, words: &[&str]) -> Line<'_> {
        Line::cli(self, words.iter().map(OsString::from).collect())
    }
}

fn plain_environment(base: &Path) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), PLAIN_PATH.into()),
        ("HOME".into(), base.join("home").into()),
        ("XDG_CONFIG_HOME".into(), base.join("config").into()),
        ("LANG".into(), "C".into()),
        ("TERM".into(), "dumb".into()),
        ("USER".into(), "tester".into()),
    ];
    // An ordinary user's own systemd, where there is one, is asked for a delegated cgroup.
    for name in ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
        if let Some(value) = std::env::var_os(name) {
            env.push((name.into(), value));
        }
    }
    env
}

/// Every file in this directory and in those in it.
#[track_caller]
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory of ours");
    let below = entries.map(|entry| entry.expect("an entry").path());
    below.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}
