//! Socket rules from text to plan: mistakes at their place, narrowing, links of the host, mounts.

use stockade_proto::{
    Bytes, Code, Decision, Layer, MountKind, Plan, Refusal, Requirement, SocketMode, SocketOperation,
    SocketPattern,
};

use super::planning::{built_in, object, report, request};
use super::{Texts, plan, user};
use crate::{
    Bound, FoundSocket, HostReport, NeededSocket, Object, Place, ProfileError, Resolved, SocketAddress,
    SocketObject, SocketPlace, SocketRules, SocketVerdict, SocketWatch, explain, explain_profile,
    guidance_for_socket, needed_sockets, resolve, show_profile, socket_reason,
};

fn rule(name: &str, paths: &str, rest: &str) -> String {
    format!("[[unix_sockets]]\nname = \"{name}\"\npaths = [{paths}]\n{rest}\n")
}

/// text, line, column, part of the message or remedy
#[test]
fn mistakes_are_found_at_their_place() {
    let twice = rule("a", "\"/a\"", "decision = \"allow\"") + &rule("a", "\"/b\"", "decision = \"deny\"");
    let shadowed = rule("wide", "\"/run/**\"", "decision = \"deny\"")
        + &rule("late", "\"/run/x\", \"/run/y/*\"", "operations = [\"connect\"]\ndecision = \"deny\"");
    let joint = rule("c", "\"/a\"", "operations = [\"connect\"]\ndecision = \"deny\"")
        + &rule("s", "\"/a\"", "operations = [\"send\"]\ndecision = \"deny\"")
        + &rule("both", "\"/a\"", "operations = [\"connect\", \"send\"]\ndecision = \"deny\"");
    let against = rule("a", "\"/a\", \"/b\"", "decision = \"allow\"")
        + &rule("b", "\"/c\", \"/b\"", "operations = [\"send\"]\ndecision = \"deny\"");
    let one = |paths: &str, rest: &str| rule("x", paths, rest);
    let allow = "decision = \"allow\"";
    let rows: Vec<(String, u32, u32, &str)> = vec![
        ("unix-sockets-mode = \"enforced\"".to_owned(), 1, 21, "did you mean \"enforce\"?"),
        ("unix_sockets_mode = \"off\"".to_owned(), 1, 1, "did you mean `unix-sockets-mode`?"),
        ("unix_socket = 1".to_owned(), 1, 1, "did you mean `unix_sockets`?"),
        ("unix_sockets = \"enforce\"".to_owned(), 1, 16, "unix-sockets-mode"),
        ("unix_sockets = 3".to_owned(), 1, 16, "[[unix_sockets]]"),
        ("unix_sockets = [3]".to_owned(), 1, 17, "[[unix_sockets]]"),
        (one("\"/a\"", "decison = \"allow\""), 4, 1, "did you mean `decision`?"),
        (one("\"/a\"", "decision = \"permit\""), 4, 12, "allow, deny, audit"),
        (one("\"/a\"", ""), 1, 1, "no `decision`"),
        ("[[unix_sockets]]\nname = \"x\"\ndecision = \"deny\"".to_owned(), 1, 1, "no `paths`"),
        ("[[unix_sockets]]\npaths = [\"/a\"]\ndecision = \"deny\"".to_owned(), 1, 1, "no `name`"),
        ("[[unix_sockets]]\nname = \"\"".to_owned(), 2, 8, "short text"),
        (one("", allow), 3, 9, "holds no path"),
        (one("\"\"", allow), 3, 10, "not an absolute path"),
        (one("\"run/x\"", allow), 3, 10, "not an absolute path"),
        (one("\"@\"", allow), 3, 10, "without a name"),
        (one("\"/a/../b\"", allow), 3, 10, "`..`"),
        (one("\"/a\\u0000\"", allow), 3, 10, "NUL"),
        (one("\"/ok\", \"/a[\"", allow), 3, 17, "can't be read"),
        (one("\"/a\"", "operations = []\ndecision = \"allow\""), 4, 14, "leave the key out"),
        (
            one("\"/a\"", "operations = [\"conect\"]\ndecision = \"allow\""),
            4,
            15,
            "did you mean \"connect\"?",
        ),
        (one("\"/a\"", "operations = \"connect\"\ndecision = \"allow\""), 4, 14, "a list of strings"),
        (one("\"/a\"", "decision = \"allow\"\nmessage = \"a\\u0007\""), 5, 11, "control character"),
        (twice, 6, 8, "named `a` already, at line 2"),
        (shadowed, 6, 8, "never reached: rule `wide` at line 2 decides first"),
        (joint, 12, 8, "never reached: rule `c` at line 2 decides first"),
        (against, 7, 16, "send to `/b` is \"deny\" here, but \"allow\" by rule `a` at /user/p.toml:2:8"),
        ("[layers]\nsockts = \"must\"".to_owned(), 2, 1, "did you mean `sockets`?"),
        ("[layers]\nseccomp = \"off\"".to_owned(), 2, 11, "layers.sockets stands on its filter"),
        ("unix-sockets-mode = \"off\"\n[layers]\nsockets = \"must\"".to_owned(), 3, 11, "takes away"),
        (
            "unix-sockets-mode = \"audit\"\n[layers]\nsockets = \"off\"".to_owned(),
            3,
            11,
            "nothing else would enforce",
        ),
        ("mode = \"host\"\nunix-sockets-mode = \"enforce\"".to_owned(), 2, 21, "mode \"host\""),
        (format!("mode = \"host\"\n{}", one("\"/a\"", allow)), 3, 8, "mode \"host\""),
    ];
    for (text, line, column, part) in rows {
        let error = user(&text).expect_err(&text);
        let told = format!("{} {}", error.refusal.message, error.refusal.remedy);
        let origin = error.refusal.origin.clone().unwrap_or_else(|| panic!("{text}: no origin: {told}"));
        assert_eq!((origin.line, origin.column), (line, column), "{text}: {told}");
        assert_eq!(error.refusal.code, Code::ProfileInvalid, "{text}: {told}");
        assert!(told.contains(part), "{text}: {told}");
        assert!(!error.refusal.remedy.is_empty(), "{text}");
    }
}

#[test]
fn rules_that_look_alike_but_are_not() {
    for good in [
        rule("a", "\"/a\"", "operations = [\"connect\"]\ndecision = \"allow\"")
            + &rule("b", "\"/a\"", "operations = [\"send\"]\ndecision = \"deny\""),
        rule("a", "\"/run/x\"", "decision = \"deny\"") + &rule("b", "\"/run/**\"", "decision = \"allow\""),
        rule("a", "\"/run/**\"", "operations = [\"connect\"]\ndecision = \"deny\"")
            + &rule("b", "\"/run/x\"", "decision = \"deny\""),
        // Over the built-in's rules: that is the purpose.
        rule("all", "\"/**\", \"@*\", \"own\"", "decision = \"deny\""),
    ] {
        let resolved = user(&good).unwrap_or_else(|error| panic!("{good}: {error}"));
        assert!(resolved.warnings.is_empty(), "{:?}", resolved.warnings);
    }
}

fn names(profile: &Resolved) -> Vec<&str> {
    profile.socket_rules.iter().map(|rule| rule.name.value.as_str()).collect()
}

#[test]
fn a_child_s_rules_are_asked_first_and_may_replace() {
    let texts = Texts::default()
        .with(
            Place::User,
            "p",
            "extends = \"q\"\n".to_owned() + &rule("mine", "\"/a\"", "decision = \"allow\""),
        )
        .with(Place::User, "q", rule("theirs", "\"/b\"", "decision = \"allow\""));
    let resolved = resolve("p", &texts).expect("valid");
    assert_eq!(names(&resolved), ["mine", "theirs", "own", "private-places", "abstract-names"]);
    let replaced = user(&rule("own", "\"own\"", "decision = \"deny\"")).expect("valid");
    assert_eq!(names(&replaced), ["own", "private-places", "abstract-names"]);
    assert_eq!(replaced.socket_rules[0].decision.value, Decision::Deny);
}

#[test]
fn modes_and_layers() {
    let default = built_in("default");
    assert_eq!(default.watch.value, SocketWatch::Enforce);
    let off = user("unix-sockets-mode = \"off\"").expect("valid");
    assert_eq!(off.layer(Layer::Sockets).value, Requirement::Off);
    let off = user("[layers]\nsockets = \"off\"").expect("valid");
    assert_eq!(off.watch.value, SocketWatch::Off, "the built-in mode gives way");
    let off = user("[layers]\nsockets = \"off\"\nseccomp = \"off\"").expect("valid");
    assert_eq!(off.layer(Layer::Sockets).value, Requirement::Off);
    assert_eq!(built_in("host").watch.value, SocketWatch::Off);
    let idle =
        user(&("unix-sockets-mode = \"off\"\n".to_owned() + &rule("a", "\"/a\"", "decision = \"deny\"")));
    assert_eq!(idle.expect("valid").warnings.len(), 1);
}

#[test]
fn shown_rules_parse_back_and_are_explained() {
    let text = rule(
        "db",
        "\"/run/*.s\", \"@a\\u0000b\"",
        "operations = [\"connect\"]\ndecision = \"audit\"\nmessage = \"ask \\\"us\\\"\"",
    );
    let first = user(&text).expect("valid");
    let shown = show_profile(&first);
    let again = user(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert_eq!(names(&first), names(&again));
    assert!(first.socket_rules.iter().zip(&again.socket_rules).all(|(a, b)| a.says_the_same(b)));
    let told = explain_profile(&first);
    assert!(told.contains("Rule db: audit connect on /run/*.s"), "{told}");
    assert!(told.contains("[/user/p.toml:2:8]") && !told.contains('\0'), "{told}");
}

fn over(base: &str, overlay: &str) -> Result<Resolved, ProfileError> {
    let texts = Texts::default().with(Place::User, "p", base).with(Place::Workspace, "p", overlay);
    resolve("p", &texts)
}

#[test]
fn a_workspace_may_only_deny() {
    let base = rule("db", "\"/run/db\"", "decision = \"allow\"");
    for decision in ["allow", "audit"] {
        let overlay = rule("more", "\"/run/x\"", &format!("decision = \"{decision}\""));
        let refusal = over(&base, &overlay).expect_err("widens").refusal;
        assert_eq!(refusal.code, Code::ProfileWidens);
        let origin = refusal.origin.expect("origin");
        assert_eq!((origin.file.to_string().as_str(), origin.line), ("/workspace/p.toml", 4));
        assert!(refusal.message.contains("/user/p.toml:2:8"), "{}", refusal.message);
    }
    let narrowed = over(&base, &rule("less", "\"/run/db\"", "decision = \"deny\"")).expect("narrower");
    assert_eq!(names(&narrowed), ["less", "db", "own", "private-places", "abstract-names"]);
    // A trusted rule is not replaced by its name.
    let refusal = over(&base, &rule("db", "\"/z\"", "decision = \"deny\"")).expect_err("taken").refusal;
    assert!(refusal.message.contains("trusted profile has a rule named `db`"), "{}", refusal.message);

    let watch = |base: &str, overlay: &str| {
        over(&format!("unix-sockets-mode = \"{base}\""), &format!("unix-sockets-mode = \"{overlay}\""))
    };
    assert!(watch("audit", "enforce").is_ok() && watch("enforce", "enforce").is_ok());
    for (base, overlay) in [("enforce", "audit"), ("enforce", "off"), ("audit", "off")] {
        assert_eq!(watch(base, overlay).expect_err("wider").refusal.code, Code::ProfileWidens);
    }
}

#[test]
fn a_trusted_profile_that_a_workspace_extends_is_judged_too() {
    let base = rule("db", "\"/run/db\"", "decision = \"allow\"");
    let narrowed = over(&base, "extends = \"readonly\"").expect("narrower");
    assert_eq!(
        names(&narrowed),
        ["own", "private-places", "abstract-names"],
        "what readonly does not allow is gone"
    );
    let texts = Texts::default().with(Place::User, "p", "").with(Place::User, "open", base).with(
        Place::Workspace,
        "p",
        "extends = \"open\"",
    );
    assert_eq!(resolve("p", &texts).expect_err("wider").refusal.code, Code::ProfileWidens);
}

fn socket(path: &str) -> Object {
    Object { is_dir: false, ..object(path, 0) }
}

fn found(profile: &Resolved, what: &[(&str, Option<&str>, SocketObject)]) -> HostReport {
    found_by(1000, profile, what)
}

fn found_by(uid: u32, profile: &Resolved, what: &[(&str, Option<&str>, SocketObject)]) -> HostReport {
    let mut report = report(uid);
    for needed in needed_sockets(profile, &report.caller).expect("expanded") {
        let asked = match &needed.place {
            SocketPlace::Path(path) => path.to_string(),
            SocketPlace::Glob { directory, .. } => directory.to_string(),
        };
        let row = what.iter().find(|(path, _, _)| *path == asked);
        let (_, real, what) = row.unwrap_or_else(|| panic!("{asked} was not expected"));
        report.sockets.push(FoundSocket { needed, real: real.map(Bytes::from), what: what.clone() });
    }
    report
}

fn planned(text: &str, what: &[(&str, Option<&str>, SocketObject)]) -> Result<Plan, Refusal> {
    let profile = user(text).expect("valid");
    plan(&request(&["true"]), &profile, &found(&profile, what))
}

#[test]
fn the_default_rules_shut_the_hosts_sockets_and_open_private_ones() {
    let plan = plan(&request(&["true"]), &built_in("default"), &report(1000)).expect("planned");
    let sockets = plan.sockets.as_ref().expect("watched");
    assert_eq!(sockets.mode, SocketMode::Enforce);
    let rules = SocketRules::compile(sockets).expect("globs");
    use SocketAddress::{Abstract, Path};
    use SocketOperation::{Bind, Connect, Listen, Send};
    let rows: [(SocketOperation, SocketAddress<'_>, Bound, Decision); 14] = [
        (Connect, Path(b"/run/docker.sock"), Bound::Elsewhere, Decision::Deny),
        (Connect, Path(b"/tmp/ssh-x/agent.1"), Bound::Elsewhere, Decision::Deny),
        (Connect, Path(b"/home/ada/w/x.sock"), Bound::Elsewhere, Decision::Deny),
        (Connect, Path(b"/home/ada/w/x.sock"), Bound::Here, Decision::Allow),
        (Send, Path(b"/dev/log"), Bound::Elsewhere, Decision::Deny),
        (Bind, Path(b"/home/ada/w/x.sock"), Bound::Elsewhere, Decision::Allow),
        (Listen, Path(b"/tmp/x"), Bound::Elsewhere, Decision::Allow),
        (Bind, Path(b"/home/ada/.cache/x"), Bound::Elsewhere, Decision::Allow),
        (Bind, Path(b"/dev/shm/x"), Bound::Elsewhere, Decision::Allow),
        (Bind, Path(b"/run/x"), Bound::Elsewhere, Decision::Deny),
        (Bind, Abstract(b"x"), Bound::Elsewhere, Decision::Allow),
        (Connect, Abstract(b"/tmp/.X11-unix/X0"), Bound::Elsewhere, Decision::Deny),
        (Connect, Abstract(b"x"), Bound::Here, Decision::Allow),
        (Send, Abstract(b"x"), Bound::Elsewhere, Decision::Deny),
    ];
    for (operation, address, bound, decision) in rows {
        let verdict = rules.decide(operation, address, bound, &|_| false);
        assert_eq!(verdict.decision, decision, "{operation} {address:?} {bound:?}");
    }
    assert!(sockets.rules.iter().all(|rule| rule.origin.is_none()));
    let told = explain(&plan);
    assert!(told.contains("private-places, built-in") && told.contains("/home/ada/w/**"), "{told}");
}

#[test]
fn a_literal_socket_is_shown_under_both_names() {
    let text = rule("db", "\"/var/run/db.sock\"", "operations = [\"connect\"]\ndecision = \"allow\"");
    let plan = planned(
        &text,
        &[("/var/run/db.sock", Some("/run/db.sock"), SocketObject::Socket(socket("/run/db.sock")))],
    )
    .expect("planned");
    let bind = plan.mounts.iter().find(|mount| mount.target == Bytes::from("/run/db.sock")).expect("shown");
    assert!(matches!(&bind.kind, MountKind::Bind(bind) if !bind.writable && !bind.source.is_dir));
    assert!(bind.reason.contains("db"));
    let link =
        plan.mounts.iter().find(|mount| mount.target == Bytes::from("/var/run/db.sock")).expect("linked");
    assert!(matches!(&link.kind, MountKind::Symlink { to } if to.as_slice() == b"/run/db.sock"));
    let landlock = plan.landlock.as_ref().expect("landlock");
    assert!(landlock.rules.iter().all(|rule| rule.path != Bytes::from("/run/db.sock")));
    let patterns = &plan.sockets.as_ref().expect("watched").rules[0].patterns;
    let expected = ["/var/run/db.sock", "/run/db.sock"].map(|path| SocketPattern::Path(Bytes::from(path)));
    assert_eq!(*patterns, expected);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    let origin = plan.sockets.as_ref().and_then(|sockets| sockets.rules[0].origin.clone()).expect("a place");
    assert_eq!(origin.to_string(), "/user/p.toml:2:8");
}

#[test]
fn what_can_not_be_shown_is_told() {
    let allow = "operations = [\"connect\"]\ndecision = \"allow\"";
    let warning = |paths: &str, asked: &str, what: SocketObject| {
        planned(&rule("r", paths, allow), &[(asked, None, what)]).expect("planned").warnings.join(" ")
    };
    assert!(
        warning("\"/run/x\"", "/run/x", SocketObject::Missing)
            .contains("p.toml:3:10: nothing listens at `/run/x` now")
    );
    assert!(warning("\"/run/x\"", "/run/x", SocketObject::Planted).contains("could have made"));
    assert!(warning("\"/run/*\"", "/run/", SocketObject::Matches(Some(0))).contains("matches nothing"));
    assert!(
        warning("\"/run/*\"", "/run/", SocketObject::Matches(Some(2))).contains("2 of the host's sockets")
    );
    assert!(warning("\"/run/**\"", "/run/", SocketObject::Matches(None)).contains("outside"));
    for (paths, asked) in [("\"/tmp/x\"", "/tmp/x"), ("\"~/x\"", "/home/ada/x"), ("\"/usr/x\"", "/usr/x")] {
        let told = warning(paths, asked, SocketObject::Missing);
        assert_eq!(told.is_empty(), !paths.contains("usr"), "{paths}: {told}");
    }
    assert_eq!(warning("\"/tmp/*\"", "/tmp/", SocketObject::Matches(Some(0))), "");
    let refusal =
        planned(&rule("r", "\"/run/x\"", allow), &[("/run/x", Some("/run/x"), SocketObject::Other)])
            .expect_err("a file");
    assert!(refusal.message.contains("is not a socket") && refusal.origin.expect("origin").line == 3);
    // A denial shows nothing and needs nothing to be there.
    let denied = rule("r", "\"/run/x\"", "decision = \"deny\"");
    let plan = planned(&denied, &[("/run/x", Some("/run/x"), SocketObject::Socket(socket("/run/x")))])
        .expect("planned");
    assert!(plan.mounts.iter().all(|mount| mount.target != Bytes::from("/run/x")));
}

#[test]
fn what_is_visible_anyway_is_not_mounted_again() {
    let text =
        rule("r", "\"/usr/x.sock\", \"$WORKSPACE/y.sock\", \"/home/ada/w/z.sock\"", "decision = \"allow\"");
    let plan = planned(
        &text,
        &[
            ("/usr/x.sock", Some("/usr/x.sock"), SocketObject::Socket(socket("/usr/x.sock"))),
            (
                "/home/ada/w/z.sock",
                Some("/home/ada/w/z.sock"),
                SocketObject::Socket(socket("/home/ada/w/z.sock")),
            ),
        ],
    )
    .expect("planned");
    assert!(plan.mounts.iter().all(|mount| !mount.target.to_string().ends_with(".sock")));
    let rules = &plan.sockets.as_ref().expect("watched").rules;
    assert!(rules[0].patterns.contains(&SocketPattern::Path(Bytes::from("/home/ada/w/y.sock"))));
}

/// Host root shows directories through a map with one owner: to a socket of anyone else nobody can connect there.
#[test]
fn a_socket_of_another_owner_is_shown_beside_the_map_of_owners() {
    let path = "/home/ada/w/z.sock";
    let shown = |view: &str, uid: u32, owner: u32| {
        let text = format!("fs = \"{view}\"\n{}", rule("r", &format!("\"{path}\""), "decision = \"allow\""));
        let profile = user(&text).expect("valid");
        let socket = Object { uid: owner, gid: owner, ..socket(path) };
        let found = found_by(uid, &profile, &[(path, Some(path), SocketObject::Socket(socket))]);
        let plan = plan(&request(&["true"]), &profile, &found).expect("planned");
        plan.mounts.iter().any(|mount| {
            mount.target == Bytes::from(path)
                && matches!(&mount.kind, MountKind::Bind(bind) if !bind.owner_mapped && !bind.writable)
        })
    };
    assert!(shown("workspace-readonly", 0, 101));
    assert!(!shown("workspace-readonly", 0, 1000), "the owner's own");
    assert!(!shown("workspace-rw", 0, 101), "commands could not remove what they see there");
    assert!(!shown("workspace-readonly", 1000, 101), "nothing is mapped for an ordinary user");
}

#[test]
fn a_home_that_is_a_system_path_opens_nothing() {
    let mut report = report(1000);
    report.caller.home = Bytes::from("/");
    let plan = plan(&request(&["true"]), &built_in("default"), &report).expect("planned");
    let rules = SocketRules::compile(plan.sockets.as_ref().expect("watched")).expect("globs");
    let bind = |path: &'static [u8]| {
        rules.decide(SocketOperation::Bind, SocketAddress::Path(path), Bound::Elsewhere, &|_| false).decision
    };
    assert_eq!((bind(b"/run/x"), bind(b"/tmp/x")), (Decision::Deny, Decision::Allow));
}

#[test]
fn unset_variables_and_missing_layers() {
    let text = rule("r", "\"$NOT_SET/x\"", "decision = \"allow\"");
    let profile = user(&text).expect("valid");
    let refusal = needed_sockets(&profile, &report(1000).caller).expect_err("unset");
    assert!(refusal.message.contains("NOT_SET") && refusal.origin.is_some());

    let unavailable =
        || crate::Unavailable { why: "no notifications".to_owned(), remedy: "upgrade".to_owned() };
    let mut bare = report(1000);
    bare.layers = bare.layers.without(Layer::Sockets, unavailable());
    let refusal = plan(&request(&["true"]), &built_in("default"), &bare).expect_err("must");
    assert_eq!(refusal.code, Code::LayerUnavailable);
    let prefers = user("[layers]\nsockets = \"prefer\"").expect("valid");
    let plan = plan(&request(&["true"]), &prefers, &bare).expect("prefer");
    assert!(plan.sockets.is_none() && plan.warnings[0].contains("sockets"), "{:?}", plan.warnings);
}

#[test]
fn built_in_places_are_looked_at_only_without_a_new_root() {
    let caller = report(1000).caller;
    assert_eq!(needed_sockets(&built_in("default"), &caller), Ok(Vec::<NeededSocket>::new()));
    let inherit = user("fs = \"inherit\"").expect("valid");
    assert_eq!(needed_sockets(&inherit, &caller).expect("expanded").len(), 3);
}

#[test]
fn guidance_is_a_rule_that_allows_just_that() {
    let addresses = [
        SocketAddress::Path(b"/run/x.sock"),
        SocketAddress::Path(b"/run/a*b[c]{d}\\e?"),
        SocketAddress::Path("/run/é \"q\"\n".as_bytes()),
        SocketAddress::Path("/run/\u{202e}kcos.\u{200b}\u{e0041}\u{2028}x".as_bytes()),
        SocketAddress::Abstract("\u{feff}\u{2066}".as_bytes()),
        SocketAddress::Abstract(b"name\0with\0nuls"),
        SocketAddress::Abstract(b"x*"),
        SocketAddress::Abstract(b""),
    ];
    for address in addresses {
        for operation in SocketOperation::ALL {
            let text = guidance_for_socket(operation, address);
            assert!(!text.lines().any(|line| line.contains(Bytes::is_unseen)), "all of it is seen: {text:?}");
            let profile = user(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut report = report(1000);
            for needed in needed_sockets(&profile, &report.caller).expect("expanded") {
                report.sockets.push(FoundSocket { needed, real: None, what: SocketObject::Missing });
            }
            let plan = plan(&request(&["true"]), &profile, &report).expect("planned");
            let rules = SocketRules::compile(plan.sockets.as_ref().expect("watched")).expect("globs");
            let verdict = rules.decide(operation, address, Bound::Elsewhere, &|_| false);
            assert_eq!(verdict.decision, Decision::Allow, "{text}");
            assert!(socket_reason(operation, address, &verdict).contains("/user/p.toml:2:8"));
            let other = SocketAddress::Path(b"/run/other");
            let denied = rules.decide(operation, other, Bound::Elsewhere, &|_| false);
            assert_eq!(denied.decision, Decision::Deny, "{text}");
            assert!(socket_reason(operation, other, &denied).contains("no socket rule allows"));
        }
    }
}

/// A wildcard for a byte that TOML can't hold would open every name of that length.
#[test]
fn a_name_that_is_not_text_has_no_guidance() {
    let verdict = |decision| SocketVerdict { decision, rule: None };
    for address in [SocketAddress::Path(b"/run/\xff\xfe"), SocketAddress::Abstract(b"a\xc3")] {
        for operation in SocketOperation::ALL {
            assert_eq!(guidance_for_socket(operation, address), "");
            let reason = socket_reason(operation, address, &verdict(Decision::Deny));
            assert!(reason.contains("not text"), "{reason}");
            assert!(!socket_reason(operation, address, &verdict(Decision::Allow)).contains("not text"));
        }
    }
    let text = SocketAddress::Path("/run/é".as_bytes());
    assert!(!socket_reason(SocketOperation::Bind, text, &verdict(Decision::Deny)).contains("not text"));
}
