//! The caller's home directory: credentials in it are not there.

use stockade_escape_tests::{SECRET, Sandbox, wall};

const CREDENTIALS: [&str; 8] = [
    ".ssh/id_ed25519",
    ".netrc",
    ".aws/credentials",
    ".config/gh/hosts.yml",
    ".gitconfig",
    ".bash_history",
    ".cargo/credentials.toml",
    ".npmrc",
];

#[test]
fn credentials_are_absent() {
    let sandbox = Sandbox::new();
    for name in CREDENTIALS {
        sandbox.plant(&format!("home/{name}"), SECRET);
    }
    for name in CREDENTIALS {
        wall(&sandbox, &format!("read {}/{name}", sandbox.home().display()));
        // By whatever HOME is inside, too.
        let ran = sandbox.run(&["sh", "-c", &format!("cat \"$HOME/{name}\"")]);
        assert!(!ran.stdout_text().contains(SECRET), "{ran}");
    }
    let ran = sandbox.run(&["sh", "-c", "cat ~/.*/* ~/.* 2>/dev/null; true"]);
    assert!(!ran.stdout_text().contains(SECRET), "{ran}");
}

#[test]
fn start_up_files_can_t_be_planted() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["sh", "-c", "echo evil >> \"$HOME/.bashrc\"; echo evil >> ~/.profile; true"]);
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(!sandbox.home().join(".bashrc").exists() && !sandbox.home().join(".profile").exists());
    sandbox.bare(&format!("create {}/.bashrc", sandbox.home().display())).won();
}

#[test]
fn the_real_home_is_absent() {
    // The home of the passwd entry, whatever HOME says.
    let sandbox = Sandbox::new();
    for home in ["/root", "/home"] {
        let verdict = sandbox.attack(&format!("read-tree {home}"));
        assert!(!verdict.is_won(), "{home}: {verdict:?}");
    }
}

#[test]
fn toolchains_are_there_and_their_credentials_are_not() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    let tool = sandbox.plant("home/.cargo/bin/tool", "#!/bin/sh\necho tool runs\n");
    std::fs::set_permissions(tool, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    sandbox.plant("home/.cargo/credentials.toml", SECRET);
    sandbox.plant("home/.cargo/credentials", SECRET);
    sandbox.plant("home/.local/bin/other", "");
    sandbox.plant("home/.local/share/keyrings/login.keyring", SECRET);
    let path = format!("{0}/.cargo/bin:{0}/.local/bin:/usr/bin:/bin", sandbox.home().display());
    let sandbox = sandbox.caller_env("PATH", &path);
    let ran = sandbox.run(&["tool"]);
    assert_eq!(ran.stdout_text(), "tool runs\n", "{ran}");
    for name in [".cargo/credentials.toml", ".cargo/credentials", ".local/share/keyrings/login.keyring"] {
        wall(&sandbox, &format!("read {}/{name}", sandbox.home().display()));
    }
    wall(&sandbox, &format!("write {}/.cargo/bin/tool", sandbox.home().display()));
    sandbox.attack(&format!("create {}/.cargo/bin/evil", sandbox.home().display())).held();
    assert!(!sandbox.home().join(".cargo/bin/evil").exists());
    let ran = sandbox.run(&["grep", "-rs", "walrus", &sandbox.home().display().to_string()]);
    assert!(!ran.stdout_text().contains("walrus"), "{ran}");
}
