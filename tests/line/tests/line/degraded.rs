//! BOX-7: where user namespaces are forbidden, `must` refuses and `prefer` runs with Landlock and seccomp held.
//! The host is simulated: a user namespace in which `user.max_user_namespaces` is zero.

use stockade_line_tests::{Line, World, have, skip};
use stockade_proto::{Code, Layer, State};

const SOFT: &str = "extends = \"default\"\n[layers]\nfilesystem = \"prefer\"\nprocess = \"prefer\"\n\
                    network = \"prefer\"\nlimits = \"prefer\"\n";

/// As an ordinary user who may not make user namespaces. Capabilities are dropped before `stockade` starts.
const FORBIDDEN: &str = "echo 0 > /proc/sys/user/max_user_namespaces || exit 98; \
                         exec setpriv --ambient-caps=-all --inh-caps=-all \"$@\"";

/// As the same user on a host whose namespaces of one kind are all in use: network namespaces are found to be by init, when
/// it runs, and PID namespaces by whoever starts it.
fn used_up(kind: &str) -> String {
    format!(
        "echo 0 > /proc/sys/user/max_{kind}_namespaces || exit 98; exec setpriv --ambient-caps=-all --inh-caps=-all \"$@\""
    )
}

const BEFORE: [&str; 8] =
    ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "/bin/sh", "-c", FORBIDDEN];

fn can_simulate() -> bool {
    if !have(&["unshare", "setpriv"]) {
        return false;
    }
    let mut probe = std::process::Command::new(BEFORE[0]);
    probe.args(&BEFORE[1..]).args(["sh", "true"]).stderr(std::process::Stdio::null());
    let works = probe.status().is_ok_and(|status| status.success());
    if !works {
        skip("this host does not let us make a user namespace that forbids user namespaces");
    }
    works
}

/// A world whose runtime directory is its own: uid 1000 in there is not the one of this host.
fn world() -> World {
    let mut world = World::new();
    let runtime = world.base().join("run");
    std::fs::create_dir(&runtime).expect("a fresh directory");
    world.set("XDG_RUNTIME_DIR", runtime);
    world.unset("DBUS_SESSION_BUS_ADDRESS");
    world
}

fn forbidden(line: Line<'_>) -> Line<'_> {
    let mut words = BEFORE.to_vec();
    words.push("sh");
    line.before(&words)
}

#[test]
fn must_is_a_refusal_that_names_the_layer_and_the_remedy() {
    if !can_simulate() {
        return;
    }
    let world = world();
    let ran = forbidden(world.line(&["touch", "ran"])).go();
    let refusal = ran.refused(Code::LayerUnavailable);
    assert!(refusal.message.contains("`filesystem`"), "{ran}");
    assert!(refusal.remedy.contains("sysctl -w user.max_user_namespaces"), "{ran}");
    assert!(!world.work().join("ran").exists());
}

#[test]
fn a_limit_on_namespaces_is_a_refusal_with_a_remedy() {
    if !can_simulate() {
        return;
    }
    let world = world();
    world.profile("unlimited", "extends = \"default\"\n[layers]\nlimits = \"off\"\n");
    for kind in ["net", "pid"] {
        let (mut words, script) = (BEFORE.to_vec(), used_up(kind));
        words[BEFORE.len() - 1] = &script;
        words.push("sh");
        let ran = world.line(&["touch", "ran"]).before(&words).profile("unlimited").go();
        let refusal = ran.refused(Code::LayerUnavailable);
        assert!(refusal.message.contains("limit on namespaces"), "{kind}: {ran}");
        assert!(!world.work().join("ran").exists(), "{kind}");
    }
}

#[test]
fn prefer_runs_with_landlock_and_seccomp_and_says_what_is_missing() {
    if !can_simulate() {
        return;
    }
    let world = world();
    world.profile("soft", SOFT);
    world.plant("beside", "secret");
    let script = "grep -E '^(NoNewPrivs|Seccomp|CapEff)' /proc/self/status | tr -d '\\t'; touch made && echo made; \
                  cat ../beside; echo x > ../new; unshare -U true; exit 5";
    let ran = forbidden(world.sh(script)).profile("soft").go().ends_with(5);
    for line in ["NoNewPrivs:1", "Seccomp:2", "CapEff:0000000000000000", "made"] {
        assert!(ran.out().lines().any(|said| said == line), "{line}: {ran}");
    }
    assert!(!ran.out().contains("secret") && !world.base().join("new").exists(), "Landlock: {ran}");
    let result = ran.result();
    for one in &result.enforcement {
        match one.layer {
            Layer::Landlock | Layer::Seccomp | Layer::Sockets => {
                assert_eq!(one.state, State::Enforced, "{one:?}")
            }
            Layer::Filesystem | Layer::Process | Layer::Network => {
                assert_eq!(one.state, State::Missing, "{one:?}");
                assert!(one.detail.contains("user namespaces"), "{one:?}");
                let said = format!("the layer `{}` is missing", one.layer);
                assert!(ran.err().contains(&said), "{said}: {ran}");
            }
            Layer::Limits => {}
        }
    }
}

#[test]
fn without_a_pid_namespace_nothing_is_left_either() {
    if !can_simulate() {
        return;
    }
    let world = world();
    world.profile("soft", &SOFT.replace("[layers]", "[limits]\ngrace = \"200ms\"\n[layers]"));
    let sleep = stockade_line_tests::unique_sleep();
    let script = format!(
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep {sleep} & sleep {sleep}' & (sleep {sleep} &); sleep {sleep}"
    );
    let ran = forbidden(world.sh(&script))
        .profile("soft")
        .timeout(&stockade_line_tests::millis(500))
        .go()
        .ends_with(124);
    assert!(stockade_line_tests::settle(&sleep).is_empty(), "{ran}");
    assert!(ran.pipes_closed, "{ran}");
}

/// A copy of the programs where a sandboxed command can start them.
fn copy_programs(world: &World) {
    let bin = world.work().join("bin");
    std::fs::create_dir(&bin).expect("a fresh directory");
    for name in ["stockade", "stockade-init"] {
        // By another process: a copy of ours could still be open for writing in somebody's fork.
        let from = stockade_line_tests::programs().join(name);
        let copied = std::process::Command::new("cp").arg(from).arg(bin.join(name)).status();
        assert!(copied.expect("cp runs").success());
    }
    std::fs::create_dir(world.work().join("inner")).expect("a fresh directory");
}

#[test]
fn inside_a_sandbox_it_refuses_with_one_sentence() {
    let world = World::new();
    copy_programs(&world);
    let ran = world.sh("./bin/stockade run --workspace inner -- touch ran; echo $?").go().ends_with(0);
    assert_eq!(ran.out(), "125\n", "{ran}");
    // What is wrong is where it runs, not a profile or an option.
    let codes = [Code::InsideSandbox.id(), Code::LayerUnavailable.id()];
    assert!(codes.iter().any(|code| ran.err().contains(code)), "{ran}");
    assert!(!world.work().join("inner/ran").exists());
}
