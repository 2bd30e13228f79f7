//! The service manager, the system's or the user's, and what is installed for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Who, programs, until};

const SERVICE: &str = include_str!("../../../resources/systemd/stockade.service");
const SOCKET: &str = include_str!("../../../resources/systemd/stockade.socket");
const SYSUSERS: &str = include_str!("../../../resources/systemd/stockade.sysusers");
const USER_SERVICE: &str = include_str!("../../../resources/systemd/user/stockade.service");
const USER_SOCKET: &str = include_str!("../../../resources/systemd/user/stockade.socket");

const LIBEXEC: &str = "/usr/libexec/stockade";
const PROGRAMS: [&str; 4] = ["stockaded", "stockade-executor", "stockade-init", "stockade-client"];

/// Both streams of a command, whatever its end.
#[track_caller]
pub fn said(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Installed when it is made; stopped, with its settings removed, when it goes.
#[derive(Debug)]
pub struct Manager {
    who: Who,
}

impl Manager {
    #[track_caller]
    pub fn install(who: Who) -> Self {
        let manager = Self { who };
        match who {
            Who::Root => install_for_all(),
            Who::Ordinary => {}
        }
        let units = manager.units();
        let (service, socket) = match who {
            Who::Root => (SERVICE.to_owned(), SOCKET),
            // What root installed may not be there.
            Who::Ordinary => (USER_SERVICE.replace(LIBEXEC, &programs().display().to_string()), USER_SOCKET),
        };
        write(&units.join("stockade.service"), &service);
        write(&units.join("stockade.socket"), socket);
        manager.configure("");
        manager.tell(&["daemon-reload"]);
        manager
    }

    fn units(&self) -> PathBuf {
        match self.who {
            Who::Root => PathBuf::from("/etc/systemd/system"),
            Who::Ordinary => home().join(".config/systemd/user"),
        }
    }

    pub fn settings(&self) -> PathBuf {
        match self.who {
            Who::Root => PathBuf::from("/etc/stockade"),
            Who::Ordinary => home().join(".config/stockade"),
        }
    }

    pub fn socket(&self) -> PathBuf {
        match self.who {
            Who::Root => PathBuf::from("/run/stockade/stockade.sock"),
            Who::Ordinary => {
                let runtime =
                    std::env::var_os("XDG_RUNTIME_DIR").expect("a user manager has a runtime directory");
                Path::new(&runtime).join("stockade/stockade.sock")
            }
        }
    }

    pub fn configure(&self, text: &str) {
        write(&self.settings().join("config.toml"), text);
    }

    /// A drop-in, in force with the next start.
    pub fn override_with(&self, text: &str) {
        write(&self.units().join("stockade.service.d/test.conf"), text);
        self.tell(&["daemon-reload"]);
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if self.who == Who::Ordinary {
            command.arg("--user");
        }
        command
    }

    #[track_caller]
    pub fn tell(&self, words: &[&str]) {
        let (well, text) = said(self.command("systemctl").args(words));
        assert!(well, "systemctl {words:?}: {text}\n{}\n{}", self.status(), self.journal());
    }

    pub fn status(&self) -> String {
        said(self.command("systemctl").args(["status", "--no-pager", "--full", "stockade.service"])).1
    }

    pub fn property(&self, name: &str) -> String {
        said(self.command("systemctl").args(["show", "--value", "--property", name, "stockade.service"]))
            .1
            .trim()
            .to_owned()
    }

    pub fn is_active(&self) -> bool {
        self.property("ActiveState") == "active"
    }

    pub fn journal(&self) -> String {
        let unit = if self.who == Who::Root { "--unit" } else { "--user-unit" };
        said(Command::new("journalctl").args(["--no-pager", "--output=cat", unit, "stockade.service"])).1
    }

    #[track_caller]
    pub fn until_journal(&self, word: &str) {
        until(&format!("{word} in the journal"), || self.journal().contains(word).then_some(()));
    }

    pub fn main_pid(&self) -> u32 {
        self.property("MainPID").parse().unwrap_or(0)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(said(self.command("systemctl").args(["stop", "stockade.socket", "stockade.service"])));
        drop(said(self.command("systemctl").args(["reset-failed", "stockade.service"])));
        for leftover in ["stockade.service", "stockade.socket"] {
            drop(fs::remove_file(self.units().join(leftover)));
        }
        drop(fs::remove_dir_all(self.units().join("stockade.service.d")));
        drop(fs::remove_dir_all(self.settings()));
        drop(said(self.command("systemctl").args(["daemon-reload"])));
    }
}

fn home() -> PathBuf {
    std::env::home_dir().expect("a user has a home")
}

fn install_for_all() {
    for program in PROGRAMS {
        place(&programs().join(program), &Path::new(LIBEXEC).join(program));
    }
    place(&programs().join("stockade"), Path::new("/usr/bin/stockade"));
    write(Path::new("/usr/lib/sysusers.d/stockade.conf"), SYSUSERS);
    let (well, text) = said(Command::new("systemd-sysusers").arg("/usr/lib/sysusers.d/stockade.conf"));
    assert!(well, "{text}");
}

fn place(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a file is in a directory")).expect("root makes directories");
    // Replaced, not written into: it may be running.
    drop(fs::remove_file(to));
    fs::copy(from, to).unwrap_or_else(|error| panic!("{} to {}: {error}", from.display(), to.display()));
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("an own file");
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("an own directory");
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("an own file");
}
