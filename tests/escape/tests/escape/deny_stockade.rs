//! `.stockade/`: the workspace's own profiles. An agent that could write there would set the next walls.

use stockade_escape_tests::Sandbox;

const WIDE: &str = "work/.stockade/mine.toml";

fn existing() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.plant(WIDE, "extends = \"default\"\n");
    sandbox.plant("work/other/x", "");
    sandbox
}

#[track_caller]
fn untouched(make: fn() -> Sandbox, attack: &str) {
    make().bare(attack).won();
    let closed = make();
    let before = listing(&closed);
    let verdict = closed.attack(attack);
    assert_eq!(before, listing(&closed), "{attack}: {verdict:?}");
}

/// Every path below `.stockade` with its contents.
fn listing(sandbox: &Sandbox) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut open = vec![sandbox.workspace().join(".stockade")];
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        if meta.is_dir() {
            open.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            found.push((path, Vec::new()));
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

#[test]
fn where_it_exists() {
    for attack in [
        "create ./.stockade/evil.toml",
        "write ./.stockade/mine.toml",
        "truncate ./.stockade/mine.toml",
        "unlink ./.stockade/mine.toml",
        "rename ./.stockade ./gone",
        "rename ./.stockade/mine.toml ./gone",
        "exchange ./.stockade ./other",
        "create ./evil , rename ./evil ./.stockade/mine.toml",
        "chmod ./.stockade 700 , create ./.stockade/evil",
    ] {
        untouched(existing, attack);
    }
}

#[test]
fn where_it_does_not_exist() {
    for attack in [
        "mkdir ./.stockade",
        "mkdir ./.stockade , create ./.stockade/evil.toml",
        "mkdir ./s , create ./s/evil.toml , rename ./s ./.stockade",
        "create ./.stockade",
        "symlink /tmp ./.stockade",
        "symlink ./other ./.stockade",
    ] {
        untouched(Sandbox::new, attack);
        let closed = Sandbox::new();
        closed.attack(attack).held();
        assert!(
            std::fs::symlink_metadata(closed.workspace().join(".stockade")).is_err(),
            "{attack}: left behind"
        );
    }
}

#[test]
fn as_a_symlink_inside_the_workspace() {
    // What it names is as good as the directory itself.
    let sandbox = Sandbox::new();
    sandbox.plant("work/real/mine.toml", "extends = \"default\"\n");
    std::os::unix::fs::symlink("real", sandbox.workspace().join(".stockade")).expect("a symlink");
    let profile = sandbox.workspace().join("real/mine.toml");
    for attack in ["write ./.stockade/mine.toml", "create ./.stockade/evil.toml", "unlink ./.stockade"] {
        let ran = sandbox.run_attack(attack);
        assert!(!ran.stdout_text().contains("VERDICT won"), "{attack}: {ran}");
    }
    assert_eq!(std::fs::read_to_string(profile).expect("the profile"), "extends = \"default\"\n");
    assert!(!sandbox.workspace().join("real/evil.toml").exists());
}

#[test]
fn as_a_symlink_out_of_the_workspace() {
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink(sandbox.outside(), sandbox.workspace().join(".stockade")).expect("a symlink");
    for attack in ["read ./.stockade/secret", "create ./.stockade/new", "write ./.stockade/secret"] {
        let ran = sandbox.run_attack(attack);
        assert!(!ran.stdout_text().contains("VERDICT won"), "{attack}: {ran}");
    }
    assert!(!sandbox.outside().join("new").exists());
}

/// Two executions share a workspace that has no `.stockade`: the end of the first must not open the place
/// for the second.
#[test]
fn with_another_execution_that_ends_first() {
    let sandbox = Sandbox::new();
    let first = sandbox.start_attack("hold walrus-first");
    first.wait_line("READY");
    let made = std::process::Command::new("mkfifo").arg(sandbox.workspace().join("go")).status();
    assert!(made.expect("mkfifo runs").success());
    let second = sandbox.start(&[
        "sh",
        "-c",
        "echo READY; read word < go; ./attack mkdir ./.stockade , create ./.stockade/evil.toml",
    ]);
    second.wait_line("READY");
    first.signal(rustix::process::Signal::TERM);
    first.reap();
    std::fs::write(sandbox.workspace().join("go"), "go\n").expect("the second waits for it");
    let ran = second.finish();
    assert!(!sandbox.workspace().join(".stockade/evil.toml").exists(), "the wall went with the first: {ran}");
    assert!(ran.stdout_text().contains("VERDICT held"), "{ran}");
}

/// One execution was killed: its placeholder is still there when the next one starts.
#[test]
fn after_a_killed_execution() {
    let sandbox = Sandbox::new();
    for _ in 0..5 {
        let first = sandbox.start_attack("hold walrus-killed");
        first.wait_line("READY");
        first.signal(rustix::process::Signal::KILL);
        first.reap();
        sandbox.attack("mkdir ./.stockade").held();
        assert!(!sandbox.workspace().join(".stockade").exists());
    }
}
