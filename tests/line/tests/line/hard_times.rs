//! A full disk, no `/proc`, a workspace that goes away: each a sentence, a code, nothing left behind.

use stockade_line_tests::{Line, Ran, World, am_root, have, settle, skip, unique_sleep};

/// A script that prepares a mount namespace of its own, then `exec "$@"`.
fn prepared<'w>(line: Line<'w>, script: &str) -> Option<Line<'w>> {
    if !am_root() {
        skip("mounting needs root");
        return None;
    }
    if !have(&["unshare", "mount"]) {
        return None;
    }
    Some(line.before(&["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh"]))
}

#[track_caller]
fn a_sentence(ran: &Ran) {
    let said = ran.err();
    assert!(said.contains("SK-") || said.contains("[stage "), "neither code nor stage: {ran}");
    assert!(!said.contains("panicked"), "{ran}");
    assert!([121, 122, 125, 126].contains(&ran.code()), "{ran}");
}

#[test]
fn a_full_disk_as_the_workspace() {
    let world = World::new();
    let script = "mount -t tmpfs -o size=64k,nr_inodes=8 none . && cd . && cd \"$PWD\" && \
                  { head -c 200000 /dev/zero > fill 2>/dev/null; touch a b c d e f g h i j 2>/dev/null; true; } && exec \"$@\"";
    let inside = "echo started; echo text > new || echo refused; echo more >> fill || echo full";
    let Some(line) = prepared(world.sh(inside), script) else { return };
    let ran = line.go();
    // No room for a placeholder: a sentence; or it runs and the command sees the full disk.
    if ran.code() == 0 {
        assert!(ran.out().contains("started") && ran.out().contains("full"), "{ran}");
    } else {
        a_sentence(&ran);
    }
}

#[test]
fn a_full_disk_under_the_output_file() {
    let world = World::new();
    let target = world.base().join("small");
    std::fs::create_dir(&target).expect("a fresh directory");
    let script = "mount -t tmpfs -o size=64k none ../small && exec \"$@\"";
    // Less than the pipes hold: the command itself notices nothing.
    let line = world.line(&["head", "-c", "200000", "/dev/zero"]).option("--stdout", target.join("out"));
    let Some(line) = prepared(line, script) else { return };
    let ran = line.go();
    assert_ne!(ran.code(), 0, "output that is lost must not look like success: {ran}");
    assert!(!ran.err().is_empty(), "nobody says why: {ran}");
}

#[test]
fn a_full_disk_under_the_result() {
    let world = World::new();
    let target = world.base().join("small");
    std::fs::create_dir(&target).expect("a fresh directory");
    let script = "mount -t tmpfs -o size=4k none ../small && head -c 9000 /dev/zero > ../small/fill 2>/dev/null; exec \"$@\"";
    let line = world.sh("echo out").no_json().option("--json", target.join("result"));
    let Some(line) = prepared(line, script) else { return };
    let ran = line.go();
    assert!([122, 125].contains(&ran.code()), "{ran}");
    a_sentence(&ran);
}

#[test]
fn no_proc() {
    let world = World::new();
    let Some(line) = prepared(world.line(&["touch", "ran"]), "mount -t tmpfs none /proc && exec \"$@\"")
    else {
        return;
    };
    let ran = line.go();
    a_sentence(&ran);
    assert!(ran.err().contains("/proc"), "the sentence does not name /proc: {ran}");
    assert!(!world.work().join("ran").exists(), "{ran}");
    assert!(std::fs::read_dir(world.work()).expect("the workspace").next().is_none(), "{ran}");
}

#[test]
fn no_cgroups() {
    let world = World::new();
    let Some(line) =
        prepared(world.line(&["touch", "ran"]), "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"")
    else {
        return;
    };
    let ran = line.go();
    a_sentence(&ran);
    assert!(ran.err().contains("limits") || ran.err().contains("cgroup"), "{ran}");
    assert!(!world.work().join("ran").exists(), "{ran}");
}

#[test]
fn a_read_only_root() {
    let world = World::new();
    let work = world.work().display().to_string();
    let script =
        format!("mount --bind {work} {work} && mount -o remount,ro,bind {work} && cd {work} && exec \"$@\"");
    let Some(line) = prepared(world.sh("cat file; touch new || echo read-only"), &script) else { return };
    world.plant("work/file", "text\n");
    let ran = line.go();
    if ran.code() == 0 {
        assert_eq!(ran.out(), "text\nread-only\n", "{ran}");
    } else {
        a_sentence(&ran);
    }
}

#[test]
fn a_workspace_that_is_removed_while_it_runs() {
    let (world, sleep) = (World::new(), unique_sleep());
    let mut running = world
        .sh("echo ready; read line; ls; touch new; echo $?; exit 4")
        .flag("--stdin")
        .input_open()
        .start();
    running.wait_out("ready\n");
    std::fs::remove_dir_all(world.work())
        .or_else(|_| std::fs::rename(world.work(), world.base().join("away")))
        .expect("gone");
    running.close_stdin();
    let ran = running.finish().ends_with(4);
    assert!(!ran.err().contains("panicked"), "{ran}");
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
    assert!(settle(&sleep).is_empty());
}

#[test]
fn a_workspace_that_was_replaced_while_it_runs() {
    let world = World::new();
    let mut running = world.sh("echo ready; read line; touch made").flag("--stdin").input_open().start();
    running.wait_out("ready\n");
    std::fs::rename(world.work(), world.base().join("away")).expect("renamed");
    std::fs::create_dir(world.work()).expect("another one");
    running.close_stdin();
    let ran = running.finish().ends_with(0);
    assert!(world.base().join("away/made").exists(), "{ran}");
    assert!(std::fs::read_dir(world.work()).expect("it").next().is_none(), "{ran}");
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
}

#[test]
fn a_mount_inside_the_workspace() {
    let world = World::new();
    let script = "mkdir sub && mount -t tmpfs none sub && echo mounted > sub/file && exec \"$@\"";
    let Some(line) = prepared(world.sh("cat sub/file; echo x > sub/new && echo wrote"), script) else {
        return;
    };
    let ran = line.go();
    if am_root() && ran.code() == 125 {
        // tmpfs maps owners from Linux 6.3 on.
        ran.refused(stockade_proto::Code::LayerUnavailable);
        return skip("this kernel can't map the owners of a tmpfs");
    }
    assert_eq!(ran.out(), "mounted\nwrote\n", "{ran}");
}

#[test]
fn more_matches_of_a_deny_list_than_can_be_checked() {
    let world = World::new();
    for at in 0..5000 {
        let directory = world.work().join(at.to_string());
        std::fs::create_dir(&directory).expect("a fresh directory");
        std::fs::write(directory.join(".env"), "").expect("a fresh file");
    }
    let ran = world.line(&["touch", "ran"]).go();
    ran.refused(stockade_proto::Code::WorkspaceTooLarge);
    assert!(!world.work().join("ran").exists());
}

#[test]
fn homes_that_are_none() {
    let mut world = World::new();
    for home in ["", "/no/such/home", "relative", "/", "/dev/null"] {
        world.set("HOME", home);
        let ran = world.sh("echo $HOME; cd; touch ~/file && echo wrote").go();
        if ran.code() == 0 {
            assert!(ran.out().starts_with('/'), "{home:?}: {ran}");
        } else {
            a_sentence(&ran);
        }
    }
}

#[test]
fn few_descriptors_for_stockade_itself() {
    let world = World::new();
    for count in ["24", "12", "6"] {
        let ran = world
            .line(&["true"])
            .before(&["/bin/sh", "-c", "n=$1; shift; ulimit -n $n && exec \"$@\"", "sh", count])
            .go();
        if ran.code() != 0 {
            a_sentence(&ran);
        }
    }
}

#[test]
fn many_at_once() {
    let world = World::new();
    let all: Vec<_> = (0..16).map(|at| world.sh(&format!("echo {at}; exit {at}")).start()).collect();
    for (at, running) in all.into_iter().enumerate() {
        let ran = running.finish();
        assert_eq!(usize::try_from(ran.code()).ok(), Some(at), "{ran}");
        assert_eq!(ran.out(), format!("{at}\n"));
        assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
    }
    assert!(
        std::fs::read_dir(world.work()).expect("the workspace").next().is_none(),
        "a placeholder was left"
    );
}
