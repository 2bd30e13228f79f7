//! `.env` in a workspace: there, and unreadable by every name the attacker can make for it.

use stockade_escape_tests::{SECRET, Sandbox, wall};

fn with_env() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.plant("work/.env", SECRET);
    sandbox.plant("work/sub/deep/.env", SECRET);
    sandbox.plant("work/file", "x");
    sandbox
}

/// The attack gets nothing, whichever of its steps fails, and the file is what it was.
#[track_caller]
fn safe(attack: &str) {
    let sandbox = with_env();
    let ran = sandbox.run_attack(attack);
    assert!(!ran.stdout_text().contains("walrus"), "{attack}: {ran}");
    let open = with_env();
    assert_eq!(open.bare(attack).won(), SECRET, "{attack} does not work without walls");
    assert_eq!(
        std::fs::read_to_string(sandbox.workspace().join(".env")).expect("the file"),
        SECRET,
        "{attack}"
    );
}

#[test]
fn by_its_name() {
    wall(&with_env(), "read ./.env");
    wall(&with_env(), "read ./sub/deep/.env");
    let sandbox = with_env();
    wall(&sandbox, &format!("read {}/.env", sandbox.workspace().display()));
}

#[test]
fn by_magic_links() {
    for attack in [
        "read /proc/self/cwd/.env",
        "open-dir . , read-at .env",
        "open-dir ./sub/deep , read-at ./.env",
        "chdir ./sub/deep , read ./.env",
        "chdir ./sub , read ./deep/../deep/.env",
    ] {
        safe(attack);
    }
    safe("symlink .env ./s , read ./s");
    safe("symlink . ./s , read ./s/.env");
}

#[test]
fn by_a_new_name() {
    for attack in [
        "link ./.env ./l , read ./l",
        "link-fd ./.env ./l , read ./l",
        "rename ./.env ./r , read ./r",
        "exchange ./.env ./file , read ./file",
    ] {
        safe(attack);
    }
}

#[test]
fn by_moving_its_directory() {
    for attack in [
        "rename ./sub ./sub2 , read ./sub2/deep/.env",
        "rename ./sub/deep ./deep2 , read ./deep2/.env",
        "mkdir ./other , exchange ./sub ./other , read ./other/deep/.env",
    ] {
        safe(attack);
    }
}

/// One execution moves it to where the next one is hoped not to look, or not to know it.
#[test]
fn by_moving_it_for_the_next_execution() {
    let moved = [
        ("mkdir ./x.git , rename ./sub ./x.git/objects", "read ./x.git/objects/deep/.env", None),
        (
            "mkdir ./.git , mkdir ./.git/objects , rename ./sub ./.git/objects/aa",
            "read ./.git/objects/aa/deep/.env",
            None,
        ),
        ("rename ./sub ./other", "read ./other/deep/.env", None),
        ("rename ./sub ./other", "read ./other/deep/key", Some("sub/deep/key")),
        ("rename ./sub/deep ./deep", "read ./deep/key", Some("sub/*/k*")),
        ("mkdir ./a , rename ./sub ./a/sub", "read ./a/sub/deep/key", Some("sub/deep/key")),
        ("chmod ./sub 444", "chmod ./sub 755 , read ./sub/deep/key", Some("sub/deep/key")),
        ("chmod ./sub 0", "chmod ./sub 755 , read ./sub/deep/key", Some("sub/*/k*")),
    ];
    let world = |glob: Option<&str>| {
        let sandbox = with_env();
        sandbox.plant("work/sub/deep/key", SECRET);
        match glob {
            Some(glob) => sandbox.profile(&format!("deny = [\"**/.env\", {glob:?}]\n")),
            None => sandbox,
        }
    };
    for (first, second, glob) in moved {
        let walled = world(glob);
        walled.run_attack(first);
        let ran = walled.run_attack(second);
        assert!(!ran.stdout_text().contains("walrus"), "{first}, then {second}: {ran}");
        let open = world(glob);
        open.run_bare(first);
        assert_eq!(open.bare(second).won(), SECRET, "{first}, then {second} does not work without walls");
    }
}

/// The same, where the workspace itself can't be written but a part of it can.
#[test]
fn by_moving_it_in_a_part_that_may_be_written() {
    let world = || {
        let sandbox = Sandbox::new();
        sandbox.plant("work/out/deep/key", SECRET);
        sandbox.profile_with(|base| {
            let out = base.join("work/out");
            format!("fs = \"workspace-readonly\"\nwritable = [{out:?}]\ndeny = [\"out/deep/key\"]\n")
        })
    };
    let (first, second) = ("rename ./out/deep ./out/moved", "read ./out/moved/key");
    let walled = world();
    walled.run_attack(first);
    let ran = walled.run_attack(second);
    assert!(!ran.stdout_text().contains("walrus"), "{ran}");
    // What else is there can be moved.
    walled.plant("work/out/free/file", "x");
    assert!(walled.attack("rename ./out/free ./out/moved").is_won());
    let open = world();
    open.run_bare(first);
    assert_eq!(open.bare(second).won(), SECRET);
}

#[test]
fn by_removing_what_covers_it() {
    let sandbox = with_env();
    for attack in
        ["unlink ./.env", "try become-root , umount ./.env , read ./.env", "truncate ./.env", "write ./.env"]
    {
        sandbox.attack(attack).held();
    }
    assert_eq!(std::fs::read_to_string(sandbox.workspace().join(".env")).expect("the file"), SECRET);
    assert_eq!(std::fs::read_to_string(sandbox.workspace().join("sub/deep/.env")).expect("the file"), SECRET);
}

#[test]
fn by_programs_that_copy() {
    let sandbox = with_env();
    for script in [
        "cp -r sub copy; cat copy/deep/.env",
        "tar cf - . | tar xOf - ./.env",
        "grep -r walrus .",
        "cat .en?",
    ] {
        let ran = sandbox.run(&["sh", "-c", script]);
        assert!(!ran.stdout_text().contains("walrus"), "{script}: {ran}");
    }
}

#[test]
fn as_a_symlink_to_another_file() {
    // The name is denied, and so is what it names, as long as it is in the workspace.
    let sandbox = Sandbox::new();
    sandbox.plant("work/real-env", SECRET);
    std::os::unix::fs::symlink("real-env", sandbox.workspace().join(".env")).expect("a symlink");
    let ran = sandbox.run_attack("read ./.env");
    // Refusing to start is an answer too.
    assert!(!ran.stdout_text().contains("walrus"), "{ran}");
}

#[test]
fn as_a_directory() {
    let sandbox = Sandbox::new();
    sandbox.plant("work/.env/inner", SECRET);
    let ran = sandbox.run_attack("read ./.env/inner");
    assert!(!ran.stdout_text().contains("walrus"), "{ran}");
    sandbox.bare("read ./.env/inner").won();
}
