//! Which directories may be a workspace. A workspace is shown read-write by default, so the root, system
//! paths and the home directory are refused. Works on canonical paths. Next: the survey asks, `plan` trusts.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_proto::{Bytes, Code, Refusal};

/// Refused with everything below: kernel interfaces and the system's own programs and settings.
const WHOLE: [&str; 13] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/nix",
    "/snap",
];

/// Refused themselves; below them people keep work.
const ITSELF: [&str; 22] = [
    "/",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",
    "/usr",
    "/var",
    "/usr/local",
    "/usr/src",
    "/var/lib",
    "/var/tmp",
    "/var/log",
    "/var/cache",
    "/run/user",
    "/var/run",
    "/lost+found",
    "/dev/shm",
    "/Users",
];

/// Refused with everything below, though their parent is not.
const PROGRAMS: [&str; 9] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/libexec",
    "/usr/local/bin",
    "/usr/local/sbin",
];

/// Work may lie here although the parent is refused with everything below.
const EXCEPTION: &str = "/dev/shm";

const REMEDY: &str = "give the directory of one project with --workspace DIR";

pub fn check_workspace(path: &Bytes, home: &Bytes) -> Result<(), Refusal> {
    let workspace = path.as_path();
    let forbidden = |why: String| {
        Err(Refusal::new(Code::WorkspaceForbidden, format!("the workspace `{path}` {why}"), REMEDY))
    };
    let system = WHOLE.iter().chain(&PROGRAMS).find(|system| workspace.starts_with(system));
    match system {
        Some(system) if !workspace.starts_with(EXCEPTION) => {
            return forbidden(format!("is, or lies below, the system path {system}"));
        }
        Some(_) | None => {}
    }
    if ITSELF.iter().any(|system| workspace == Path::new(system)) {
        return forbidden("is a system path".to_owned());
    }
    let home = home.as_path();
    if home.as_os_str().as_bytes() != b"/" {
        if workspace == home {
            return forbidden("is the home directory: keys and settings of every tool lie in it".to_owned());
        }
        if home.starts_with(workspace) {
            return forbidden(format!("holds the home directory {}", Bytes::from(home)));
        }
    }
    if path.as_slice().contains(&b'\n') || std::str::from_utf8(path.as_slice()).is_err() {
        return forbidden("has a newline or broken UTF-8 in its path".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_paths_and_homes_are_refused() {
        let home = Bytes::from("/home/ada");
        for bad in [
            "/",
            "/usr",
            "/usr/bin",
            "/usr/lib/python3",
            "/etc",
            "/etc/x",
            "/bin",
            "/boot",
            "/dev",
            "/proc/1",
            "/sys/fs",
            "/run",
            "/var",
            "/var/tmp",
            "/var/lib",
            "/opt",
            "/root",
            "/home",
            "/tmp",
            "/home/ada",
            "/dev/shm",
        ] {
            let refusal = check_workspace(&Bytes::from(bad), &home).expect_err(bad);
            assert_eq!(refusal.code, Code::WorkspaceForbidden);
            assert!(refusal.message.contains(bad) && !refusal.remedy.is_empty());
        }
        for good in [
            "/home/ada/x",
            "/var/tmp/x",
            "/var/lib/x",
            "/opt/x",
            "/root/x",
            "/tmp/x",
            "/srv/x",
            "/usr/src/x",
            "/srv/project",
            "/home/bob",
            "/dev/shm/x",
            "/home/adamant",
        ] {
            assert!(check_workspace(&Bytes::from(good), &home).is_ok(), "{good}");
        }
    }

    #[test]
    fn an_ancestor_of_the_home_is_refused() {
        let home = Bytes::from("/srv/people/ada");
        let refusal = check_workspace(&Bytes::from("/srv/people"), &home).expect_err("refused");
        assert!(refusal.message.contains("/srv/people/ada"));
    }
}
