//! A workspace's profile may only take away.

use proptest::prelude::*;
use stockade_proto::{Code, Decision, Layer, SocketOperation};

use super::Texts;
use crate::narrow::is_below;
use crate::{Bound, EgressRules, Place, Reach, Resolved, SocketAddress, SocketRules, resolve};

fn over(base: &str, overlay: &str) -> Result<Resolved, crate::ProfileError> {
    let texts = Texts::default().with(Place::User, "p", base).with(Place::Workspace, "p", overlay);
    resolve("p", &texts)
}

/// overlay, line, column, both values
const WIDER: &[(&str, u32, u32, &str, &str)] = &[
    ("mode = \"host\"", 1, 8, "host", "sandbox"),
    ("fs = \"inherit\"", 1, 6, "inherit", "workspace-rw"),
    ("network = \"inherit\"", 1, 11, "inherit", "deny"),
    ("readable = [\"~/secrets\"]", 1, 13, "~/secrets", "~/data"),
    ("readable = [\"~/database\"]", 1, 13, "~/database", "~/data"),
    ("readable = [\"~/\"]", 1, 13, "~/", "~/data"),
    ("writable = [\"~/data\"]", 1, 13, "~/data", "~/out"),
    ("[limits]\nmemory = \"1G\"", 2, 10, "1G", "512M"),
    ("[limits]\nwall = \"none\"", 2, 8, "none", "10m"),
    ("[limits]\ngrace = \"1h\"", 2, 9, "1h", "5s"),
    ("[layers]\nseccomp = \"prefer\"", 2, 11, "prefer", "must"),
    ("[layers]\nfilesystem = \"off\"", 2, 14, "off", "must"),
    ("[env]\nallow = [\"PATH\", \"AWS_SECRET\"]", 2, 18, "AWS_SECRET", "PATH"),
    ("[env]\nallow = [\"*\"]", 2, 10, "*", "PATH"),
    ("[env]\nset = { PATH = \"/w/bin\" }", 2, 9, "/w/bin", "own value"),
    ("[env]\nset = { LANG = \"x\" }", 2, 9, "LANG", "passes the caller's value"),
    ("[env]\nset = { KEPT = \"x\" }", 2, 9, "KEPT", "own value"),
    ("[shell]\nprogram = \"/bin/zsh\"", 2, 11, "/bin/zsh", "/bin/bash"),
    ("[shell]\nallowed-programs = [\"/bin/zsh\"]", 2, 21, "/bin/zsh", "/bin/bash"),
    ("[shell]\nallowed-args = [\"-ic\"]", 2, 17, "-ic", "-lc"),
    ("toolchains = true", 1, 14, "true", "false"),
    ("extends = \"build\"", 1, 11, "true", "false"),
    ("extends = \"host\"", 1, 11, "host", "sandbox"),
];

const BASE: &str =
    "readable = [\"~/data\"]\nwritable = [\"~/out\"]\ntoolchains = false\n[env]\nset = { KEPT = \"1\" }";

#[test]
fn each_wider_key_is_refused_with_both_values() {
    for (overlay, line, column, asked, allowed) in WIDER {
        let refusal = over(BASE, overlay).expect_err(overlay).refusal;
        assert_eq!(refusal.code, Code::ProfileWidens, "{overlay}: {}", refusal.message);
        let origin = refusal.origin.expect("origin");
        assert_eq!((origin.line, origin.column), (*line, *column), "{overlay}: {}", refusal.message);
        assert!(origin.file.to_string().starts_with("/workspace/"));
        assert!(refusal.message.contains(asked) && refusal.message.contains(allowed), "{}", refusal.message);
    }
}

#[test]
fn a_workspace_sets_nothing_where_there_are_no_walls() {
    for name in ["PATH", "ANYTHING"] {
        let overlay = format!("[env]\nset = {{ {name} = \"/w/bin\" }}");
        let refusal = over("mode = \"host\"", &overlay).expect_err(name).refusal;
        assert_eq!(refusal.code, Code::ProfileWidens, "{}", refusal.message);
    }
}

#[test]
fn narrower_is_welcome() {
    let narrowed = over(
        BASE,
        "fs = \"workspace-readonly\"\nreadable = [\"$HOME/data/x\", \"~/out/y?\"]\nwritable = []\n\
         deny = [\"secret/**\"]\n[env]\nallow = [\"PATH\"]\nset = { A = \"1\" }\n[limits]\nmemory = \"64M\"",
    )
    .expect("narrower");
    assert_eq!(narrowed.limits[0].value, Some(64 << 20));
    let deny = narrowed.deny.value.iter().map(|item| item.value.as_str()).collect::<Vec<_>>();
    assert_eq!(deny, ["**/.env", "secret/**"], "deny lists only grow");
    assert_eq!(narrowed.bounds.len(), 2);
    assert!(over(BASE, "deny = []").expect("nothing taken").deny.value.len() == 1);
    let build = over("", "extends = \"build\"").expect_err("wider").refusal;
    assert!(build.message.contains("4G") && build.message.contains("512M"), "{}", build.message);
    assert!(over("", "extends = \"readonly\"").is_ok(), "a narrower trusted profile");
}

#[test]
fn a_workspace_name_that_nobody_else_has_narrows_default() {
    let texts = Texts::default().with(Place::Workspace, "ci", "[limits]\nmemory = \"1G\"");
    assert_eq!(resolve("ci", &texts).expect_err("wider").refusal.code, Code::ProfileWidens);
    let texts = Texts::default().with(Place::Workspace, "ci", "[limits]\nmemory = \"1G\"").with(
        Place::User,
        "default",
        "[limits]\nmemory = \"2G\"",
    );
    assert_eq!(resolve("ci", &texts).expect("within").limits[0].value, Some(1 << 30));
    let host = Texts::default().with(Place::Workspace, "host", "mode = \"sandbox\"");
    assert_eq!(resolve("host", &host).expect_err("no walls").refusal.code, Code::ProfileInvalid);
}

#[test]
fn a_refused_variable_is_refused_from_a_workspace_too() {
    let refusal = over("", "[env]\nset = { BASH_ENV = \"x\" }").expect_err("refused").refusal;
    assert_eq!(refusal.code, Code::EnvironmentRefused);
}

fn refused_at(base: &str, overlay: &str) -> (Code, u32, String) {
    let refusal = over(base, overlay).expect_err(overlay).refusal;
    (refusal.code, refusal.origin.expect("origin").line, refusal.message)
}

#[test]
fn a_workspace_sets_no_variable_without_walls() {
    for set in ["PATH = \"bin\"", "HOME = \"/x\"", "A = \"1\""] {
        let (code, line, message) = refused_at("extends = \"host\"", &format!("[env.set]\n{set}"));
        assert_eq!((code, line), (Code::ProfileWidens, 2), "{message}");
        let texts = Texts::default().with(Place::Workspace, "host", format!("[env]\nset = {{ {set} }}"));
        assert_eq!(resolve("host", &texts).expect_err("no walls").refusal.code, Code::ProfileWidens);
    }
    assert!(over("extends = \"host\"", "[env]\nset = {}").is_ok());
}

#[test]
fn a_workspace_replaces_no_trusted_variable() {
    let base = "[env]\nallow = [\"LANG\", \"MY_*\"]\nset = { OWN = \"trusted\" }";
    for (name, part) in [
        ("PATH", "computed"),
        ("HOME", "computed"),
        ("LANG", "passes the caller's"),
        ("MY_X", "\\\"MY_*"),
        ("OWN", "/user/p.toml:3"),
    ] {
        let (code, line, message) = refused_at(base, &format!("[env.set]\nA = \"1\"\n{name} = \"x\""));
        assert_eq!((code, line), (Code::ProfileWidens, 3), "{name}: {message}");
        assert!(message.contains(&part.replace('\\', "")) && message.contains(name), "{message}");
        // Taking it off the list first is no way around.
        let (code, _, _) = refused_at(base, &format!("[env]\nallow = []\nset = {{ {name} = \"x\" }}"));
        assert_eq!(code, Code::ProfileWidens, "{name}");
    }
    let chain = Texts::default()
        .with(Place::User, "p", base)
        .with(Place::Workspace, "less", "[env]\nallow = []\nset = { A = \"1\" }")
        .with(Place::Workspace, "p", "extends = \"less\"\n[env.set]\nLANG = \"x\"");
    assert_eq!(resolve("p", &chain).expect_err("one after another").refusal.code, Code::ProfileWidens);
    let own = Texts::default()
        .with(Place::User, "p", base)
        .with(Place::Workspace, "less", "[env]\nset = { A = \"1\" }")
        .with(Place::Workspace, "p", "extends = \"less\"\n[env.set]\nA = \"2\"");
    assert_eq!(resolve("p", &own).expect("its own").env_set.len(), 2);
}

#[test]
fn a_workspaces_socket_rule_names_no_variable_of_the_callers() {
    let rule =
        |path: &str| format!("[[unix_sockets]]\nname = \"w\"\npaths = [\"{path}\"]\ndecision = \"deny\"");
    let (code, line, message) = refused_at("", &rule("$AWS_SECRET/x"));
    assert_eq!((code, line), (Code::ProfileInvalid, 3), "{message}");
    assert!(message.contains("AWS_SECRET"), "{message}");
    assert!(over("", &rule("$XDG_RUNTIME_DIR/x")).is_ok() && over(&rule("$MINE/x"), "").is_ok());
}

/// An independent statement of "not wider", for the property below.
fn is_within(inner: &Resolved, outer: &Resolved) -> bool {
    let names =
        |list: &crate::written::List| list.value.iter().map(|at| at.value.clone()).collect::<Vec<_>>();
    let plain = |path: &String| path.trim_end_matches('?').to_owned();
    let below =
        |path: &String, roots: &[String]| roots.iter().any(|root| is_below(&plain(path), &plain(root)));
    let (readable, writable) = (names(&outer.readable), names(&outer.writable));
    let all = [readable, writable.clone()].concat();
    inner.mode.value == outer.mode.value
        && inner.fs.value <= outer.fs.value
        && inner.network.value <= outer.network.value
        && inner.toolchains.value <= outer.toolchains.value
        && names(&inner.readable).iter().all(|path| below(path, &all))
        && names(&inner.writable).iter().all(|path| below(path, &writable))
        && names(&outer.deny).iter().all(|glob| names(&inner.deny).contains(glob))
        && names(&outer.deny_write).iter().all(|glob| names(&inner.deny_write).contains(glob))
        && names(&inner.env_allow).iter().all(|name| names(&outer.env_allow).contains(name))
        && names(&inner.shell_allowed_programs)
            .iter()
            .all(|at| names(&outer.shell_allowed_programs).contains(at))
        && inner.limits.iter().zip(&outer.limits).all(|(inner, outer)| match (inner.value, outer.value) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(inner), Some(outer)) => inner <= outer,
        })
        && inner.watch.value >= outer.watch.value
        && decides_within(inner, outer)
        && Layer::ALL.iter().all(|layer| inner.layer(*layer).value >= outer.layer(*layer).value)
}

fn lines(choices: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    proptest::option::of(proptest::sample::select(choices))
}

const RULES: [&str; 6] = [
    "paths = [\"/run/x\"]\ndecision = \"allow\"",
    "paths = [\"/run/*\"]\noperations = [\"connect\"]\ndecision = \"audit\"",
    "paths = [\"/run/**\", \"@*\"]\ndecision = \"deny\"",
    "paths = [\"own\"]\noperations = [\"send\"]\ndecision = \"deny\"",
    "paths = [\"/tmp/a\"]\noperations = [\"bind\"]\ndecision = \"deny\"",
    "paths = [\"@*\"]\noperations = [\"connect\"]\ndecision = \"allow\"",
];

/// Every call that `inner` lets through, `outer` lets through; every host that `inner` reaches, `outer` does.
fn decides_within(inner: &Resolved, outer: &Resolved) -> bool {
    let report = super::planning::report(1000);
    let (caller, home, workspace) = (&report.caller, &report.caller.home, &report.workspace.path);
    let compiled = |profile: &Resolved| {
        let ground = crate::SocketGround { caller, home, workspace, found: &[] };
        let plan = crate::socket_plan(profile, &ground).expect("expanded");
        plan.map(|plan| SocketRules::compile(&plan).expect("globs"))
    };
    let (inside, outside) = (compiled(inner), compiled(outer));
    let passes = |rules: &Option<SocketRules>, operation, address, bound| {
        let decide = |rules: &SocketRules| rules.decide(operation, address, bound, &|_| false).decision;
        rules.as_ref().is_none_or(|rules| decide(rules) != Decision::Deny)
    };
    let addresses = [
        SocketAddress::Path(b"/run/x"),
        SocketAddress::Path(b"/run/y/z"),
        SocketAddress::Path(b"/tmp/a"),
        SocketAddress::Path(b"/tmp/b"),
        SocketAddress::Abstract(b"x"),
    ];
    let sockets = addresses.into_iter().all(|address| {
        SocketOperation::ALL.into_iter().all(|operation| {
            [Bound::Here, Bound::Elsewhere].into_iter().all(|bound| {
                !passes(&inside, operation, address, bound) || passes(&outside, operation, address, bound)
            })
        })
    });
    let reaches = |profile: &Resolved, host: &str, port: u16| match profile.network.value {
        Reach::Deny => false,
        Reach::Inherit => true,
        Reach::Allowlist => {
            let rules = EgressRules::compile(&crate::egress::egress_plan(profile, &[], &mut Vec::new()));
            match host.parse() {
                Ok(address) => rules.address_port(address, port).is_allowed(),
                Err(_) => rules.name_port(host, port).is_allowed(),
            }
        }
    };
    let hosts = ["a.example", "x.b.example", "y.example", "z.example", "10.1.2.3", "10.2.2.3"];
    let network = hosts.into_iter().all(|host| {
        [80, 443].into_iter().all(|port| !reaches(inner, host, port) || reaches(outer, host, port))
    });
    sockets && network
}

prop_compose! {
    fn text()(
        top in (
            lines(&["fs = \"workspace-rw\"", "fs = \"workspace-readonly\"", "fs = \"inherit\""]),
            lines(&[
                "network = \"deny\"", "network = \"inherit\"", "egress.sets.s = [\"z.example\"]",
                "network = \"allowlist\"\negress.allow = [\"a.example\", \"*.b.example:443\", \"set:s\"]\negress.sets.s = [\"y.example\"]",
                "network = \"allowlist\"\negress.allow = [\"a.example:443\", \"x.b.example:443\"]",
                "network = \"allowlist\"\negress.allow = [\"10.0.0.0/8\"]", "egress.allow = [\"10.1.0.0/16:443\", \"set:s\"]",
            ]),
            lines(&["readable = []", "readable = [\"/a\"]", "readable = [\"/a/b?\", \"/c\"]", "readable = [\"/ab\"]"]),
            lines(&["writable = []", "writable = [\"/w\"]", "writable = [\"/w/x\"]"]),
            lines(&["deny = []", "deny = [\"x\"]", "deny = [\"**/y\"]"]),
            lines(&["deny-write = []", "deny-write = [\"z/**\"]"]),
            lines(&["toolchains = true", "toolchains = false"]),
            lines(&["extends = \"default\"", "extends = \"build\"", "extends = \"readonly\"", "extends = \"p\""]),
        ),
        env in lines(&["allow = [\"PATH\"]", "allow = [\"PATH\", \"HOME\"]", "allow = [\"X\"]"]),
        shell in lines(&["allowed-programs = [\"/bin/bash\"]", "allowed-programs = [\"/bin/bash\", \"/bin/zsh\"]"]),
        memory in lines(&["memory = \"1M\"", "memory = \"1G\"", "memory = \"none\""]),
        wall in lines(&["wall = \"1s\"", "wall = \"9h\"", "wall = \"none\""]),
        watch in lines(&["unix-sockets-mode = \"off\"", "unix-sockets-mode = \"audit\"", "unix-sockets-mode = \"enforce\""]),
        rules in proptest::collection::vec(0..RULES.len(), 0..3),
        seccomp in lines(&["seccomp = \"off\"", "seccomp = \"prefer\"", "seccomp = \"must\""]),
        filesystem in lines(&["filesystem = \"off\"", "filesystem = \"prefer\"", "filesystem = \"must\""]),
    ) -> String {
        let (a, b, c, d, e, f, g, h) = top;
        let top = [a, b, c, d, e, f, g, h, watch].into_iter().flatten().collect::<Vec<_>>().join("\n");
        let tables = [("env", vec![env]), ("shell", vec![shell]), ("limits", vec![memory, wall]), ("layers", vec![seccomp, filesystem])];
        let text = tables.into_iter().fold(top, |text, (name, keys)| {
            let keys = keys.into_iter().flatten().collect::<Vec<_>>().join("\n");
            format!("{text}\n[{name}]\n{keys}")
        });
        rules.into_iter().enumerate().fold(text, |text, (at, rule)| {
            format!("{text}\n[[unix_sockets]]\nname = \"r{at}-{rule}\"\n{}", RULES[rule])
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_workspace_never_widens(base in text(), overlay in text()) {
        let trusted = Texts::default().with(Place::User, "p", base.clone());
        let Ok(trusted) = resolve("p", &trusted) else { return Ok(()) };
        if let Ok(narrowed) = over(&base, &overlay) {
            prop_assert!(is_within(&narrowed, &trusted), "base:\n{base}\noverlay:\n{overlay}");
        }
    }
}
