//! Workspaces that are none: each a sentence, a code, nothing left behind.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;

use stockade_line_tests::{World, am_root, skip};
use stockade_proto::Code;

#[test]
fn missing() {
    let world = World::new();
    for path in ["no/such", "/no/such/directory", "", "work/x\u{1b}[31m"] {
        let ran = world.line(&["true"]).workspace(path).go();
        let refusal = ran.refused(Code::WorkspaceMissing);
        assert!(refusal.remedy.contains("--workspace"), "{ran}");
        assert!(!refusal.message.contains('\u{1b}'), "{ran}");
    }
}

#[test]
fn not_a_directory() {
    let world = World::new();
    let file = world.plant("file", "");
    world.line(&["true"]).workspace(&file).go().refused(Code::WorkspaceMissing);
    world.line(&["true"]).workspace("/dev/null").go().refused(Code::WorkspaceMissing);
    std::os::unix::fs::symlink("nowhere", world.base().join("dangling")).expect("a link");
    world.line(&["true"]).workspace(world.base().join("dangling")).go().refused(Code::WorkspaceMissing);
}

#[test]
fn unreadable() {
    if am_root() {
        return skip("root reads every directory");
    }
    let world = World::new();
    let closed = world.base().join("closed");
    std::fs::create_dir(&closed).expect("a fresh directory");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).expect("its mode");
    world.line(&["true"]).workspace(&closed).go().refused(Code::WorkspaceMissing);
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

#[test]
fn the_root_the_home_and_system_paths() {
    let world = World::new();
    let home = world.home().display().to_string();
    let base = world.base().display().to_string();
    for path in [
        "/",
        "//",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/etc",
        "/bin",
        "/sbin",
        "/lib",
        "/boot",
        "/dev",
        "/proc",
        "/proc/self",
        "/sys",
        "/sys/kernel",
        "/run",
        "/var",
        "/var/lib",
        "/var/tmp",
        "/tmp",
        "/opt",
        "/home",
        "/root",
        "/srv",
        "/usr/../etc",
        "/proc/self/root",
        &home,
        &base,
        &format!("{home}/../home"),
    ] {
        if !std::path::Path::new(path).exists() {
            continue;
        }
        let ran = world.line(&["touch", "ran-here"]).workspace(path).go();
        let refusal = ran.refused(Code::WorkspaceForbidden);
        assert!(refusal.remedy.contains("--workspace"), "{ran}");
    }
}

#[test]
fn a_link_to_a_forbidden_place() {
    let world = World::new();
    for (name, to) in [("to-etc", "/etc"), ("to-root", "/"), ("to-home", "home")] {
        let link = world.base().join(name);
        std::os::unix::fs::symlink(to, &link).expect("a link");
        world.line(&["true"]).workspace(&link).go().refused(Code::WorkspaceForbidden);
    }
}

#[test]
fn a_link_to_a_workspace_is_that_workspace() {
    let world = World::new();
    let link = world.base().join("link");
    std::os::unix::fs::symlink("work", &link).expect("a link");
    let ran = world.sh("pwd; touch made").workspace(&link).go().ends_with(0);
    assert_eq!(ran.out(), format!("{}\n", world.work().display()));
    assert!(world.work().join("made").exists());
}

#[test]
fn the_current_directory_by_default() {
    let world = World::new();
    let ran = world.line(&["pwd"]).no_workspace().go().ends_with(0);
    assert_eq!(ran.out(), format!("{}\n", world.work().display()));
    world.line(&["true"]).no_workspace().from_directory("/").go().refused(Code::WorkspaceForbidden);
    world.line(&["true"]).no_workspace().from_directory(world.home()).go().refused(Code::WorkspaceForbidden);
}

#[test]
fn a_current_directory_that_is_gone() {
    let world = World::new();
    let ran = world
        .line(&["true"])
        .no_workspace()
        .before(&["/bin/sh", "-c", "mkdir ../gone && cd ../gone && rmdir ../gone && exec \"$@\"", "sh"])
        .go();
    ran.refused(Code::WorkspaceMissing);
    // With a workspace it does not matter.
    world
        .line(&["true"])
        .before(&["/bin/sh", "-c", "mkdir ../gone && cd ../gone && rmdir ../gone && exec \"$@\"", "sh"])
        .go()
        .ends_with(0);
}

#[test]
fn a_name_that_is_no_text() {
    let world = World::new();
    let odd = world.base().join(OsString::from_vec(b"wo\xffrk".to_vec()));
    std::fs::create_dir(&odd).expect("a fresh directory");
    let ran = world.sh("touch made; pwd").workspace(&odd).go();
    match ran.code() {
        0 => assert!(odd.join("made").exists(), "{ran}"),
        _ => {
            let refusal = ran.refused(Code::WorkspaceForbidden);
            assert!(refusal.message.contains("\\xff"), "{ran}");
            assert!(std::fs::read_dir(&odd).expect("it").next().is_none(), "something is left");
        }
    }
}

#[test]
fn odd_names() {
    let world = World::new();
    for name in [
        "with space",
        "quote'\"",
        "back\\slash",
        "semi;colon",
        "$HOME",
        "-dash",
        "é中🦀",
        "tab\there",
        "a=b",
        "#c",
        "x?y*",
    ] {
        let odd = world.base().join(name);
        std::fs::create_dir(&odd).expect("a fresh directory");
        let ran = world.sh("touch made; pwd").workspace(&odd).go().ends_with(0);
        assert_eq!(ran.out(), format!("{}\n", odd.display()), "{ran}");
        assert!(odd.join("made").exists(), "{name}");
    }
    let odd = world.base().join("new\nline");
    std::fs::create_dir(&odd).expect("a fresh directory");
    let ran = world.sh("touch made").workspace(&odd).go();
    assert!([0, 125].contains(&ran.code()), "{ran}");
}

#[test]
fn files_inside_whose_names_are_no_text() {
    let world = World::new();
    let name = OsString::from_vec(b"\xff\xfe.env".to_vec());
    std::fs::write(world.work().join(&name), "x").expect("a file");
    std::fs::create_dir(world.work().join(OsString::from_vec(b"d\xff".to_vec()))).expect("a directory");
    std::fs::write(world.work().join(OsString::from_vec(b"d\xff".to_vec())).join(".env"), "secret")
        .expect("a file");
    let ran = world.sh("ls | wc -l; cat */.env").go();
    assert!(ran.out().starts_with("2\n"), "{ran}");
    assert!(!ran.out().contains("secret"), "a deny glob does not hold below a name that is no text: {ran}");
}

#[test]
fn a_workspace_deep_down() {
    let world = World::new();
    let deep = (0..60).fold(world.work(), |path, at| path.join(format!("directory-{at}")));
    std::fs::create_dir_all(&deep).expect("deep directories");
    let ran = world.sh("touch made; pwd | wc -c").workspace(&deep).go().ends_with(0);
    assert!(deep.join("made").exists(), "{ran}");
}

#[test]
fn a_workspace_of_another_users() {
    if !am_root() {
        return skip("only root can give a directory away");
    }
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    std::os::unix::fs::chown(world.work(), Some(64_321), Some(64_321)).expect("root gives it away");
    let ran = world.sh("id -u; touch made").go().ends_with(0);
    assert_eq!(ran.out(), "64321\n", "{ran}");
    let made = std::fs::metadata(world.work().join("made")).expect("the file");
    assert_eq!((made.uid(), made.gid()), (64_321, 64_321), "{ran}");
}

#[test]
fn a_workspace_that_can_t_be_written() {
    if am_root() {
        return skip("root writes every directory");
    }
    let world = World::new();
    world.plant("work/file", "text\n");
    std::fs::set_permissions(world.work(), std::fs::Permissions::from_mode(0o555)).expect("its mode");
    let ran = world.line(&["cat", "file"]).go();
    std::fs::set_permissions(world.work(), std::fs::Permissions::from_mode(0o755)).expect("its mode");
    // It can be read, so reading must work; or one sentence says why not.
    match ran.code() {
        0 => assert_eq!(ran.out(), "text\n", "{ran}"),
        122 => assert!(ran.err().contains("SK-F"), "{ran}"),
        other => panic!("{other}: {ran}"),
    }
}
