//! Other sandboxes, where they are installed: each runs `/bin/true` with its strongest ordinary walls.
//! One that is missing, or can't run on this host, is said so in the report and never an error.

use super::arm::Arm;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug)]
enum Form {
    /// The words before `/bin/true`.
    Words(&'static [&'static str]),
    /// An OCI runtime, which reads a bundle.
    Bundle,
}

const PEERS: &[(&str, Form)] = &[
    ("bwrap", Form::Words(&["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])),
    ("nsjail", Form::Words(&["-Mo", "-Q", "--chroot", "/", "--"])),
    ("crun", Form::Bundle),
    ("runc", Form::Bundle),
    ("firejail", Form::Words(&["--quiet", "--noprofile", "--net=none", "--private", "--seccomp"])),
];

/// Where Debian puts programs of the administrator, which an ordinary user's `PATH` leaves out.
const EXTRA: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Absent {
    pub(super) peer: &'static str,
    pub(super) why: String,
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) arms: Vec<Arm>,
    pub(super) absent: Vec<Absent>,
}

pub(super) fn find(place: &Path) -> Result<Peers> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    directories.extend(EXTRA.iter().map(PathBuf::from));
    let mut peers = Peers::default();
    for (name, form) in PEERS {
        let Some(program) = directories.iter().map(|one| one.join(name)).find(|file| file.is_file()) else {
            peers.absent.push(Absent { peer: name, why: "not installed".to_owned() });
            continue;
        };
        let arm = Arm::new(*name, program, words(name, form, place)?);
        match arm.works() {
            Ok(()) => peers.arms.push(arm),
            Err(error) => peers.absent.push(Absent { peer: name, why: format!("can't run here: {error}") }),
        }
    }
    Ok(peers)
}

fn words(name: &str, form: &Form, place: &Path) -> Result<Vec<OsString>> {
    match form {
        Form::Words(words) => Ok(words.iter().chain(&["/bin/true"]).map(OsString::from).collect()),
        Form::Bundle => {
            let home = place.join(name);
            let bundle = bundle(&home).with_context(|| format!("can't make a bundle for {name}"))?;
            // The state of its containers stays out of the system's own directory.
            let state = home.join("state");
            let id = format!("stockade-bench-{}", std::process::id());
            Ok(vec!["--root".into(), state.into(), "run".into(), "--bundle".into(), bundle.into(), id.into()])
        }
    }
}

/// A root that holds `/usr` read-only: an OCI runtime can't pivot into `/` itself.
fn bundle(home: &Path) -> Result<PathBuf> {
    let root = home.join("rootfs");
    for directory in ["usr", "proc", "dev"] {
        std::fs::create_dir_all(root.join(directory))?;
    }
    for link in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(Path::new("usr").join(link), root.join(link))?;
    }
    let namespaces = ["pid", "mount", "ipc", "uts", "network", "cgroup"].map(|kind| json!({ "type": kind }));
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "cwd": "/",
            "env": ["PATH=/usr/bin:/bin"],
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": [
            { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"] },
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
        ],
        "linux": { "namespaces": namespaces },
    });
    std::fs::write(home.join("config.json"), config.to_string())?;
    Ok(home.to_owned())
}
