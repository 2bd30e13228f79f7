//! RUN-2: a command is an argv, or one string for a configured shell from an allowlist.

use stockade_line_tests::{World, have};
use stockade_proto::Code;

#[test]
fn a_string_goes_to_the_profiles_shell() {
    if !have(&["bash"]) {
        return;
    }
    let world = World::new();
    let ran = world
        .line(&["x=a; [[ $x == a ]] && printf '%s|' one two | tr '|' '\\n'; echo \"$0\""])
        .flag("--shell")
        .go()
        .ends_with(0);
    assert_eq!(ran.out(), "one\ntwo\n/bin/bash\n", "{ran}");
    assert_eq!(ran.value()["command"][0], "/bin/bash");
    assert_eq!(ran.value()["command"][1], "-c");
}

#[test]
fn an_argv_is_not_a_string() {
    let world = World::new();
    let ran = world.line(&["echo", "$HOME", "a  b", "; echo no", "*"]).go().ends_with(0);
    assert_eq!(ran.out(), "$HOME a  b ; echo no *\n");
}

#[test]
fn another_shell_by_profile() {
    let world = World::new();
    world.profile("posix", "extends = \"default\"\n[shell]\nprogram = \"/bin/sh\"\nargs = [\"-lc\"]\n");
    let ran = world.line(&["echo \"$0\""]).flag("-c").profile("posix").go();
    // dash knows no -l: what counts here is what was asked for.
    assert_eq!(ran.value()["command"], serde_json::json!(["/bin/sh", "-lc", "echo \"$0\""]), "{ran}");
}

#[test]
fn a_login_shell_reads_no_file_of_the_callers() {
    if !have(&["bash"]) {
        return;
    }
    let world = World::new();
    world.plant("home/.bash_profile", "echo read the profile\n");
    world.plant("home/.profile", "echo read the profile\n");
    world.profile("login", "extends = \"default\"\n[shell]\nargs = [\"-lc\"]\n");
    let ran = world.line(&["echo here"]).flag("--shell").profile("login").go().ends_with(0);
    assert_eq!(ran.out(), "here\n", "{ran}");
}

#[test]
fn only_shells_of_the_list() {
    let world = World::new();
    for (body, word) in [
        ("[shell]\nprogram = \"/usr/bin/env\"\n", "/usr/bin/env"),
        ("[shell]\nprogram = \"bash\"\n", "bash"),
        // Exact match: the same file by another name is not in the list.
        ("[shell]\nprogram = \"/usr/bin/bash\"\n", "/usr/bin/bash"),
        ("[shell]\nargs = [\"-ic\"]\n", "-ic"),
        ("[shell]\nargs = [\"-c\", \"-x\"]\n", "-x"),
    ] {
        world.profile("shells", &format!("extends = \"default\"\n{body}"));
        let ran = world.line(&["true"]).flag("--shell").profile("shells").go();
        let refusal = ran.refused(Code::ProfileInvalid);
        assert!(refusal.message.contains(word), "{ran}");
        let origin = refusal.origin.unwrap_or_else(|| panic!("no place: {ran}"));
        assert_eq!(origin.line, 3, "{ran}");
    }
}

#[test]
fn the_list_can_be_longer_by_the_users_own_word() {
    let world = World::new();
    world.profile(
        "dash",
        "extends = \"default\"\n[shell]\nprogram = \"/usr/bin/sh\"\nallowed-programs = [\"/usr/bin/sh\"]\n",
    );
    let ran = world.line(&["echo \"$0\""]).flag("--shell").profile("dash").go().ends_with(0);
    assert_eq!(ran.out(), "/usr/bin/sh\n");
}

#[test]
fn exactly_one_string() {
    let world = World::new();
    for words in [&["echo", "two"][..], &[]] {
        let ran = world.line(words).flag("--shell").go();
        let refusal = ran.refused(Code::OptionInvalid);
        assert!(refusal.remedy.contains("--shell"), "{ran}");
    }
    for blank in ["", " ", "\n\t "] {
        world.line(&[blank]).flag("--shell").go().refused(Code::CommandEmpty);
    }
}

#[test]
fn a_long_script_with_lines() {
    let world = World::new();
    let script: String = (0..500).map(|at| format!("echo line {at}\n")).collect();
    let ran = world.line(&[script.as_str()]).flag("--shell").go().ends_with(0);
    assert_eq!(ran.out(), (0..500).map(|at| format!("line {at}\n")).collect::<String>());
}
