//! RUN-9, BOX-1, BOX-3, BOX-6: nobody outside can be seen, signalled or reached; the attacks themselves are in the
//! escape suite.

use std::process::{Command, Stdio};

use stockade_line_tests::{World, have, unique_sleep};

#[test]
fn only_its_own_processes_are_there() {
    let world = World::new();
    let ran = world.sh("ls -d /proc/[0-9]* | wc -l; cat /proc/1/comm; kill -0 $PPID && echo parent").go();
    let lines: Vec<String> = ran.out().lines().map(str::to_owned).collect();
    assert!(lines[0].trim().parse::<u32>().is_ok_and(|count| count <= 5), "{ran}");
    assert!(lines[1].starts_with("stockade-init"), "{ran}");
}

#[test]
fn nobody_outside_can_be_signalled() {
    let sleep = unique_sleep();
    let mut victim = Command::new("sleep").arg(&sleep).stdin(Stdio::null()).spawn().expect("sleep");
    let world = World::new();
    let script = format!("kill -9 {}; kill -9 -1; kill -9 0; echo unreachable", victim.id());
    let ran = world.sh(&script).go();
    assert!(!ran.out().contains("unreachable"), "kill 0 takes the shell along: {ran}");
    assert!(victim.try_wait().expect("our own child").is_none(), "the victim died: {ran}");
    drop(victim.kill());
    drop(victim.wait());
}

#[test]
fn init_can_t_be_killed_by_the_command() {
    let world = World::new();
    let ran =
        world.sh("for s in 1 2 3 9 11 15 19; do kill -$s 1 2>/dev/null; done; echo still here; exit 6").go();
    assert_eq!(ran.out(), "still here\n", "{ran}");
    assert_eq!(ran.code(), 6, "{ran}");
}

#[test]
fn no_descriptor_of_the_callers() {
    let world = World::new();
    world.plant("secret", "secret");
    let ran = world
        .sh("ls /proc/self/fd | tr '\\n' ' '; cat <&7; cat <&9")
        .before(&["/bin/sh", "-c", "exec 7<../secret 9<../secret; exec \"$@\"", "sh"])
        .go();
    assert_eq!(ran.out(), "0 1 2 3 ", "{ran}");
}

#[test]
fn the_command_line_and_environment_of_stockade_are_not_there() {
    let world = World::new();
    let ran = world
        .sh("cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
        .option("--env", "PLAIN=visible")
        .caller_env("CALLERS_SECRET", "walrus-in-the-environment")
        .go();
    assert!(ran.out().contains("PLAIN=visible"), "{ran}");
    assert!(!ran.out().contains("walrus-in-the-environment"), "{ran}");
    assert!(!ran.out().contains("--workspace"), "{ran}");
}

#[test]
fn loopback_only() {
    let world = World::new();
    let ran = world.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1").go().ends_with(0);
    assert_eq!(ran.out().trim(), "lo", "{ran}");
    if have(&["python3"]) {
        let world = World::with_own_toolchains();
        let script = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); \
                      c = socket.create_connection(s.getsockname()); s.accept()[0].send(b'x'); print(c.recv(1))";
        let ran = world.line(&["python3", "-c", script]).go().ends_with(0);
        assert_eq!(ran.out(), "b'x'\n", "{ran}");
    }
}

#[test]
fn the_rest_of_the_host_is_absent() {
    let world = World::new();
    world.plant("beside", "secret");
    world.plant("home/.ssh/id_ed25519", "secret");
    let base = world.base().display().to_string();
    let ran = world.sh(&format!("cat {base}/beside ../beside ~/.ssh/id_ed25519; ls {base}")).go();
    assert_eq!(ran.stdout.windows(6).filter(|window| *window == b"secret").count(), 0, "{ran}");
    // The path to the workspace is there, its neighbours (but the home) are not.
    assert!(!ran.out().contains("beside") && !ran.out().contains("config"), "{ran}");
}

#[test]
fn the_system_is_read_only_and_the_workspace_is_not() {
    let world = World::new();
    let script = "touch /etc/x /usr/x /bin/x /x; mkdir /y; touch here; echo '#!/bin/sh' > run; echo 'echo ran' >> run; \
                  chmod +x run; ./run; mkfifo pipe; ln -s here link; ln here hard; mv hard harder; LC_ALL=C ls | tr '\\n' ' '";
    let ran = world.sh(script).go().ends_with(0);
    assert_eq!(ran.out(), "ran\nharder here link pipe run ", "{ran}");
    for path in ["/etc/x", "/usr/x", "/bin/x", "/x", "/y"] {
        assert!(!std::path::Path::new(path).exists(), "{path}");
    }
    assert!(world.work().join("here").exists());
}

#[test]
fn files_made_inside_belong_to_the_caller() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    let ran = world
        .sh("umask 022; echo x > made; mkdir dir; stat -c %u:%g:%a made; id -u; id -g")
        .go()
        .ends_with(0);
    let made = std::fs::metadata(world.work().join("made")).expect("the file");
    let owner = std::fs::metadata(world.work()).expect("the workspace");
    assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()), "{ran}");
    assert_eq!(
        ran.out(),
        format!("{0}:{1}:644\n{0}\n{1}\n", owner.uid(), owner.gid()),
        "inside as outside: {ran}"
    );
}

#[test]
fn a_working_directory_inside_the_workspace() {
    let world = World::new();
    world.plant("work/deep/er/file", "");
    let deep = world.work().join("deep/er");
    let ran = world.sh("pwd; ls").option("--cwd", &deep).go().ends_with(0);
    assert_eq!(ran.out(), format!("{}\nfile\n", deep.display()), "{ran}");
    // Without --cwd it is the workspace, wherever the caller is.
    let ran = world.line(&["pwd"]).from_directory("/").go().ends_with(0);
    assert_eq!(ran.out(), format!("{}\n", world.work().display()));
    for outside in ["/etc/../..", "/no/such", "../home"] {
        let ran = world.line(&["pwd"]).option("--cwd", outside).go();
        let refusal = ran.refused(stockade_proto::Code::CwdOutside);
        assert!(!refusal.message.is_empty());
    }
}

#[test]
fn a_working_directory_behind_a_link() {
    let world = World::new();
    std::fs::create_dir(world.work().join("real")).expect("a fresh directory");
    for (name, to) in [("inside", "real"), ("outside", "../home"), ("root", "/root"), ("nowhere", "none")] {
        std::os::unix::fs::symlink(to, world.work().join(name)).expect("a link");
    }
    let ran = world.line(&["pwd"]).option("--cwd", "inside").go().ends_with(0);
    assert_eq!(ran.out(), format!("{}\n", world.work().join("real").display()));
    for name in ["root", "nowhere"] {
        world.line(&["pwd"]).option("--cwd", name).go().refused(stockade_proto::Code::CwdOutside);
    }
}

#[test]
fn dev_is_minimal_and_works() {
    let world = World::new();
    let script = "echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo x > /dev/full; \
                  echo x > /dev/shm/x && cat /dev/shm/x; test -c /dev/tty && test -d /dev/pts && echo tty; ls /dev | sort | tr '\\n' ' '";
    let ran = world.sh(script).go().ends_with(0);
    assert!(ran.out().starts_with("4\n4\nx\ntty\n"), "{ran}");
    // dash says I/O error, bash no space left.
    assert!(ran.err().contains("error") || ran.err().contains("space"), "{ran}");
    for name in ["sda", "vda", "mem", "kmsg", "kvm", "fuse", "loop0"] {
        assert!(!ran.out().split_whitespace().any(|word| word == name), "{name}: {ran}");
    }
}

/// A command that turns a directory on PATH into a link would choose what the next one is shown.
#[test]
fn a_directory_on_path_that_became_a_link_shows_nothing() {
    let mut world = World::new();
    let settings = world.plant("home/.config/gh/hosts.yml", "oauth: walrus-token");
    let (home, work) = (world.home(), world.work());
    // Neither a workspace's own, nor another workspace's, nor one in a directory that the profile lets commands write.
    let other = world.base().join("other");
    let shared = world.base().join("shared");
    for place in [&work, &other, &shared] {
        std::fs::create_dir_all(place.join("venv/bin")).expect("a directory");
    }
    world.profile("shares", &format!("extends = \"default\"\nwritable = [{shared:?}]\n"));
    let read = format!("cat {}", settings.display());
    for place in [&work, &other, &shared] {
        let bin = place.join("venv/bin");
        world.set("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let plant = format!(
            "rmdir {bin}; ln -s {to} {bin}",
            bin = bin.display(),
            to = home.join(".config").display()
        );
        let workspace = if *place == shared { &work } else { place };
        world.sh(&plant).profile("shares").workspace(workspace).go().ends_with(0);
        assert!(bin.is_symlink(), "the attack was not made");
        let ran = world.sh(&read).profile("shares").go();
        assert!(!ran.out().contains("walrus"), "{place:?}: {ran}");
        assert!(ran.err().contains("could be a command's"), "{place:?}: {ran}");
    }
    // A person's own link is meant.
    std::os::unix::fs::symlink(home.join(".config"), home.join("bin")).expect("a link");
    world.set("PATH", format!("{}:/usr/bin:/bin", home.join("bin").display()));
    let ran = world.sh(&read).go();
    assert!(ran.out().contains("walrus"), "{ran}");
}

#[test]
fn a_path_of_the_profile_that_became_a_link_is_refused() {
    let world = World::new();
    let settings = world.plant("home/.config/gh/hosts.yml", "oauth: walrus-token");
    let shared = world.base().join("shared");
    std::fs::create_dir_all(shared.join("data")).expect("a directory");
    let profile =
        format!("extends = \"default\"\nwritable = [{shared:?}]\nreadable = [{:?}]\n", shared.join("data"));
    world.profile("shares", &profile);
    let plant =
        format!("cd {}; rmdir data; ln -s {} data", shared.display(), world.home().join(".config").display());
    let first = world.sh(&plant).profile("shares").go();
    if !shared.join("data").is_symlink() {
        // What is shown is a mount, and a mount can't be removed from inside.
        std::fs::remove_dir(shared.join("data")).expect("empty");
        std::os::unix::fs::symlink(world.home().join(".config"), shared.join("data")).expect("a link");
    }
    let ran = world.sh(&format!("cat {}", settings.display())).profile("shares").go();
    assert!(!ran.out().contains("walrus"), "{first} {ran}");
    assert!(ran.err().contains("a command could have made"), "{ran}");
}
