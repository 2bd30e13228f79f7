//! The allowlist from text to plan.

use stockade_proto::{Code, Network};

use super::planning::{built_in, report, request};
use super::{Texts, plan, user};
use crate::{
    EgressRules, EgressVerdict, Place, ProfileError, Registry, Resolved, closed_range, explain,
    explain_profile, guidance_for_host, host_reason, needs, publish, resolve, show_profile,
};

fn allowlist(entries: &str) -> String {
    format!("network = \"allowlist\"\n[egress]\nallow = [{entries}]\n")
}

#[test]
fn mistakes_are_found_at_their_place() {
    let sets = |sets: &str| allowlist("\"set:mine\"") + "[egress.sets]\n" + sets;
    let rows: Vec<(String, u32, u32, &str)> = vec![
        (allowlist(""), 1, 11, "needs hosts"),
        (allowlist("3"), 3, 10, "must be a string"),
        (allowlist("\"https://x.example/y\""), 3, 10, "write \"x.example\""),
        (allowlist("\"a.example\", \"b.example:0\""), 3, 23, "between 1 and 65535"),
        (allowlist("\"10.1.2.3/16\""), 3, 10, "10.1.0.0/16"),
        (allowlist("\"set:nobody\""), 3, 10, "no set `nobody`"),
        (allowlist("\"set:registry\""), 3, 10, "did you mean set:registries?"),
        (sets("mine = []"), 5, 8, "has no members"),
        (sets("mine = [\"set:other\"]"), 5, 9, "sets don't nest"),
        (sets("mine = [\"set:mine\"]"), 5, 9, "sets don't nest"),
        (sets("mine = [\"a.example\"]\nregistries = [\"a.example\"]"), 6, 1, "another name"),
        (sets("\"a b\" = [\"a.example\"]"), 5, 1, "no name for a set"),
        (sets("mine = \"a.example\""), 5, 8, "a list of strings"),
        ("[egress]\nallowed = []".to_owned(), 2, 1, "did you mean `allow`?"),
        ("egres = 1".to_owned(), 1, 1, "did you mean `egress`?"),
        ("[egress]\nallow = [\"a.example\"]".to_owned(), 2, 9, "write network = \"allowlist\""),
        ("network = \"inherit\"\n[egress]\nallow = [\"a.example\"]".to_owned(), 3, 9, "not \"allowlist\""),
        ("network = \"deny\"\n[egress]\nallow = [\"a.example\"]".to_owned(), 3, 9, "not \"allowlist\""),
        ("mode = \"host\"\n[egress]\nallow = [\"a.example\"]".to_owned(), 3, 9, "mode \"host\""),
        ("mode = \"host\"\n[egress.sets]\nx = [\"a.example\"]".to_owned(), 3, 1, "mode \"host\""),
        (
            allowlist("\"a.example\"") + "[layers]\nnetwork = \"off\"",
            5,
            11,
            "\"allowlist\", which nothing would enforce",
        ),
    ];
    for (text, line, column, part) in rows {
        let error = user(&text).expect_err(&text);
        let told = format!("{} {}", error.refusal.message, error.refusal.remedy);
        let origin = error.refusal.origin.clone().unwrap_or_else(|| panic!("{text}: no origin: {told}"));
        assert_eq!((origin.line, origin.column), (line, column), "{text}: {told}");
        assert!(told.contains(part), "{text}: {told}");
    }
}

#[test]
fn what_is_odd_but_valid_is_warned_of() {
    for (entries, part) in [
        ("\"*.example\"", "top-level domain `example`"),
        ("\"0.0.0.0/0\"", "every address"),
        ("\"a.example\", \"A.example.\"", "listed already, as `a.example`"),
        ("\"*.b.example\", \"a.b.example:443\"", "adds nothing to `*.b.example`"),
        ("\"10.0.0.0/8\", \"10.1.0.0/16:80\"", "adds nothing to `10.0.0.0/8`"),
        ("\"set:registries\", \"set:registries\"", "listed already"),
    ] {
        let warnings = user(&allowlist(entries)).expect(entries).warnings;
        assert_eq!(warnings.len(), 1, "{entries}: {warnings:?}");
        assert!(warnings[0].contains(part) && warnings[0].contains("/user/p.toml:3:"), "{warnings:?}");
    }
    for quiet in [
        "\"a.b.example\", \"*.b.example\"",
        "\"a.example:1\", \"a.example:2\"",
        "\"*.b.example\", \"b.example\"",
    ] {
        assert_eq!(user(&allowlist(quiet)).expect(quiet).warnings, Vec::<String>::new());
    }
}

fn over(base: &str, overlay: &str) -> Result<Resolved, ProfileError> {
    let texts = Texts::default().with(Place::User, "p", base).with(Place::Workspace, "p", overlay);
    resolve("p", &texts)
}

#[test]
fn a_workspace_may_only_list_less() {
    let base = allowlist("\"a.example\", \"*.b.example:443\", \"10.0.0.0/8:5432\", \"set:mine\"")
        + "[egress.sets]\nmine = [\"c.example\"]";
    for narrower in [
        "\"a.example:443\"",
        "\"a.example:443\", \"a.example:80\"",
        "\"x.b.example:443\", \"*.y.b.example:443\"",
        "\"10.1.0.0/16:5432\", \"10.9.9.9:5432\"",
        "\"set:mine\"",
        "\"c.example:80\"",
    ] {
        let text = format!("[egress]\nallow = [{narrower}]");
        assert!(over(&base, &text).is_ok(), "{narrower}: {}", over(&base, &text).expect_err("wider"));
    }
    for wider in [
        "\"a.example:22\"",
        "\"x.a.example\"",
        "\"x.b.example\"",
        "\"b.example:443\"",
        "\"10.0.0.0/7:5432\"",
        "\"10.1.1.1:443\"",
        "\"set:registries\"",
        "\"d.example\"",
    ] {
        let refusal = over(&base, &format!("[egress]\nallow = [{wider}]")).expect_err(wider).refusal;
        let told = refusal.message.clone();
        assert_eq!(refusal.code, Code::ProfileWidens, "{wider}: {told}");
        let origin = refusal.origin.expect("origin");
        assert_eq!(
            (origin.file.to_string().as_str(), origin.line, origin.column),
            ("/workspace/p.toml", 2, 10),
            "{told}"
        );
        assert!(told.contains("/user/p.toml:3:9"), "{told}");
    }
    // A set of the same name must not change what the trusted list means.
    let refusal = over(&base, "[egress.sets]\nmine = [\"evil.example\"]").expect_err("widens").refusal;
    assert_eq!((refusal.code, refusal.origin.expect("origin").line), (Code::ProfileWidens, 2));
    assert!(over(&base, "[egress.sets]\nmine = [\"c.example:80\"]").is_ok());
}

#[test]
fn reach_narrows_from_inherit_to_allowlist_to_deny() {
    let listed = allowlist("\"a.example\"");
    assert!(over("network = \"inherit\"", &listed).is_ok());
    let denied = over(&listed, "network = \"deny\"").expect("narrower");
    assert!(denied.egress_allow.value.is_empty() && denied.warnings.is_empty());
    for (base, overlay) in [("", listed.as_str()), (listed.as_str(), "network = \"inherit\"")] {
        assert_eq!(over(base, overlay).expect_err("wider").refusal.code, Code::ProfileWidens);
    }
    assert!(over("", "[egress]\nallow = [\"a.example\"]").is_err());
}

#[test]
fn lists_replace_and_sets_merge() {
    let texts = Texts::default()
        .with(Place::User, "p", "extends = \"q\"\n[egress]\nallow = [\"set:one\", \"set:two\"]\n[egress.sets]\ntwo = [\"new.example\"]")
        .with(Place::User, "q", allowlist("\"gone.example\"") + "[egress.sets]\none = [\"one.example\"]\ntwo = [\"old.example\"]");
    let profile = resolve("p", &texts).expect("valid");
    let rules = planned(&profile, Vec::new());
    assert!(rules.by_name("one.example").is_some() && rules.by_name("new.example").is_some());
    assert!(rules.by_name("old.example").is_none() && rules.by_name("gone.example").is_none());
    let shown = show_profile(&profile);
    let again = user(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert_eq!(again.egress_allow.value.len(), 2);
    assert_eq!(again.egress_sets.len(), 2);
    let told = explain_profile(&profile);
    assert!(told.contains("It may reach the set two: new.example. [/user/p.toml:3:"), "{told}");
}

fn planned(profile: &Resolved, registries: Vec<Registry>) -> EgressRules {
    let mut report = report(1000);
    report.registries = registries;
    let plan = plan(&request(&["true"]), profile, &report).expect("planned");
    match &plan.network {
        Network::Allowlist(egress) => EgressRules::compile(egress),
        other @ (Network::Deny | Network::Inherit) => panic!("{other:?}"),
    }
}

#[test]
fn registries_are_what_the_survey_found() {
    let profile = user(&allowlist("\"set:registries\"")).expect("valid");
    let caller = report(1000).caller;
    assert!(needs(&profile, &request(&["true"]), &caller).expect("needs").registries);
    let without = user(&allowlist("\"a.example\"")).expect("valid");
    assert!(!needs(&without, &request(&["true"]), &caller).expect("needs").registries);
    let registry = |tool, host: &str, port| Registry { tool, host: host.to_owned(), port };
    let mut host = report(1000);
    host.registries = vec![
        registry("npm", "n.example", 4873),
        registry("pip", "n.example", 4873),
        registry("go", "127.0.0.1", 3000),
        registry("go", "::1", 3000),
        registry("cargo", "*.evil.example", 443),
        registry("cargo", "set:mine", 443),
    ];
    let plan = plan(&request(&["true"]), &profile, &host).expect("planned");
    let Network::Allowlist(egress) = &plan.network else { panic!("{:?}", plan.network) };
    let rules = egress.targets.iter().map(|target| target.rule.as_str()).collect::<Vec<_>>();
    let expected =
        ["set:registries (npm: n.example)", "set:registries (go: 127.0.0.1)", "set:registries (go: ::1)"];
    assert_eq!(rules, expected);
    assert_eq!(plan.warnings.len(), 2, "{:?}", plan.warnings);
    let compiled = EgressRules::compile(egress);
    assert!(compiled.name_port("n.example", 4873).is_allowed());
    assert!(compiled.address_port("127.0.0.1".parse().expect("ip"), 3000).is_allowed());
    assert!(explain(&plan).contains("allow      n.example on 4873"), "{}", explain(&plan));
}

#[test]
fn ports_are_published_out_of_a_namespace_only() {
    let ask = |profile: &Resolved, ports: &[&str]| {
        let mut request = request(&["true"]);
        request.publish = ports.iter().map(|text| publish(text).expect("a form")).collect();
        plan(&request, profile, &report(1000))
    };
    let default = built_in("default");
    let good = ["8080:80", "0:81", "0:82", "127.0.0.2:8080:80", "[::1]:8080:80", "9090"];
    let planned = ask(&default, &good).expect("planned");
    assert_eq!(planned.publish.len(), good.len());
    let text = explain(&planned);
    for line in [
        "127.0.0.1:8080 of the host reaches port 80 inside",
        "a port that the kernel chooses on 127.0.0.1 of the host reaches port 81 inside",
        "[::1]:8080 of the host reaches port 80 inside",
        "127.0.0.1:9090 of the host reaches port 9090 inside",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let many: Vec<String> = (1..=17).map(|port| format!("0:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(ask(&default, &many[..16]).is_ok());
    for (bad, word) in [(&["1:80", "1:81"][..], "twice"), (&many, "16 is the most")] {
        let refusal = ask(&default, bad).expect_err("refused");
        assert_eq!(refusal.code, Code::OptionInvalid);
        assert!(refusal.message.contains(word), "{}", refusal.message);
    }
    let open = user("network = \"inherit\"").expect("valid");
    for profile in [&open, &built_in("host")] {
        let refusal = ask(profile, &good).expect_err("no namespace");
        assert!(refusal.message.contains("host's own network"), "{}", refusal.message);
    }
    let listed = user(&allowlist("\"a.example:8443\"")).expect("valid");
    assert!(ask(&listed, &["8443:80"]).is_ok());
    for bad in ["80:8443", "5300:53"] {
        let refusal = ask(&listed, &[bad]).expect_err("the relay's");
        assert!(refusal.message.contains("way out"), "{}", refusal.message);
    }
    assert!(ask(&default, &["5300:53"]).is_ok(), "nobody answers DNS there");
}

#[test]
fn only_these_forms_publish() {
    for bad in [
        "",
        ":",
        "::",
        "0",
        "80:0",
        "a",
        "80:",
        ":80",
        "+1",
        " 80",
        "80 ",
        "65536",
        "1:2:3",
        "8080:80/tcp",
        "0.0.0.0:80:80",
        "10.0.0.1:80:80",
        "localhost:80:80",
        "::1:80:80",
        "[::1]:80",
        "[::]:80:80",
        "[127.0.0.1]:80:80",
        "[::ffff:127.0.0.1]:80:80",
        "127.1:80:80",
        "0x50",
        "٣",
        "127.0.0.1::80",
    ] {
        let refusal = publish(bad).expect_err(bad);
        assert_eq!(refusal.code, Code::OptionInvalid);
        assert!(refusal.message.contains("--publish"), "{bad}: {}", refusal.message);
    }
    assert!(user("publish = [\"80\"]").expect_err("no such key").refusal.message.contains("unknown key"));
}

#[test]
fn guidance_opens_just_that() {
    for (host, port) in [("a.example", 443), ("10.1.2.3", 5432), ("2001:db8::1", 443)] {
        let text = guidance_for_host(host, Some(port));
        let rules = planned(&user(&text).unwrap_or_else(|error| panic!("{text}: {error}")), Vec::new());
        let verdict = match host.parse() {
            Ok(address) => rules.address_port(address, port),
            Err(_) => rules.name_port(host, port),
        };
        assert!(verdict.is_allowed(), "{text}");
        assert!(host_reason(host, Some(port), &verdict).contains("is allowed by"));
        let other = rules.name_port("b.example", port);
        assert!(host_reason("b.example", Some(port), &other).contains("not in `egress.allow`"));
    }
    assert!(guidance_for_host("10.1.2.3", Some(443)).contains("opens a private range: 10.1.2.3 is"));
    assert!(!guidance_for_host("a.example", Some(443)).contains("private"));
    for none in ["*", "*.example", "(unknown)", "a b", "", "set:registries"] {
        assert_eq!(guidance_for_host(none, Some(443)), "", "{none}");
        assert_eq!(guidance_for_host(none, None), "", "{none}");
    }
    assert_eq!(guidance_for_host("a.example", Some(53)), "", "no profile may list it");
    let rules = planned(&user(&allowlist("\"a.example\"")).expect("valid"), Vec::new());
    let told = host_reason("a.example", Some(22), &rules.name_port("a.example", 22));
    assert!(told.contains("on port 80 and 443, not on 22"), "{told}");
    let closed = closed_range("169.254.169.254".parse().expect("ip")).expect("closed");
    assert!(host_reason("a.example", Some(80), &EgressVerdict::Closed(closed)).contains("metadata"));
}
