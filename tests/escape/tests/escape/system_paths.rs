//! System paths are there to be used and not to be changed.

use stockade_escape_tests::{Sandbox, wall};

#[test]
fn nothing_can_be_created_in_them() {
    let sandbox = Sandbox::new();
    for directory in ["/usr", "/usr/bin", "/etc", "/usr/lib"] {
        let path = format!("{directory}/stockade-escape-test");
        wall(&sandbox, &format!("create {path} , unlink {path}"));
    }
    for directory in ["/", "/var", "/opt", "/boot", "/root", "/home", "/run", "/dev", "/proc", "/sys"] {
        sandbox.attack(&format!("create {directory}/stockade-escape-test")).held();
    }
}

#[test]
fn nothing_in_them_can_be_changed() {
    let sandbox = Sandbox::new();
    wall(&sandbox, "open-write /etc/passwd");
    wall(&sandbox, "open-write /usr/bin/env");
    for attack in [
        "chmod /usr/bin/env 4755",
        "unlink /usr/bin/env",
        "rename /usr/bin/env /usr/bin/env2",
        "utimes /etc/passwd",
    ] {
        sandbox.attack(attack).held();
    }
}

#[test]
fn what_is_not_listed_is_absent() {
    let sandbox = Sandbox::new();
    for path in [
        "/root/.bashrc",
        "/run/systemd",
        "/run/dbus",
        "/var/lib/dpkg/status",
        "/var/log/dpkg.log",
        "/boot/grub",
    ] {
        sandbox.attack(&format!("stat {path}")).held();
    }
    let shown = sandbox.attack("list /").won();
    for name in shown.split(' ') {
        assert!(
            !["boot", "srv", "mnt", "media", "lost+found"].contains(&name)
                || sandbox.attack(&format!("read-tree /{name}")).held().1 != 0
        );
    }
    sandbox.bare("list /var/log").won();
}

#[test]
fn the_private_tmp_is_not_the_hosts() {
    let sandbox = Sandbox::new();
    let file =
        tempfile::Builder::new().prefix("stockade-escape-").tempfile_in("/tmp").expect("a file in /tmp");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(file.path(), everybody).expect("its owner sets its mode");
    let path = file.path().display().to_string();
    wall(&sandbox, &format!("stat {path}"));
    wall(&sandbox, &format!("read {path}"));
    sandbox.attack(&format!("create {path}-inside")).won();
    assert!(!std::path::Path::new(&format!("{path}-inside")).exists());
    // Nor is it shared by two executions.
    sandbox.attack(&format!("read {path}-inside")).held();
}
