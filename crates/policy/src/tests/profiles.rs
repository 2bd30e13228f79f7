//! Profiles as written and as resolved: every mistake at its line and column.

use std::time::Instant;

use stockade_proto::{Code, Layer, Mode, Requirement};

use super::{Texts, user};
use crate::{BUILT_IN, Place, Reach, View, explain_profile, render, resolve, show_profile};

#[test]
fn built_ins_resolve_to_what_they_say() {
    let none = Texts::default();
    let default = resolve("default", &none).expect("default");
    assert_eq!(default.mode.value, Mode::Sandbox);
    assert_eq!(default.network.value, Reach::Deny);
    assert_eq!(default.limits[0].value, Some(512 << 20));
    assert_eq!(default.limits[1].value, Some(1000));
    assert!(Layer::ALL.iter().all(|layer| default.layer(*layer).value == Requirement::Must));
    let readonly = resolve("readonly", &none).expect("readonly");
    assert_eq!(readonly.fs.value, View::WorkspaceReadonly);
    assert_eq!(readonly.limits[0].value, default.limits[0].value);
    let build = resolve("build", &none).expect("build");
    assert_eq!((build.limits[0].value, build.limits[1].value), (Some(4 << 30), None));
    let host = resolve("host", &none).expect("host");
    assert_eq!((host.mode.value, host.network.value), (Mode::Host, Reach::Inherit));
    assert!(host.limits[..8].iter().all(|limit| limit.value.is_none()));
    assert!([&default, &readonly, &build, &host].iter().all(|profile| profile.warnings.is_empty()));
}

/// text, line, column, code, part of the message or remedy
const BAD: &[(&str, u32, u32, Code, &str)] = &[
    ("netwrok = \"deny\"", 1, 1, Code::ProfileInvalid, "did you mean `network`?"),
    ("# x\n\nzzz = 1", 3, 1, Code::ProfileInvalid, "unknown key `zzz`"),
    ("mode = 5", 1, 8, Code::ProfileInvalid, "`mode` must be a string, not an integer"),
    ("mode = \"sandbx\"", 1, 8, Code::ProfileInvalid, "did you mean \"sandbox\"?"),
    ("fs = \"everything\"", 1, 6, Code::ProfileInvalid, "workspace-readonly"),
    ("network = \"allowlist\"", 1, 11, Code::ProfileInvalid, "needs hosts in `egress.allow`"),
    ("toolchains = \"yes\"", 1, 14, Code::ProfileInvalid, "true or false"),
    ("readable = \"~/x\"", 1, 12, Code::ProfileInvalid, "a list of strings"),
    ("readable = [\"/a\", 3]", 1, 19, Code::ProfileInvalid, "`readable` must be a string"),
    ("readable = [\"x/y\"]", 1, 13, Code::ProfileInvalid, "not an absolute path"),
    ("readable = [\"/a/../b\"]", 1, 13, Code::ProfileInvalid, "`..`"),
    (
        "readable = [\"/a\"]\nwritable = [\"/a/\"]",
        2,
        13,
        Code::ProfileInvalid,
        "both `readable` and `writable`",
    ),
    ("deny = [\"/etc/*\"]", 1, 9, Code::ProfileInvalid, "relative to the workspace"),
    ("deny = [\"x[\"]", 1, 9, Code::ProfileInvalid, "can't be read"),
    ("deny = [\"**\"]", 1, 9, Code::ProfileInvalid, "whole workspace"),
    ("[limits]\nmemory = 0", 2, 10, Code::LimitInvalid, "zero"),
    ("[limits]\nmemory = \"0M\"", 2, 10, Code::LimitInvalid, "zero"),
    ("[limits]\nmemory = \"12Q\"", 2, 10, Code::ProfileInvalid, "a size such as"),
    ("[limits]\nmemory = -1", 2, 10, Code::ProfileInvalid, "a size such as"),
    ("[limits]\nwall = 10", 2, 8, Code::ProfileInvalid, "a duration such as"),
    ("[limits]\ncpu = true", 2, 7, Code::ProfileInvalid, "a number of cores"),
    ("[limits]\ncpu = nan", 2, 7, Code::ProfileInvalid, "a number of cores"),
    ("[limits]\nscratch = \"none\"", 2, 11, Code::ProfileInvalid, "`scratch` must be"),
    ("[limits]\nprocess = 5", 2, 1, Code::ProfileInvalid, "did you mean `processes`?"),
    ("[layers]\nfilesytem = \"must\"", 2, 1, Code::ProfileInvalid, "did you mean `filesystem`?"),
    ("[layers]\nseccomp = \"maybe\"", 2, 11, Code::ProfileInvalid, "must, prefer, off"),
    ("[layers]\nprocess = \"off\"", 2, 11, Code::ProfileInvalid, "stands on its namespaces"),
    ("deny = [\"a\"]\n[layers]\nfilesystem = \"off\"", 1, 8, Code::ProfileInvalid, "can't be enforced"),
    ("[layers]\nfilesystem = \"off\"\nlandlock = \"off\"", 2, 14, Code::ProfileInvalid, "both off"),
    ("[layers]\nnetwork = \"off\"", 2, 11, Code::ProfileInvalid, "network = \"inherit\""),
    ("network = \"inherit\"\n[layers]\nnetwork = \"must\"", 3, 11, Code::ProfileInvalid, "takes away"),
    ("fs = \"inherit\"\ndeny = [\"a\"]", 2, 8, Code::ProfileInvalid, "can't be enforced"),
    ("fs = \"inherit\"\nreadable = [\"/a\"]", 2, 12, Code::ProfileInvalid, "shows everything"),
    ("fs = \"inherit\"\n[layers]\nfilesystem = \"must\"", 3, 14, Code::ProfileInvalid, "takes away"),
    ("[env]\nset = { LD_PRELOAD = \"x\" }", 2, 9, Code::EnvironmentRefused, "LD_PRELOAD"),
    ("[env]\nset = { A = 1 }", 2, 13, Code::ProfileInvalid, "`env.set.A` must be a string"),
    ("[env]\nallowed = []", 2, 1, Code::ProfileInvalid, "did you mean `allow`?"),
    ("[shell]\nprogram = \"/bin/zsh\"", 2, 11, Code::ProfileInvalid, "shell.allowed-programs"),
    ("[shell]\nargs = [\"-x\"]", 2, 9, Code::ProfileInvalid, "shell.allowed-args"),
    ("[shell]\nallowed-programs = [\"bash\"]", 2, 21, Code::ProfileInvalid, "absolute path"),
    ("env = 3", 1, 7, Code::ProfileInvalid, "a table"),
    ("mode = \"host\"\nfs = \"workspace-rw\"", 2, 6, Code::ProfileInvalid, "mode \"host\""),
    ("mode = \"host\"\nreadable = []", 2, 12, Code::ProfileInvalid, "mode \"host\""),
    ("mode = \"host\"\ndeny = [\"x\"]", 2, 8, Code::ProfileInvalid, "mode \"host\""),
    ("mode = \"host\"\ntoolchains = true", 2, 14, Code::ProfileInvalid, "mode \"host\""),
    ("mode = \"host\"\nnetwork = \"deny\"", 2, 11, Code::ProfileInvalid, "mode \"host\""),
    ("mode = \"host\"\n[layers]\nseccomp = \"off\"", 3, 11, Code::ProfileInvalid, "mode \"host\""),
    ("extends = \"default\"\nmode = \"host\"", 2, 8, Code::ProfileInvalid, "can't change the mode"),
    ("extends = \"nowhere\"", 1, 11, Code::ProfileInvalid, "no profile `nowhere`"),
    ("extends = \"../x\"", 1, 11, Code::ProfileInvalid, "no profile"),
    ("extends = \"p\"", 1, 11, Code::ProfileInvalid, "no profile `p`"),
    ("mode = \"sandbox", 1, 16, Code::ProfileInvalid, ""),
    ("mode = \"sandbox\"\nmode = \"host\"", 2, 1, Code::ProfileInvalid, "duplicate"),
    ("é = 1", 1, 1, Code::ProfileInvalid, ""),
    ("readable = [\"é\", \"x\"]", 1, 13, Code::ProfileInvalid, "not an absolute path"),
];

#[test]
fn mistakes_are_found_at_their_line_and_column() {
    for (text, line, column, code, part) in BAD {
        let error = user(text).expect_err(text);
        let origin = error.refusal.origin.clone().unwrap_or_else(|| panic!("{text}: no origin"));
        let told = format!("{} {}", error.refusal.message, error.refusal.remedy);
        assert_eq!((origin.line, origin.column), (*line, *column), "{text}: {told}");
        assert_eq!(error.refusal.code, *code, "{text}: {told}");
        assert!(told.contains(part), "{text}: {told}");
        assert!(!error.refusal.remedy.is_empty());
        assert!(origin.file.to_string().ends_with("p.toml"), "{text}");
    }
}

#[test]
fn the_first_of_several_mistakes_is_told() {
    let error = user("a = 1\nmode = 3\n[limits]\nmemory = 0").expect_err("bad");
    assert_eq!(error.refusal.origin.expect("origin").line, 1);
}

#[test]
fn the_picture_points_and_can_not_talk_to_the_terminal() {
    let error = user("mode = \"a\u{1b}[31mb\"").expect_err("bad");
    // TOML itself refuses the raw control character; the picture must not print it either.
    let drawn = render(&error, false);
    assert!(!drawn.contains('\u{1b}'), "{drawn:?}");
    let drawn = render(&user("fs = \"workspace-rx\"").expect_err("bad"), false);
    assert!(drawn.contains("--> /user/p.toml:1:6"), "{drawn}");
    assert!(drawn.contains("1 | fs = \"workspace-rx\"\n"), "{drawn}");
    assert!(drawn.contains("  |      ^^^^^^^^^^^^^^\n"), "{drawn}");
    assert!(render(&user("x = 1").expect_err("bad"), true).contains("\u{1b}[1;31m"));
}

#[test]
fn an_unknown_name_is_never_host() {
    let texts = Texts::default().with(Place::User, "mine", "");
    for name in ["hots", "hsot", "Host", "", "../default", "a/b", "x\u{0}", &"x".repeat(65)] {
        let refusal = resolve(name, &texts).expect_err(name).refusal;
        assert_eq!(refusal.code, Code::ProfileUnknown, "{name}");
        assert!(refusal.message.contains("mine") && refusal.message.contains("readonly"));
        assert!(!refusal.remedy.contains("host"), "{}", refusal.remedy);
    }
    assert!(resolve("defualt", &texts).expect_err("unknown").refusal.remedy.contains("`default`"));
}

#[test]
fn extends_reaches_only_upwards_and_never_in_circles() {
    let texts =
        Texts::default().with(Place::User, "a", "extends = \"b\"").with(Place::User, "b", "extends = \"a\"");
    let refusal = resolve("a", &texts).expect_err("circle").refusal;
    assert!(refusal.message.contains("circle"), "{}", refusal.message);

    let texts = Texts::default().with(Place::System, "s", "extends = \"mine\"").with(
        Place::User,
        "mine",
        "network = \"inherit\"",
    );
    assert!(resolve("s", &texts).is_err(), "a system profile must not rest on a user's");

    let texts = Texts::default()
        .with(Place::User, "default", "extends = \"default\"\n[limits]\nmemory = \"1G\"")
        .with(Place::System, "default", "extends = \"default\"\n[limits]\nmemory = \"2G\"\ncpu = 2");
    let own = resolve("default", &texts).expect("own name, next place");
    assert_eq!((own.limits[0].value, own.limits[1].value), (Some(1 << 30), Some(2000)));
    assert_eq!(own.place(own.limits[1].spot), Place::System);
}

#[test]
fn what_a_built_in_says_gives_way_with_a_warning() {
    let open = user("[layers]\nfilesystem = \"off\"").expect("valid");
    assert!(open.deny.value.is_empty() && open.deny_write.value.is_empty());
    assert_eq!(open.warnings.len(), 1);
    let inherit = user("fs = \"inherit\"").expect("valid");
    assert_eq!(inherit.layer(Layer::Landlock).value, Requirement::Off);
    let network = user("network = \"inherit\"").expect("valid");
    assert_eq!(network.layer(Layer::Network).value, Requirement::Off);
}

/// A workspace's file must not talk to the terminal, nor fill it.
#[test]
fn what_a_refusal_quotes_is_seen_and_ends() {
    let long = "k".repeat(200_000);
    for text in [
        "[env.set]\n\"\\u001b[31m\\u202e\" = 5".to_owned(),
        "\"\\u001b[2J\" = 1\n\"\\u001b[2J\" = 2".to_owned(),
        "extends = \"\\u001b\"".to_owned(),
        format!("{long} = 1"),
        format!("fs = \"{long}\""),
        format!("extends = \"{long}\""),
        format!("[env.set]\n{long} = 5"),
        format!("deny = [\"/{}\"]", "\\u202e".repeat(5000)),
    ] {
        let error = user(&text).expect_err("taken");
        for said in [&error.refusal.message, &error.refusal.remedy] {
            assert!(said.chars().count() <= 1001, "{} characters", said.chars().count());
            assert!(!said.contains(stockade_proto::Bytes::is_unseen), "{said:?}");
        }
        assert!(error.refusal.origin.is_some());
    }
}

/// As large as one may be: a problem in every line costs no more than the line.
#[test]
fn a_text_full_of_problems_is_refused_at_once() {
    let lines = (0..20_000).rev().map(|number| format!("k{number} = 1\n")).collect::<String>();
    let started = Instant::now();
    let error = user(&lines).expect_err("taken");
    assert_eq!(error.refusal.origin.map(|origin| origin.line), Some(1));
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

#[test]
fn shown_profiles_parse_back_to_the_same() {
    let texts = Texts::default().with(
        Place::User,
        "p",
        "description = \"a \\\"b\\\" \\u0007\"\nreadable = [\"~/x?\"]\n[env]\nset = { \"A.B\" = \"x\\ny\" }\n[limits]\ncpu = 0.25\nwall = \"1500ms\"",
    );
    for name in ["p", "default", "readonly", "build", "host"] {
        let first = resolve(name, &texts).expect(name);
        let shown = show_profile(&first);
        let again = user(&shown).unwrap_or_else(|error| panic!("{name}: {error}\n{shown}"));
        assert_eq!(
            first.limits.clone().map(|at| at.value),
            again.limits.clone().map(|at| at.value),
            "{name}"
        );
        assert_eq!(
            first.layers.clone().map(|at| at.value),
            again.layers.clone().map(|at| at.value),
            "{name}"
        );
        let plain =
            |list: &crate::written::List| list.value.iter().map(|at| at.value.clone()).collect::<Vec<_>>();
        assert_eq!(plain(&first.readable), plain(&again.readable));
        assert_eq!(plain(&first.deny), plain(&again.deny));
        assert_eq!(first.env_set.len(), again.env_set.len());
    }
    let told = explain_profile(&resolve("p", &texts).expect("p"));
    assert!(told.contains("[/user/p.toml:6:8]") || told.contains("/user/p.toml:"), "{told}");
    assert!(told.contains("built-in:default:"), "{told}");
    assert!(!told.contains('\u{7}'));
}

#[test]
fn every_built_in_is_valid_alone() {
    for (name, text) in BUILT_IN {
        assert!(text.starts_with("description = "), "{name}");
    }
}

/// A generous bound for a debug build on a busy machine; the release figure is in the benches.
#[test]
fn loading_a_built_in_is_quick() {
    let none = Texts::default();
    let best = (0..50)
        .map(|_| {
            let start = Instant::now();
            assert!(resolve("build", &none).is_ok());
            start.elapsed()
        })
        .min()
        .expect("measured");
    assert!(best.as_micros() < 5_000, "{best:?}");
}
