//! RUN-5: the environment is built from nothing, by one table.

use std::collections::BTreeMap;
use std::ffi::OsString;

use stockade_line_tests::{Ran, World};
use stockade_proto::Code;

fn seen(ran: &Ran) -> BTreeMap<String, String> {
    let text = ran.out();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

const SHOW: [&str; 2] = ["env", "-0"];

#[test]
fn exactly_the_list() {
    let world = World::new();
    let ran = world
        .line(&SHOW)
        .caller_env("LC_ALL", "C.UTF-8")
        .caller_env("TZ", "UTC")
        .caller_env("SECRET_TOKEN", "leak")
        .caller_env("AWS_SECRET_ACCESS_KEY", "leak")
        .caller_env("EDITOR", "vi")
        .caller_env("SHELL", "/bin/zsh")
        .caller_env("PWD", "/elsewhere")
        .go()
        .ends_with(0);
    let seen = seen(&ran);
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "STOCKADE", "TERM", "TZ", "USER"],
        "{ran}"
    );
    assert_eq!(seen["SHELL"], "/bin/bash", "the profile's, not the caller's");
    assert_eq!(seen["LANG"], "C");
    assert_eq!(seen["LC_ALL"], "C.UTF-8");
    assert_eq!(seen["USER"], "tester");
    assert_eq!(seen["LOGNAME"], "tester", "as USER says, where the caller has only that");
    assert_eq!(seen["STOCKADE"], "1");
    assert_eq!(seen["HOME"], world.home().display().to_string());
    assert!(seen["PATH"].split(':').all(|part| part.starts_with('/')), "{ran}");
}

#[test]
fn from_an_empty_environment_too() {
    let world = World::new();
    let ran = world.line(&SHOW).clear_env().go().ends_with(0);
    let seen = seen(&ran);
    for name in ["HOME", "LOGNAME", "PATH", "SHELL", "STOCKADE", "USER"] {
        assert!(seen.get(name).is_some_and(|value| !value.is_empty()), "{name}: {ran}");
    }
}

#[test]
fn names_that_change_loading_are_refused() {
    let world = World::new();
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "GLIBC_TUNABLES",
        "GCONV_PATH",
        "BASH_ENV",
        "ENV",
        "BASH_FUNC_ls%%",
        "PS4",
        "PROMPT_COMMAND",
        "IFS",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
        "CLAUDECODE",
        "STOCKADE",
    ] {
        for word in [format!("{name}=/evil"), name.to_owned()] {
            let ran = world.sh("touch ran").option("--env", &word).caller_env(name, "/evil").go();
            let refusal = ran.refused(Code::EnvironmentRefused);
            assert!(refusal.message.contains(name), "{ran}");
            assert!(!refusal.message.contains("/evil"), "the value is in the message: {ran}");
            // One of the two spellings is enough for most of them.
            if !["LD_PRELOAD", "BASH_ENV", "CLAUDECODE"].contains(&name) {
                break;
            }
        }
    }
    assert!(!world.work().join("ran").exists());
}

#[test]
fn markers_of_nested_agents_and_loaders_are_dropped() {
    let world = World::new();
    // Even a profile that lets everything through does not let these through.
    world.profile("all", "extends = \"default\"\n[env]\nallow = [\"*\"]\n");
    let runtime = world.base().join("run");
    std::fs::create_dir(&runtime).expect("a fresh directory");
    let mut line = world.line(&SHOW).profile("all").caller_env("MINE", "yes");
    let dropped = [
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CODEX_SANDBOX",
        "GEMINI_CLI",
        "CURSOR_AGENT",
        "OPENCODE",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "NODE_OPTIONS",
        "PYTHONPATH",
        "SSH_AUTH_SOCK",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
    ];
    for name in dropped {
        // Values that `stockade` itself can live with: its own state goes below the runtime directory.
        if std::env::var_os(name).is_none() {
            line = line.caller_env(name, &runtime);
        }
    }
    let ran = line.go().ends_with(0);
    let seen = seen(&ran);
    assert_eq!(seen["MINE"], "yes", "{ran}");
    for name in dropped {
        assert!(!seen.contains_key(name), "{name}: {ran}");
    }
}

#[test]
fn markers_are_not_passed_by_default_either() {
    let world = World::new();
    let ran =
        world.line(&SHOW).caller_env("CLAUDECODE", "1").caller_env("LD_BIND_NOW", "1").go().ends_with(0);
    let seen = seen(&ran);
    assert!(!seen.contains_key("CLAUDECODE") && !seen.contains_key("LD_BIND_NOW"), "{ran}");
    assert_eq!(ran.err(), "", "nobody asked for it, so there is nothing to say");
}

#[test]
fn set_and_copied_on_purpose() {
    let world = World::new();
    world
        .profile("set", "extends = \"default\"\n[env]\nset = { FROM_PROFILE = \"p\", BOTH = \"profile\" }\n");
    let ran = world
        .line(&SHOW)
        .profile("set")
        .option("--env", "A=1")
        .option("--env", "EMPTY=")
        .option("--env", "EQUALS=a=b=c")
        .option("-e", "COPIED")
        .option("-e", "BOTH=line")
        .option("-e", "TMPDIR=/tmp")
        .caller_env("COPIED", "from the caller")
        .caller_env("A", "of the caller")
        .go()
        .ends_with(0);
    let seen = seen(&ran);
    for (name, value) in [
        ("A", "1"),
        ("EMPTY", ""),
        ("EQUALS", "a=b=c"),
        ("COPIED", "from the caller"),
        ("BOTH", "line"),
        ("FROM_PROFILE", "p"),
        ("TMPDIR", "/tmp"),
    ] {
        assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name}: {ran}");
    }
    let ran = world.line(&["true"]).option("--env", "NOT_SET_HERE").go();
    ran.refused(Code::OptionInvalid);
    let ran = world.line(&["true"]).option("--env", "=value").go();
    ran.refused(Code::EnvironmentRefused);
}

#[test]
fn a_hundred_thousand_entries_of_the_callers() {
    let world = World::new();
    let mut line = world.line(&SHOW);
    for at in 0..100_000 {
        line = line.caller_env(format!("N{at}"), "");
    }
    let ran = line.go().ends_with(0);
    assert!(seen(&ran).keys().all(|name| !name.starts_with("N0")), "{ran}");
}

#[test]
fn a_hundred_thousand_entries_that_are_allowed() {
    let world = World::new();
    world.profile("all", "extends = \"default\"\n[env]\nallow = [\"N*\", \"PATH\"]\n");
    let mut line = world.sh("env | grep -c ^N").profile("all");
    for at in 0..100_000 {
        line = line.caller_env(format!("N{at}"), "");
    }
    let ran = line.go();
    match ran.code() {
        0 => assert_eq!(ran.out(), "100000\n", "{ran}"),
        125 => drop(ran.refused(Code::CommandTooLong)),
        other => panic!("{other}: {ran}"),
    }
}

#[test]
fn names_and_values_that_are_no_text() {
    use std::os::unix::ffi::OsStringExt as _;
    let world = World::new();
    let odd = OsString::from_vec(b"\xff\xfe".to_vec());
    let ran = world.line(&SHOW).caller_env("LANG", &odd).caller_env(&odd, "x").go().ends_with(0);
    let at = ran.stdout.windows(5).position(|window| window == b"LANG=").expect("LANG");
    assert_eq!(&ran.stdout[at + 5..at + 7], b"\xff\xfe", "{ran}");
}
