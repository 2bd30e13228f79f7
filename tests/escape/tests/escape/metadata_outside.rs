//! Marks on files outside: mode, owner, times, extended attributes. Landlock sees none of these calls.

use std::os::unix::fs::MetadataExt as _;

use stockade_escape_tests::{SECRET, Sandbox, wall};

#[test]
fn of_a_file_that_is_not_shown() {
    let sandbox = Sandbox::new();
    let secret = sandbox.secret().display().to_string();
    for attack in ["chmod PATH 777", "utimes PATH", "setxattr PATH", "chown PATH 12345"] {
        wall(&sandbox, &attack.replace("PATH", &secret));
    }
}

#[test]
fn of_a_file_that_is_shown_read_only() {
    let sandbox = Sandbox::new();
    let shown = sandbox.plant("shown/file", SECRET);
    let sandbox = sandbox.profile_with(|base| format!("readable = [\"{}\"]", base.join("shown").display()));
    let before = std::fs::metadata(&shown).expect("the file");
    for attack in ["chmod PATH 777", "utimes PATH", "setxattr PATH", "chown PATH 12345"] {
        sandbox.attack(&attack.replace("PATH", &shown.display().to_string())).held();
    }
    let after = std::fs::metadata(&shown).expect("the file");
    assert_eq!(
        (before.mode(), before.uid(), before.mtime(), before.ctime()),
        (after.mode(), after.uid(), after.mtime(), after.ctime())
    );
    for attack in ["chmod PATH 777", "utimes PATH"] {
        sandbox.bare(&attack.replace("PATH", &shown.display().to_string())).won();
    }
}

#[test]
fn of_the_workspaces_parent() {
    let sandbox = Sandbox::new();
    let seen = || {
        let meta = std::fs::metadata(sandbox.base()).expect("the base");
        (meta.mode(), meta.mtime())
    };
    let before = seen();
    for attack in ["chmod .. 700", "utimes ..", "setxattr .."] {
        // What stands above the workspace inside is the sandbox's own; it may be marked, the host's may not.
        let ran = sandbox.run_attack(&format!("{attack} , create ../new"));
        assert!(!sandbox.base().join("new").exists(), "{attack}: {ran}");
        assert_eq!(before.0, seen().0, "{attack}");
        assert_ne!(seen().1, 1, "{attack}");
    }
    sandbox.bare("utimes ..").won();
    assert_eq!(seen().1, 1);
}
