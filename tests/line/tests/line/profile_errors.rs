//! RUN-10: mistakes in profiles are shown with file, line, column and the nearest valid key.

use stockade_line_tests::World;
use stockade_proto::Code;

struct Mistake {
    body: &'static str,
    line: u32,
    column: u32,
    says: &'static str,
    remedy: &'static str,
    code: Code,
}

const fn invalid(
    body: &'static str,
    line: u32,
    column: u32,
    says: &'static str,
    remedy: &'static str,
) -> Mistake {
    Mistake { body, line, column, says, remedy, code: Code::ProfileInvalid }
}

fn each(mistakes: &[Mistake]) {
    let world = World::new();
    for mistake in mistakes {
        let file = world.profile("wrong", mistake.body);
        let ran = world.line(&["touch", "ran"]).profile("wrong").go();
        let refusal = ran.refused(mistake.code);
        assert!(refusal.message.contains(mistake.says), "{}: {ran}", mistake.body);
        assert!(refusal.remedy.contains(mistake.remedy), "{}: {ran}", mistake.body);
        let origin = refusal.origin.unwrap_or_else(|| panic!("no place: {ran}"));
        assert_eq!((origin.line, origin.column), (mistake.line, mistake.column), "{}: {ran}", mistake.body);
        assert!(
            ran.err().contains(&format!("{}:{}:{}", file.display(), mistake.line, mistake.column)),
            "{ran}"
        );
        assert!(!world.work().join("ran").exists(), "{}", mistake.body);
    }
}

#[test]
fn unknown_keys_and_the_nearest_one() {
    each(&[
        invalid("netwrok = \"deny\"\n", 1, 1, "unknown key `netwrok`", "did you mean `network`?"),
        invalid("fs = \"workspace-rw\"\n\n  readble = []\n", 3, 3, "unknown key `readble`", "`readable`"),
        invalid("[limits]\nmemroy = \"1G\"\n", 2, 1, "unknown key `memroy`", "`memory`"),
        invalid("[limits]\nmemory = \"1G\"\n[layers]\nsecomp = \"must\"\n", 4, 1, "`secomp`", "`seccomp`"),
        invalid("[env]\npass = []\n", 2, 1, "`pass`", "allow, set"),
        invalid("[shell]\nprogramm = \"/bin/sh\"\n", 2, 1, "`programm`", "`program`"),
        invalid("# é\nxyzzy = 1\n", 2, 1, "`xyzzy`", "the keys here are"),
    ]);
}

#[test]
fn wrong_values() {
    each(&[
        invalid("network = \"open\"\n", 1, 11, "\"open\"", "inherit"),
        invalid(
            "fs = \"workspace-readonyl\"\n",
            1,
            6,
            "workspace-readonyl",
            "did you mean \"workspace-readonly\"",
        ),
        invalid("mode = 5\n", 1, 8, "must be a string", "string"),
        invalid("toolchains = \"yes\"\n", 1, 14, "true or false", "true or false"),
        invalid("readable = [\"relative/path\"]\n", 1, 13, "not an absolute path", "start it with /"),
        invalid("readable = [\"/a\", \"/b/../c\"]\n", 1, 19, "`..`", "leads to"),
        invalid("deny = [\"/etc/**\"]\n", 1, 9, "glob", "relative to the workspace"),
        invalid("[limits]\nmemory = \"lots\"\n", 2, 10, "lots", "512M"),
        invalid("[limits]\nwall = \"10\"\n", 2, 8, "`10`", "duration"),
        invalid("[layers]\nseccomp = \"maybe\"\n", 2, 11, "maybe", "must"),
        invalid("network = \"allowlist\"\n", 1, 11, "egress.allow", "deny"),
        invalid("extends = \"no-such\"\n", 1, 11, "there is no profile `no-such`", ""),
    ]);
}

#[test]
fn broken_toml() {
    each(&[
        invalid("network = \n", 1, 11, "", "TOML"),
        invalid("a = 1\na = 2\n", 2, 1, "duplicate", "TOML"),
        invalid("[limits\n", 1, 8, "", "TOML"),
    ]);
}

#[test]
fn a_limit_of_zero() {
    let zero = |body, line, column, says| Mistake {
        body,
        line,
        column,
        says,
        remedy: "above zero",
        code: Code::LimitInvalid,
    };
    each(&[
        zero("[limits]\nmemory = 0\n", 2, 10, "`memory` is zero"),
        zero("[limits]\nmemory = \"0M\"\n", 2, 10, "`memory` is zero"),
        zero("[limits]\ncpu = 0.0\n", 2, 7, "`cpu` is zero"),
        zero("[limits]\nprocesses = 0\n", 2, 13, "`processes` is zero"),
        zero("[limits]\nwall = \"0s\"\n", 2, 8, "`wall` is zero"),
        zero("[limits]\nopen-files = 0\n", 2, 14, "`open-files` is zero"),
        zero("[limits]\noutput = 0\n", 2, 10, "`output` is zero"),
    ]);
}

#[test]
fn a_limit_beyond_the_hosts() {
    let world = World::new();
    for body in ["memory = \"1000T\"", "cpu = 5000.0", "processes = 99999999999"] {
        world.profile("huge", &format!("extends = \"default\"\n[limits]\n{body}\n"));
        let ran = world.line(&["touch", "ran"]).profile("huge").go();
        let refusal = ran.refused(Code::LimitInvalid);
        let origin = refusal.origin.unwrap_or_else(|| panic!("no place: {ran}"));
        assert_eq!(origin.line, 3, "{ran}");
        assert!(!world.work().join("ran").exists());
    }
    // A number of files that the caller itself may not have.
    world.profile("files", "extends = \"default\"\n[limits]\nopen-files = 4000000000\n");
    let ran = world.line(&["true"]).profile("files").go();
    assert!([0, 125].contains(&ran.code()), "{ran}");
}

#[test]
fn a_profile_that_contradicts_itself() {
    let world = World::new();
    for (body, says) in [
        ("readable = [\"/srv\"]\nwritable = [\"/srv/\"]\n", "both `readable` and `writable`"),
        ("fs = \"inherit\"\nreadable = [\"/srv\"]\n", "fs = \"inherit\""),
        ("network = \"inherit\"\n[layers]\nnetwork = \"must\"\n", "layers.network"),
        ("[layers]\nnetwork = \"off\"\n", "nothing would enforce"),
        ("[layers]\nprocess = \"off\"\n", "layers.process is off"),
        ("[layers]\nfilesystem = \"off\"\nlandlock = \"off\"\n", "both off"),
        ("deny = [\"x\"]\n[layers]\nfilesystem = \"off\"\n", "`deny` can't be enforced"),
        ("[shell]\nprogram = \"/bin/zsh\"\n", "allowed-programs"),
    ] {
        world.profile("odd", body);
        let ran = world.line(&["touch", "ran"]).profile("odd").go();
        let refusal = ran.refused(Code::ProfileInvalid);
        assert!(refusal.message.contains(says), "{body}: {ran}");
        assert!(refusal.origin.is_some(), "{body}: {ran}");
        assert!(!world.work().join("ran").exists());
    }
}

#[test]
fn a_host_profile_with_a_walls_keys() {
    let world = World::new();
    for (body, line, key) in [
        ("mode = \"host\"\nfs = \"workspace-rw\"\n", 2, "`fs`"),
        ("mode = \"host\"\nnetwork = \"deny\"\n", 2, "`network`"),
        ("mode = \"host\"\nreadable = [\"/srv\"]\n", 2, "`readable`"),
        ("mode = \"host\"\ndeny = [\"x\"]\n", 2, "`deny`"),
        ("mode = \"host\"\n[layers]\nseccomp = \"must\"\n", 3, "`layers`"),
        ("extends = \"host\"\ntoolchains = false\n", 2, "`toolchains`"),
    ] {
        world.profile("open", body);
        let ran = world.line(&["true"]).profile("open").go();
        let refusal = ran.refused(Code::ProfileInvalid);
        assert!(refusal.message.contains(key) && refusal.message.contains("no walls"), "{ran}");
        let origin = refusal.origin.unwrap_or_else(|| panic!("no place: {ran}"));
        assert_eq!(origin.line, line, "{ran}");
        assert!(origin.column >= 1, "{ran}");
    }
}

#[test]
fn extends_in_a_circle() {
    let world = World::new();
    world.profile("a", "extends = \"b\"\n");
    world.profile("b", "extends = \"a\"\n");
    let refusal = world.line(&["true"]).profile("a").go().refused(Code::ProfileInvalid);
    assert!(refusal.message.contains("circle"), "{refusal:?}");
}

#[test]
fn texts_that_are_no_profile() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world.plant("config/stockade/profiles/binary.toml", b"\xff\xfe\x00mode");
    world.line(&["true"]).profile("binary").go().refused(Code::ProfileInvalid);
    world.profile("large", &"# a comment that is much too long\n".repeat(10_000));
    world.line(&["true"]).profile("large").go().refused(Code::ProfileInvalid);
    std::fs::create_dir(world.base().join("config/stockade/profiles/directory.toml")).expect("a directory");
    world.line(&["true"]).profile("directory").go().refused(Code::ProfileInvalid);
    world.profile("empty", "");
    world.line(&["true"]).profile("empty").go().ends_with(0);
    if !stockade_line_tests::am_root() {
        let file = world.profile("closed", "");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).expect("its mode");
        world.line(&["true"]).profile("closed").go().refused(Code::ProfileInvalid);
    }
}

#[test]
fn control_characters_of_a_workspaces_profile_do_not_reach_the_terminal() {
    let world = World::new();
    world.workspace_profile("default", "\"\u{1b}]0;evil\u{7}\" = 1\n");
    let ran = world.line(&["true"]).go().ends_with(125);
    assert!(!ran.stderr.contains(&7) && !ran.err().contains("\u{1b}]"), "{ran}");
}

#[test]
fn an_extra_path_that_is_not_there() {
    let world = World::new();
    world.profile("extra", "extends = \"default\"\nreadable = [\"/no/such/path\"]\n");
    let ran = world.line(&["true"]).profile("extra").go().ends_with(125);
    let refusal = ran.refusal();
    assert!(refusal.message.contains("/no/such/path"), "{ran}");
    assert_eq!(refusal.origin.map(|origin| origin.line), Some(2), "{ran}");
}
