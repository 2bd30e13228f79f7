//! The set `registries`: what this host's npm, pip, cargo and go are configured to fetch from. Their settings
//! are read directly; a tool whose default is in no file is asked, briefly, and only when the set is used.
//! Nothing that a command could have written is read, and only root's programs are run; for root itself, only the
//! system's. Next: `stockade_policy::plan`.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use stockade_policy::{
    Caller, Configured, Registry, cargo_dl, cargo_index, cargo_settings, go_settings, host_of, npm_settings,
    pip_default, pip_settings,
};
use stockade_proto::Bytes;

use super::ways::{Ways, is_below};
use super::{MAX_MATCHES, MAX_TEXT_BYTES, object, path_directories, read_bounded};

/// A tool that takes longer is stuck, and nobody waits longer for a plan.
const PATIENCE: Duration = Duration::from_secs(5);

/// An answer is a line or two.
const MAX_ANSWER: u64 = 64 * 1024;

/// A home without anything in it: the caller's settings were read already, and python runs code out of a
/// home's site-packages. Nothing of the caller's environment is passed either; this runs outside of every wall.
const NO_HOME: &str = "/dev/null";

/// What was found, and what a person should know about the rest.
#[derive(Debug, Default)]
pub struct Asked {
    pub registries: Vec<Registry>,
    pub warnings: Vec<String>,
}

/// `written` are the directories that commands can write.
pub fn registries(caller: &Caller, written: &[PathBuf]) -> Asked {
    ask_host(caller, written, Trust::of(caller))
}

fn ask_host(caller: &Caller, written: &[PathBuf], trust: Trust) -> Asked {
    let mut asked = Asked::default();
    let path = path_directories(caller, &Ways::but(written), &mut asked.warnings);
    let path = path.into_iter().filter(|directory| !is_below(directory, written)).collect();
    let mut host = Host { caller, written, path, trust, asked };
    host.npm();
    host.pip();
    host.cargo();
    host.go();
    host.asked.registries.sort();
    host.asked.registries.dedup();
    host.asked
}

/// Which programs may be run, and what is wrong with the others.
#[derive(Debug, Clone, Copy)]
struct Trust {
    may_run: fn(&Path) -> bool,
    otherwise: &'static str,
}

impl Trust {
    const fn of(caller: &Caller) -> Self {
        if caller.uid == 0 {
            Self { may_run: is_systems, otherwise: "it is not root's below /usr, /bin, /sbin or /opt" }
        } else {
            Self { may_run: is_roots, otherwise: "its directory is not root's" }
        }
    }
}

/// Where packages put programs. What root's commands write is root's too, wherever a profile let them write: for
/// root as the caller, an owner proves nothing.
const SYSTEM: [&str; 4] = ["/usr", "/bin", "/sbin", "/opt"];

fn is_systems(real: &Path) -> bool {
    SYSTEM.iter().any(|system| real.starts_with(system)) && is_roots(real)
}

/// Whether only root can have put there what is at a real path: a command of any profile, at any time, may
/// have written whatever else the caller can.
fn is_roots(real: &Path) -> bool {
    real.is_absolute()
        && real.ancestors().all(|part| {
            rustix::fs::lstat(part).is_ok_and(|stat| {
                let kind = FileType::from_raw_mode(stat.st_mode);
                stat.st_uid == 0 && stat.st_mode & 0o022 == 0 && (kind.is_dir() || kind.is_file())
            })
        })
}

struct Host<'h> {
    caller: &'h Caller,
    written: &'h [PathBuf],
    path: Vec<PathBuf>,
    trust: Trust,
    asked: Asked,
}

impl Host<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        let value = self.caller.variable(name)?.to_string();
        (!value.is_empty()).then_some(value)
    }

    fn home(&self) -> &Path {
        self.caller.home.as_path()
    }

    fn config(&self) -> PathBuf {
        let own = self.caller.variable("XDG_CONFIG_HOME").filter(|path| path.as_path().is_absolute());
        own.map_or_else(|| self.home().join(".config"), Bytes::to_path_buf)
    }

    /// A settings file, unless it is, or leads to, something that commands can write.
    fn text(&mut self, file: &Path) -> Option<String> {
        let real = object(file).ok()?.path;
        if self.is_written(file) {
            return None;
        }
        String::from_utf8(read_bounded(real.as_path(), MAX_TEXT_BYTES)?).ok()
    }

    /// Whether commands can write what is at a path, or the directory that names it; told if so.
    fn is_written(&mut self, path: &Path) -> bool {
        let places = [Some(path), path.parent()].into_iter().flatten().filter_map(|path| object(path).ok());
        let written = places.into_iter().any(|place| is_below(place.path.as_path(), self.written));
        if written {
            let path = Bytes::from(path);
            self.asked
                .warnings
                .push(format!("`{path}` lies where commands can write, so that it is not asked"));
        }
        written
    }

    fn texts(&mut self, files: &[PathBuf], read: fn(&str) -> Configured) -> Configured {
        let mut found = Configured::default();
        for file in files {
            if let Some(text) = self.text(file) {
                found.join(read(&text));
            }
        }
        found
    }

    fn add(&mut self, tool: &'static str, found: &Configured) {
        for url in &found.urls {
            match host_of(url) {
                Some((host, port)) => self.asked.registries.push(Registry { tool, host, port }),
                None if url.contains("://") && !url.starts_with("file:") => {
                    self.asked.warnings.push(format!(
                        "{tool} is configured to use `{}`, which is not reached by http or https",
                        without_login(url)
                    ))
                }
                None => {}
            }
        }
    }

    fn unknown(&mut self, tool: &str) {
        self.asked.warnings.push(format!(
            "set:registries: {tool} has no registry configured, and its own default is not known; name the host in the profile"
        ));
    }

    /// Programs of PATH with that name, at their real places, in order.
    fn installed(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        self.path.iter().filter_map(move |directory| {
            let file = directory.join(name);
            let real = object(&file).ok()?;
            let usable = !real.is_dir && !is_below(real.path.as_path(), self.written);
            (usable && rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok())
                .then(|| real.path.to_path_buf())
        })
    }

    /// The first one that may be run.
    fn program(&mut self, name: &str) -> Option<PathBuf> {
        let found = self.installed(name).collect::<Vec<_>>();
        let usable = found.iter().find(|real| (self.trust.may_run)(real));
        if let (Some(first), None) = (found.first(), usable) {
            self.asked.warnings.push(format!(
                "set:registries: {name} at `{}` is not asked, because {}; name the registry in the profile",
                Bytes::from(first.as_path()),
                self.trust.otherwise
            ));
        }
        usable.cloned()
    }

    fn npm(&mut self) {
        let own = self.variable("NPM_CONFIG_USERCONFIG").or_else(|| self.variable("npm_config_userconfig"));
        let own = own.map_or_else(|| self.home().join(".npmrc"), PathBuf::from);
        let mut found = self.texts(&[own, PathBuf::from("/etc/npmrc")], npm_settings);
        for (name, value) in &self.caller.env {
            let name = name.to_string().to_ascii_lowercase();
            if let Some(key) = name.strip_prefix("npm_config_") {
                found.join(npm_settings(&format!("{key}={value}")));
            }
        }
        if !found.names_default
            && let Some(npm) = self.program("npm")
        {
            match self.ask(&npm, &["config", "get", "registry"]) {
                Some(answer) => found.join(npm_settings(&format!("registry={}", answer.trim()))),
                None => self.unknown("npm"),
            }
        }
        self.add("npm", &found);
    }

    fn pip(&mut self) {
        let mut files = vec![
            PathBuf::from("/etc/pip.conf"),
            self.config().join("pip/pip.conf"),
            self.home().join(".pip/pip.conf"),
        ];
        files.extend(self.variable("PIP_CONFIG_FILE").map(PathBuf::from));
        let mut found = self.texts(&files, pip_settings);
        for name in ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"] {
            if let (Some(value), Some(key)) = (self.variable(name), name.strip_prefix("PIP_")) {
                found.join(pip_settings(&format!("{key}={value}")));
            }
        }
        if !found.names_default
            && let Some(pip) = self.program("pip3").or_else(|| self.program("pip"))
        {
            match self.pip_itself(&pip) {
                Some(default) => found.join(default),
                None => self.unknown("pip"),
            }
        }
        self.add("pip", &found);
    }

    /// pip keeps its default in a file of its own, and tells where it lies: `pip 1.2 from DIRECTORY (python 3)`.
    fn pip_itself(&mut self, pip: &Path) -> Option<Configured> {
        let answer = self.ask(pip, &["--version"])?;
        let (_, rest) = answer.split_once(" from ")?;
        let (directory, _) = rest.rsplit_once(" (python")?;
        let source = self.text(&Path::new(directory).join("_internal/models/index.py"))?;
        Some(pip_default(&source)).filter(|found| found.names_default)
    }

    fn cargo(&mut self) {
        let home = self.variable("CARGO_HOME").map_or_else(|| self.home().join(".cargo"), PathBuf::from);
        let mut found = self.texts(&[home.join("config.toml"), home.join("config")], cargo_settings);
        for (name, value) in &self.caller.env {
            let (name, value) = (name.to_string(), value.to_string());
            let registry = name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX");
            let source = name.starts_with("CARGO_SOURCE_") && name.ends_with("_REGISTRY");
            let replaced = name.starts_with("CARGO_SOURCE_") && name.ends_with("_REPLACE_WITH");
            let urls = if registry || source { vec![value] } else { Vec::new() };
            found.join(Configured { urls, names_default: replaced });
        }
        // cargo's default is in its program alone, but each index that it has used lies here with the host
        // that it downloads from.
        let named = found.urls.iter().filter_map(|url| Some(host_of(url)?.0)).collect::<Vec<_>>();
        let default_is_named = found.names_default;
        let mut cached = Configured::default();
        for (host, directory) in self.cached_indexes(&home) {
            if default_is_named && !named.contains(&host) {
                continue;
            }
            let mut urls = vec![format!("https://{host}/")];
            urls.extend(self.text(&directory.join("config.json")).as_deref().and_then(cargo_dl));
            cached.join(Configured { urls, names_default: true });
        }
        found.join(cached);
        if !found.names_default && self.installed("cargo").next().is_some() {
            self.unknown("cargo");
        }
        self.add("cargo", &found);
    }

    /// The names of directories are taken for hosts here, so that whoever can make one names a host.
    fn cached_indexes(&mut self, home: &Path) -> Vec<(String, PathBuf)> {
        let index = home.join("registry/index");
        let Ok(entries) = std::fs::read_dir(&index) else { return Vec::new() };
        if [&index, &home.join("registry"), home].into_iter().any(|place: &Path| self.is_written(place)) {
            return Vec::new();
        }
        let indexes = entries.flatten().take(MAX_MATCHES).filter_map(|entry| {
            let name = entry.file_name();
            Some((cargo_index(name.to_str()?)?.to_owned(), entry.path()))
        });
        indexes.collect()
    }

    fn go(&mut self) {
        let file = self.variable("GOENV").map_or_else(|| self.config().join("go/env"), PathBuf::from);
        let mut found = Configured::default();
        let mut said: Vec<String> = Vec::new();
        for name in ["GOPROXY", "GOSUMDB"] {
            said.extend(self.variable(name).map(|value| format!("{name}={value}")));
        }
        // The environment goes before the file.
        found.join(go_settings(&said.join("\n")));
        if !found.names_default {
            found.join(self.texts(&[file], go_settings));
        }
        if !found.names_default
            && let Some(go) = self.program("go")
        {
            match self.ask(&go, &["env", "GOPROXY", "GOSUMDB"]) {
                Some(answer) => {
                    let mut lines = answer.lines();
                    let mut next = || lines.next().unwrap_or_default().to_owned();
                    found.join(go_settings(&format!("GOPROXY={}\nGOSUMDB={}", next(), next())));
                }
                None => self.unknown("go"),
            }
        }
        self.add("go", &found);
    }

    /// What a tool prints, run in `/` with nothing of the caller's environment and no input. Its interpreter is
    /// found by PATH, which holds trusted directories only.
    fn ask(&self, program: &Path, arguments: &[&str]) -> Option<String> {
        let directories = self.path.iter().filter(|directory| (self.trust.may_run)(directory));
        let path = std::env::join_paths(directories).ok()?;
        let child = Command::new(program)
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .env("HOME", NO_HOME)
            .env("PATH", path)
            .env("GOTOOLCHAIN", "local")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        answer(child, Instant::now() + PATIENCE)
    }
}

fn without_login(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (Some(_) | None, _) => url.to_owned(),
    }
}

/// Its output, if it ends in time and well. Whatever it started is gone when this returns.
fn answer(mut child: Child, deadline: Instant) -> Option<String> {
    let pid = Pid::from_child(&child);
    let text = child.stdout.take().and_then(|output| {
        let mut text = Vec::new();
        let mut output = output.take(MAX_ANSWER);
        let mut chunk = [0; 4096];
        while wait(output.get_ref().as_fd(), deadline) {
            match output.read(&mut chunk) {
                Ok(0) => return String::from_utf8(text).ok(),
                Ok(count) => text.extend_from_slice(chunk.get(..count)?),
                Err(_) => return None,
            }
        }
        None
    });
    let ended = pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|fd| wait(fd.as_fd(), deadline));
    match kill_process_group(pid, Signal::KILL) {
        // Nothing of it is left: that is what was wanted.
        Ok(()) | Err(_) => {}
    }
    let status = child.wait().ok()?;
    text.filter(|_| ended && status.success())
}

fn wait(fd: std::os::fd::BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::INTR) if !left.is_zero() => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use tempfile::TempDir;

    const ANY: Trust = Trust { may_run: |_| true, otherwise: "" };

    fn trust(uid: u32) -> Trust {
        Trust::of(&Caller { uid, ..super::super::caller() })
    }

    struct Ground {
        base: TempDir,
    }

    impl Ground {
        fn new() -> Self {
            let base = tempfile::tempdir().expect("directory");
            for name in ["home", "bin", "work"] {
                fs::create_dir(base.path().join(name)).expect("directory");
            }
            Self { base }
        }

        fn path(&self, below: &str) -> PathBuf {
            self.base.path().canonicalize().expect("real").join(below)
        }

        fn write(&self, below: &str, text: &str) -> PathBuf {
            let path = self.path(below);
            fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            fs::write(&path, text).expect("file");
            path
        }

        fn program(&self, below: &str, script: &str) {
            let path = self.write(below, &format!("#!/bin/sh\n{script}\n"));
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
        }

        /// As if all of these directories were root's.
        fn look(&self, env: &[(&str, &str)]) -> Asked {
            self.look_by(env, &[self.path("work")], ANY)
        }

        fn look_by(&self, env: &[(&str, &str)], written: &[PathBuf], trust: Trust) -> Asked {
            let path = format!("{}:{}", self.path("work/bin").display(), self.path("bin").display());
            let mut caller = super::super::caller();
            caller.home = Bytes::from(self.path("home"));
            let pair = |(name, value): &(&str, &str)| (Bytes::from(*name), Bytes::from(*value));
            caller.env = env.iter().chain(&[("PATH", path.as_str())]).map(pair).collect();
            ask_host(&caller, written, trust)
        }
    }

    /// A host's own `/etc/npmrc` and `/etc/pip.conf` may be there too: only what these tests wrote is looked at.
    fn hosts(asked: &Asked) -> Vec<String> {
        let own = asked.registries.iter().filter(|registry| registry.host.ends_with(".example"));
        own.map(|registry| format!("{} {}:{}", registry.tool, registry.host, registry.port)).collect()
    }

    #[test]
    fn files_and_variables_are_read_and_tools_are_not_run() {
        let ground = Ground::new();
        for tool in ["npm", "pip3", "go"] {
            ground
                .program(&format!("bin/{tool}"), &format!("touch {}; exit 1", ground.path("ran").display()));
        }
        ground.write("home/.npmrc", "registry=https://n.example/\n@me:registry=http://me.example:4873\n");
        ground.write("home/.config/pip/pip.conf", "[global]\nindex-url = https://user:pw@p.example/simple\n");
        ground.write(
            "home/.cargo/config.toml",
            "[source.x]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://c.example/i/\"\n",
        );
        ground.write(
            "home/.cargo/registry/index/c.example-0123456789abcdef/config.json",
            "{\"dl\": \"https://dl.example/c\"}",
        );
        ground.write("home/.cargo/registry/index/old.example-0123456789abcdef/config.json", "{}");
        ground.write("home/.config/go/env", "GOPROXY=https://file.example\n");
        let asked = ground.look(&[
            ("PIP_EXTRA_INDEX_URL", "https://q.example/simple https://r.example:8443/"),
            ("CARGO_REGISTRIES_OWN_INDEX", "sparse+https://own.example/"),
            ("GOPROXY", "https://g.example,direct"),
        ]);
        let expected = [
            "cargo c.example:443",
            "cargo dl.example:443",
            "cargo own.example:443",
            "go g.example:443",
            "npm me.example:4873",
            "npm n.example:443",
            "pip p.example:443",
            "pip q.example:443",
            "pip r.example:8443",
        ];
        assert_eq!(hosts(&asked), expected);
        assert!(!ground.path("ran").exists());
    }

    #[test]
    fn a_default_is_asked_for() {
        let ground = Ground::new();
        ground.program("bin/npm", "test \"$1 $2 $3\" = 'config get registry' && test -z \"$NODE_OPTIONS$SECRET\" && test \"$HOME\" = /dev/null && test \"$(pwd)\" = / && echo https://asked.example/");
        let pip = ground.path("lib/pip");
        ground.write(
            "lib/pip/_internal/models/index.py",
            "PyPI = PackageIndex(\n    \"https://p.example/\", file_storage_domain=\"f.example\"\n)\n",
        );
        ground.program("bin/pip3", &format!("echo 'pip 24.0 from {} (python 3.12)'", pip.display()));
        ground.program("bin/go", "echo https://g.example,direct; echo sum.example");
        ground.write(
            "home/.cargo/registry/index/i.example-0123456789abcdef/config.json",
            "{\"dl\":\"https://s.example/c\"}",
        );
        let asked = ground.look(&[("NODE_OPTIONS", "--require x"), ("SECRET", "x")]);
        let expected = [
            "cargo i.example:443",
            "cargo s.example:443",
            "go g.example:443",
            "go sum.example:443",
            "npm asked.example:443",
            "pip f.example:443",
            "pip p.example:443",
        ];
        assert_eq!(hosts(&asked), expected, "{:?}", asked.warnings);
        assert!(asked.warnings.is_empty(), "{:?}", asked.warnings);
    }

    #[test]
    fn what_a_command_could_have_written_is_neither_run_nor_read() {
        let ground = Ground::new();
        let ran = ground.path("ran");
        let evil = format!("touch {}; echo https://evil.example/", ran.display());
        ground.program("work/bin/npm", &evil);
        ground.program("work/real-go", &evil);
        std::os::unix::fs::symlink(ground.path("work/real-go"), ground.path("bin/go")).expect("link");
        let planted = ground.write("work/npmrc", "registry=https://evil.example/\n");
        std::os::unix::fs::symlink(planted, ground.path("home/.npmrc")).expect("link");
        ground.write("work/.npmrc", "registry=https://evil.example/\n");
        let asked = ground.look(&[]);
        assert_eq!(hosts(&asked), Vec::<String>::new());
        assert!(
            !ran.exists() && asked.warnings.iter().any(|warning| warning.contains(".npmrc")),
            "{:?}",
            asked.warnings
        );
    }

    #[test]
    fn only_roots_programs_are_run() {
        let ground = Ground::new();
        let ran = ground.path("ran");
        for tool in ["npm", "pip3", "go"] {
            ground.program(&format!("bin/{tool}"), &format!("touch {}; exit 1", ran.display()));
        }
        let warnings = ground.look_by(&[], &[], trust(1000)).warnings;
        assert!(!ran.exists());
        for tool in ["npm", "pip3", "go"] {
            let start = format!("set:registries: {tool} at ");
            let told = warnings.iter().any(|warning| {
                warning.starts_with(&start)
                    && warning.contains("is not asked, because its directory is not root's")
            });
            assert!(told, "{tool}: {warnings:?}");
        }
        // The way to it counts, and a link is what it leads to: these paths are real ones.
        let shell = Path::new("/bin/sh").canonicalize().expect("a shell");
        assert!(is_roots(&shell) && is_roots(Path::new("/")));
        assert!(!is_roots(&ground.path("bin/npm")) && !is_roots(Path::new("/tmp")));
        assert!(!is_roots(Path::new("bin/sh")) && !is_roots(Path::new("/nowhere/at/all")));
    }

    #[test]
    fn for_root_only_the_systems_programs_are_run() {
        // Root's up to `/`, as is whatever a command wrote for root.
        let (elsewhere, shell) =
            (Path::new("/etc/passwd"), Path::new("/bin/sh").canonicalize().expect("a shell"));
        assert!((trust(1000).may_run)(elsewhere) && (trust(1000).may_run)(&shell));
        assert!(!(trust(0).may_run)(elsewhere) && (trust(0).may_run)(&shell));
        for outside in ["/", "/usrx", "/root"] {
            assert!(!(trust(0).may_run)(Path::new(outside)), "{outside}");
        }
        let ground = Ground::new();
        ground.program("bin/npm", "exit 1");
        let warnings = ground.look_by(&[], &[], trust(0)).warnings;
        let told = |warning: &String| warning.contains("is not asked, because it is not root's below /usr,");
        assert!(warnings.iter().any(told), "{warnings:?}");
    }

    #[test]
    fn an_index_that_a_command_could_have_made_names_no_host() {
        let ground = Ground::new();
        ground.write("home/.cargo/registry/index/evil.example-0123456789abcdef/config.json", "{}");
        assert_eq!(hosts(&ground.look(&[])), ["cargo evil.example:443"]);
        for written in ["home", "home/.cargo", "home/.cargo/registry", "home/.cargo/registry/index"] {
            let asked = ground.look_by(&[], &[ground.path(written)], ANY);
            assert_eq!(hosts(&asked), Vec::<String>::new(), "{written}");
            let told = asked.warnings.iter().any(|warning| warning.contains("where commands can write"));
            assert!(told, "{written}: {:?}", asked.warnings);
        }
        // Out of a directory that commands can write, by a link, to one that they can't.
        fs::rename(ground.path("home/.cargo/registry"), ground.path("elsewhere")).expect("moved");
        std::os::unix::fs::symlink(ground.path("elsewhere"), ground.path("home/.cargo/registry"))
            .expect("link");
        assert_eq!(hosts(&ground.look(&[])), ["cargo evil.example:443"]);
        let asked = ground.look_by(&[], &[ground.path("home/.cargo")], ANY);
        assert_eq!(hosts(&asked), Vec::<String>::new());
    }

    #[test]
    fn a_tool_that_fails_or_floods_is_told_of() {
        let ground = Ground::new();
        ground.program("bin/npm", "exit 1");
        ground.program("bin/pip3", "echo nonsense");
        ground.program("bin/cargo", "exit 0");
        ground.program("bin/go", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done");
        let warnings = ground.look(&[]).warnings;
        for tool in ["npm", "pip", "cargo", "go"] {
            let told = warnings.iter().any(|warning| warning.contains(&format!(": {tool} has no registry")));
            assert!(told, "{tool}: {warnings:?}");
        }
    }

    #[test]
    fn a_tool_that_hangs_is_ended_with_all_it_started() {
        let ground = Ground::new();
        let child = |script: &str| {
            Command::new("/bin/sh")
                .args(["-c", script])
                .process_group(0)
                .stdout(Stdio::piped())
                .spawn()
                .expect("sh")
        };
        let marker = ground.path("pid");
        let hanging = child(&format!("sleep 600 & echo $! > {}; echo out; wait", marker.display()));
        let start = Instant::now();
        // As long as an emulated machine takes to start a shell.
        assert_eq!(answer(hanging, start + Duration::from_secs(3)), None);
        assert!(start.elapsed() < Duration::from_secs(20));
        let pid = fs::read_to_string(marker).expect("started").trim().to_owned();
        // Killed; dying takes its own moment. One that is gone has no descriptor any more.
        let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a pid");
        let ended =
            pidfd_open(pid, PidfdFlags::empty()).map(|fd| wait(fd.as_fd(), Instant::now() + PATIENCE));
        assert!(ended.unwrap_or(true));
        assert_eq!(answer(child("echo x"), Instant::now() + PATIENCE).as_deref(), Some("x\n"));
    }
}
