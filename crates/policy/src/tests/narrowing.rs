//! A workspace's profile may only take away.

use proptest::prelude::*;
use stockade_proto::{Code, Layer};

use super::Texts;
use crate::narrow::is_below;
use crate::{Place, Resolved, resolve};

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
    ("[env]\nset = { LANG = \"x\" }", 2, 9, "LANG", "own value"),
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
        && Layer::ALL.iter().all(|layer| inner.layer(*layer).value >= outer.layer(*layer).value)
}

fn lines(choices: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    proptest::option::of(proptest::sample::select(choices))
}

prop_compose! {
    fn text()(
        top in (
            lines(&["fs = \"workspace-rw\"", "fs = \"workspace-readonly\"", "fs = \"inherit\""]),
            lines(&["network = \"deny\"", "network = \"inherit\""]),
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
        seccomp in lines(&["seccomp = \"off\"", "seccomp = \"prefer\"", "seccomp = \"must\""]),
        filesystem in lines(&["filesystem = \"off\"", "filesystem = \"prefer\"", "filesystem = \"must\""]),
    ) -> String {
        let (a, b, c, d, e, f, g, h) = top;
        let top = [a, b, c, d, e, f, g, h].into_iter().flatten().collect::<Vec<_>>().join("\n");
        let tables = [("env", vec![env]), ("shell", vec![shell]), ("limits", vec![memory, wall]), ("layers", vec![seccomp, filesystem])];
        tables.into_iter().fold(top, |text, (name, keys)| {
            let keys = keys.into_iter().flatten().collect::<Vec<_>>().join("\n");
            format!("{text}\n[{name}]\n{keys}")
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_workspace_never_widens(base in text(), overlay in text()) {
        let trusted = Texts::default().with(Place::User, "p", base.clone());
        let Ok(trusted) = resolve("p", &trusted) else { return Ok(()) };
        if let Ok(narrowed) = over(&base, &overlay) {
            prop_assert!(is_within(&narrowed, &trusted), "base:\n{base}\noverlay:\n{overlay}");
        }
    }
}
