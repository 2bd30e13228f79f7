//! Programs that change the user: su, sudo, a setuid copy.

use std::os::unix::fs::PermissionsExt as _;

use stockade_escape_tests::{Sandbox, am_root, skip};

#[test]
fn a_setuid_copy_in_the_workspace() {
    if !am_root() {
        return skip("only root can plant a setuid-root program");
    }
    let sandbox = Sandbox::new();
    let tool = sandbox.workspace().join("suid");
    assert!(
        std::process::Command::new("cp").arg("/usr/bin/id").arg(&tool).status().expect("cp runs").success()
    );
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o4755)).expect("its mode");
    // Without the wall: an ordinary user gets root's effective uid from it.
    let bare = std::process::Command::new("setpriv")
        .args(["--reuid=65533", "--regid=65533", "--clear-groups", "--"])
        .arg(&tool)
        .output();
    match bare {
        Ok(output) => {
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(shown.contains("euid=0"), "{shown} {}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => skip("no setpriv on this host"),
    }
    let ran = sandbox.run(&["./suid"]);
    assert!(!ran.stdout_text().contains("euid="), "{ran}");
    sandbox.attack("exec ./suid , caps").held();
}

#[test]
fn a_setuid_bit_of_the_attackers_own() {
    // The bit on a file in the workspace would work for whoever runs it outside. Either it can't be set,
    // or it is the bit of the caller's own user, on the caller's own file: it must never be root's.
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["sh", "-c", "cp /usr/bin/id ./mine && chmod 6755 ./mine; ls -ln ./mine"]);
    let meta = std::fs::metadata(sandbox.workspace().join("mine")).expect("the copy");
    let owner = std::os::unix::fs::MetadataExt::uid(&meta);
    let is_setuid = meta.permissions().mode() & 0o6000 != 0;
    assert!(!(is_setuid && owner == 0), "a setuid-root file was left outside: {ran}");
    assert!(!is_setuid, "a setuid file was left in the workspace: {ran}");
    // Without the wall the bit stays.
    sandbox.plant("work/open", "x");
    sandbox.bare("chmod ./open 6755").won();
}

#[test]
fn su_and_sudo_fail_cleanly() {
    let sandbox = Sandbox::new();
    for (program, words) in
        [("su", "su -c id root"), ("sudo", "sudo -n id"), ("pkexec", "pkexec id"), ("mount", "mount")]
    {
        let ran = sandbox.run(&["sh", "-c", &format!("{words} </dev/null")]);
        // Host root's own sandbox shows it as root, who is nobody outside; an ordinary user is root nowhere.
        let gained = if am_root() { "uid=0(root) gid=0(root) groups=0(root)" } else { "uid=0(" };
        assert!(!ran.stdout_text().contains(gained), "{program}: {ran}");
        assert!(ran.result.is_some(), "{program}: {ran}");
    }
    let ran = sandbox.run(&["su", "-c", "cat /etc/shadow", "root"]);
    assert_ne!(ran.code(), 0, "{ran}");
}

#[test]
fn file_capabilities_give_nothing() {
    if !am_root() {
        return skip("only root can give a file capabilities");
    }
    let sandbox = Sandbox::new();
    let tool = sandbox.workspace().join("capable");
    let copied = std::process::Command::new("cp").arg(sandbox.workspace().join("attack")).arg(&tool).status();
    assert!(copied.expect("cp runs").success());
    let given =
        std::process::Command::new("setcap").arg("cap_sys_admin,cap_dac_override+ep").arg(&tool).status();
    if !given.is_ok_and(|status| status.success()) {
        skip("no setcap on this host");
        return;
    }
    let ran = sandbox.run(&["./capable", "caps"]);
    assert!(ran.stdout_text().contains("VERDICT held") || ran.code() == 126, "{ran}");
}
