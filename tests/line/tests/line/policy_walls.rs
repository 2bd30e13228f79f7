//! Socket rules and the allowlist through `stockade policy`: mistakes, narrowing, and what a profile decides.
//! Nothing is executed here. SOCK-1, SOCK-4, SOCK-5, BOX-4, RUN-10.

use std::os::unix::net::UnixListener;

use stockade_line_tests::World;

fn rule(name: &str, path: &str, rest: &str) -> String {
    format!("[[unix_sockets]]\nname = \"{name}\"\npaths = [\"{path}\"]\n{rest}\n")
}

#[test]
fn the_default_profile_decides_about_sockets() {
    let world = World::new();
    let work = world.work().display().to_string();
    for (code, arguments) in [
        (1, vec!["connect", "/run/docker.sock"]),
        (1, vec!["send", "/dev/log"]),
        (1, vec!["connect", "@/tmp/.X11-unix/X0"]),
        (0, vec!["connect", "@own-name", "--own"]),
        (0, vec!["bind", "@own-name"]),
        (0, vec!["bind", "/tmp/x.sock"]),
        (0, vec!["listen", "here.sock"]),
        (1, vec!["bind", work.as_str()]),
        (1, vec!["bind", "/run/x.sock"]),
    ] {
        let all = [vec!["policy", "test", "unix"], arguments.clone()].concat();
        let ran = world.cli(&all).go().ends_with(code);
        assert_eq!(ran.out().starts_with("allowed"), code == 0, "{arguments:?}: {ran}");
        assert_eq!(ran.out().contains("[[unix_sockets]]"), code == 1, "guidance with a denial only: {ran}");
    }
    world.cli(&["policy", "test", "unix", "open", "/x"]).go().ends_with(125);
    world.cli(&["policy", "test", "unix", "connect", "/x", "--profile", "nobody"]).go().ends_with(125);
    let ran = world.cli(&["policy", "test", "unix", "connect", "/x", "--profile", "host"]).go().ends_with(0);
    assert!(ran.out().contains("does not watch"), "{ran}");
}

#[test]
fn the_rule_that_decides_is_named_with_its_line() {
    let world = World::new();
    let real = world.base().join("real");
    std::fs::create_dir(&real).expect("directory");
    let _listener = UnixListener::bind(real.join("db.sock")).expect("bound");
    std::os::unix::fs::symlink(&real, world.base().join("link")).expect("link");
    let linked = world.base().join("link/db.sock").display().to_string();
    let shut =
        rule("shut", &format!("{}/no.sock", real.display()), "decision = \"deny\"\nmessage = \"ask Ada\"");
    let file = world
        .profile("mine", &(rule("db", &linked, "operations = [\"connect\"]\ndecision = \"allow\"") + &shut));
    // By the name that was written, and by the one that it leads to.
    for path in [linked, real.join("db.sock").display().to_string()] {
        let ran =
            world.cli(&["policy", "test", "unix", "connect", &path, "--profile", "mine"]).go().ends_with(0);
        assert!(
            ran.out().contains("`db`") && ran.out().contains(&format!("{}:2:8", file.display())),
            "{ran}"
        );
    }
    // A hard link to what is denied is denied by the same rule.
    let _denied = UnixListener::bind(real.join("no.sock")).expect("bound");
    let alias = world.work().join("alias.sock");
    std::fs::hard_link(real.join("no.sock"), &alias).expect("a hard link");
    let alias = alias.display().to_string();
    let ran = world
        .cli(&["policy", "test", "unix", "connect", &alias, "--own", "--profile", "mine", "--json"])
        .go();
    let ran = ran.ends_with(1);
    let answer: serde_json::Value = serde_json::from_str(&ran.out()).expect("JSON");
    assert_eq!(answer["rule"], "shut", "{ran}");
    assert_eq!(answer["decision"], "deny");
    assert_eq!(answer["message"], "ask Ada");
    assert_eq!(answer["origin"]["line"], 7, "{ran}");
    assert!(answer["guidance"].as_str().is_some_and(|lines| lines.contains("alias.sock")), "{ran}");
}

#[test]
fn guidance_can_be_pasted() {
    let world = World::new();
    let ask = ["policy", "test", "unix", "connect", "/run/a b[1].sock", "--profile", "mine", "--json"];
    world.profile("mine", "extends = \"default\"\n");
    let answer: serde_json::Value =
        serde_json::from_str(&world.cli(&ask).go().ends_with(1).out()).expect("JSON");
    world.profile("mine", answer["guidance"].as_str().expect("guidance"));
    world.cli(&ask).go().ends_with(0);
    let ask = ["policy", "test", "net", "api.example.org:8443", "--profile", "net", "--json"];
    world.profile("net", "extends = \"default\"\n");
    let answer: serde_json::Value =
        serde_json::from_str(&world.cli(&ask).go().ends_with(1).out()).expect("JSON");
    world.profile("net", answer["guidance"].as_str().expect("guidance"));
    world.cli(&ask).go().ends_with(0);
    world.cli(&["policy", "test", "net", "api.example.org:443", "--profile", "net"]).go().ends_with(1);
}

#[test]
fn audit_allows_and_off_does_not_look() {
    let world = World::new();
    world.profile("audit", "unix-sockets-mode = \"audit\"\n");
    world.profile("off", "unix-sockets-mode = \"off\"\n");
    let ran =
        world.cli(&["policy", "test", "unix", "connect", "/run/x", "--profile", "audit"]).go().ends_with(0);
    assert!(ran.out().contains("recorded"), "{ran}");
    let ran =
        world.cli(&["policy", "test", "unix", "connect", "/run/x", "--profile", "off"]).go().ends_with(0);
    assert!(ran.out().contains("does not watch"), "{ran}");
}

#[test]
fn hosts_are_decided_by_the_allowlist() {
    let world = World::new();
    let file = world.profile(
        "net",
        "network = \"allowlist\"\n[egress]\nallow = [\"a.example\", \"*.b.example:8443\", \"10.1.0.0/16:5432\", \"[2001:db8::1]:443\", \"set:mine\"]\n[egress.sets]\nmine = [\"c.example:1\"]\n",
    );
    for (code, target) in [
        (0, "a.example"),
        (0, "A.example:80"),
        (1, "a.example:22"),
        (1, "x.a.example"),
        (0, "x.y.b.example:8443"),
        (1, "b.example:8443"),
        (0, "10.1.2.3:5432"),
        (1, "10.2.2.3:5432"),
        (0, "[2001:db8::1]:443"),
        (0, "c.example:1"),
        (1, "d.example"),
    ] {
        let ran = world.cli(&["policy", "test", "net", target, "--profile", "net"]).go().ends_with(code);
        assert_eq!(ran.out().starts_with("allowed"), code == 0, "{target}: {ran}");
        assert!(code == 1 || ran.out().contains(&file.display().to_string()), "{ran}");
    }
    world.cli(&["policy", "test", "net", "https://a.example", "--profile", "net"]).go().ends_with(125);
    world.cli(&["policy", "test", "net", "a.example"]).go().ends_with(1);
    world.cli(&["policy", "test", "net", "a.example", "--profile", "host"]).go().ends_with(0);
}

#[test]
fn registries_come_from_the_callers_settings_and_never_from_the_workspace() {
    let world = World::new();
    world.profile("net", "network = \"allowlist\"\n[egress]\nallow = [\"set:registries\"]\n");
    world.plant("home/.npmrc", "registry=https://npm.example/\n");
    world.plant("work/.npmrc", "registry=https://evil.example/\n");
    world.plant("home/.config/pip/pip.conf", "[global]\nindex-url = https://pip.example:8443/simple\n");
    world.plant("config/pip/pip.conf", "[global]\nindex-url = https://pip.example:8443/simple\n");
    for (code, target) in
        [(0, "npm.example"), (0, "pip.example:8443"), (1, "evil.example"), (1, "npm.example:80")]
    {
        world.cli(&["policy", "test", "net", target, "--profile", "net"]).go().ends_with(code);
    }
}

#[test]
fn mistakes_are_drawn() {
    let world = World::new();
    for (body, place, words) in [
        (rule("a", "run/x", "decision = \"allow\""), "3:10", "not an absolute path"),
        (rule("a", "/a", "decision = \"alow\""), "4:12", "did you mean"),
        (
            "network = \"allowlist\"\n[egress]\nallow = [\"https://x.example/\"]\n".to_owned(),
            "3:10",
            "x.example",
        ),
        ("network = \"allowlist\"\n".to_owned(), "1:11", "egress.allow"),
        ("[layers]\nseccomp = \"off\"\n".to_owned(), "2:11", "layers.sockets"),
    ] {
        let file = world.profile("wrong", &body);
        let ran = world.cli(&["policy", "check", "wrong"]).go().ends_with(125);
        assert!(ran.out().contains(&format!("{}:{place}", file.display())), "{ran}");
        assert!(ran.out().contains(words) && ran.out().contains("^"), "{ran}");
    }
    world.profile("odd", "network = \"allowlist\"\n[egress]\nallow = [\"*.example\"]\n");
    let ran = world.cli(&["policy", "check", "odd"]).go().ends_with(0);
    assert!(ran.out().contains("mind:") && ran.out().contains("top-level"), "{ran}");
}

#[test]
fn a_workspace_may_only_deny() {
    let world = World::new();
    world.workspace_profile("default", &rule("more", "/run/x", "decision = \"allow\""));
    let ran = world.cli(&["policy", "show"]).go().ends_with(125);
    assert!(ran.err().contains("SK-R022") && ran.err().contains(".stockade/default.toml:4:12"), "{ran}");
    world.workspace_profile("default", &rule("less", "/tmp/**", "decision = \"deny\""));
    world.cli(&["policy", "test", "unix", "bind", "/tmp/x"]).go().ends_with(1);
    world.workspace_profile("default", "network = \"allowlist\"\n[egress]\nallow = [\"a.example\"]\n");
    world.cli(&["policy", "show"]).go().ends_with(125);
}

#[test]
fn shown_and_explained() {
    let world = World::new();
    world.profile(
        "net",
        &("network = \"allowlist\"\n[egress]\nallow = [\"a.example\"]\n".to_owned()
            + &rule("db", "/run/db.sock", "operations = [\"connect\"]\ndecision = \"audit\"")),
    );
    let ran = world.cli(&["policy", "show", "net"]).go().ends_with(0);
    for line in [
        "[egress]",
        "allow = [\"a.example\"]",
        "[[unix_sockets]]",
        "name = \"db\"",
        "unix-sockets-mode = \"enforce\"",
    ] {
        assert!(ran.out().contains(line), "{line}: {ran}");
    }
    let ran = world.cli(&["policy", "explain", "net"]).go().ends_with(0);
    assert!(
        ran.out().contains("It may reach a.example.") && ran.out().contains("Rule db: audit connect"),
        "{ran}"
    );
    let ran = world.line(&["true"]).profile("net").flag("--explain").go().ends_with(0);
    for words in
        ["a.example on 80, 443", "audit      connect /run/db.sock", "nothing listens at `/run/db.sock` now"]
    {
        assert!(ran.out().contains(words), "{words}: {ran}");
    }
}
