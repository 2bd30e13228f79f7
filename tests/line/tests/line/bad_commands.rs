//! Commands that can't be run: each a sentence, a code, nothing left behind.

use stockade_line_tests::{Ran, World};
use stockade_proto::{Outcome, exit};

#[track_caller]
fn launch_failed(ran: &Ran, code: u8, says: &str) {
    assert_eq!(ran.code(), i32::from(code), "{ran}");
    let Outcome::LaunchFailed { stage, errno, message } = ran.result().outcome else { panic!("{ran}") };
    assert_eq!(stage, "exec", "{ran}");
    assert!(errno > 0, "{ran}");
    assert!(message.contains(says) && !message.contains('\n'), "{ran}");
    assert!(ran.err().contains(&message), "{ran}");
    assert!(ran.result().cleanup_faults.is_empty(), "{ran}");
}

#[test]
fn a_directory() {
    let world = World::new();
    std::fs::create_dir(world.work().join("directory")).expect("a fresh directory");
    for path in ["./directory", "/usr", "/", "."] {
        let ran = world.line(&[path]).go();
        launch_failed(&ran, exit::NOT_EXECUTABLE, "directory");
    }
}

#[test]
fn a_script_without_a_first_line() {
    let world = World::new();
    world.executable("work/script", "echo ran\n");
    let ran = world.line(&["./script"]).go();
    launch_failed(&ran, exit::NOT_EXECUTABLE, "#!/bin/sh");
    assert!(ran.stdout.is_empty(), "{ran}");
    // A shell runs it, as it always did.
    let ran = world.sh("./script").go().ends_with(0);
    assert_eq!(ran.out(), "ran\n");
}

#[test]
fn a_program_for_another_architecture() {
    let world = World::new();
    // The header of a 64-bit little-endian ELF program for aarch64 (machine 183), or for x86-64 (62) there.
    let machine: u16 = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    elf.extend(machine.to_le_bytes());
    elf.extend(1u32.to_le_bytes());
    elf.extend(0x0040_0078_u64.to_le_bytes());
    elf.extend(64u64.to_le_bytes());
    elf.extend([0; 12]);
    elf.extend([64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    elf.resize(64 + 56, 0);
    world.executable("work/foreign", elf);
    let ran = world.line(&["./foreign"]).go();
    launch_failed(&ran, exit::NOT_EXECUTABLE, "not a program for this machine");
}

#[test]
fn files_that_are_no_programs() {
    let world = World::new();
    world.executable("work/empty", "");
    world.executable("work/binary", vec![0u8, 1, 2, 3]);
    world.executable("work/short", "\x7fELF");
    for name in ["./empty", "./binary", "./short"] {
        let ran = world.line(&[name]).go();
        launch_failed(&ran, exit::NOT_EXECUTABLE, name);
    }
    for name in ["/dev/null", "/proc/self/status", "/etc/hostname"] {
        if std::path::Path::new(name).exists() {
            let ran = world.line(&[name]).go();
            launch_failed(&ran, exit::NOT_EXECUTABLE, name);
        }
    }
    std::os::unix::fs::symlink("loop", world.work().join("loop")).expect("a link");
    let ran = world.line(&["./loop"]).go();
    launch_failed(&ran, exit::NOT_EXECUTABLE, "./loop");
    let ran = world.line(&[format!("./{}", "x".repeat(300))]).go();
    assert!([126, 127].contains(&ran.code()), "{ran}");
}

#[test]
fn a_program_of_the_callers_that_is_not_in_the_sandbox() {
    let world = World::new();
    world.executable("outside/tool", "#!/bin/sh\necho no\n");
    let path = world.base().join("outside/tool");
    let ran = world.line(&[&path]).go();
    launch_failed(&ran, exit::NOT_FOUND, "no such file inside the sandbox");
}

#[test]
fn a_relative_name_is_looked_up_on_path_only() {
    let mut world = World::new();
    world.executable("work/tool", "#!/bin/sh\necho from the workspace\n");
    launch_failed(&world.line(&["tool"]).go(), exit::NOT_FOUND, "command not found");
    // `.` and relative entries of PATH are not passed on.
    world.set("PATH", ".:work:/usr/bin:/bin");
    launch_failed(&world.line(&["tool"]).go(), exit::NOT_FOUND, "command not found");
    world.set("PATH", "");
    world.line(&["ls"]).go().ends_with(0);
}

#[test]
fn the_first_of_several_on_path() {
    let mut world = World::new();
    world.executable("home/.local/bin/tool", "#!/bin/sh\necho first\n");
    world.executable("home/bin/tool", "#!/bin/sh\necho second\n");
    world.plant("home/none/tool", "not executable");
    let home = world.home().display().to_string();
    world.set("PATH", format!("{home}/none:{home}/.local/bin:{home}/bin:/usr/bin:/bin"));
    let ran = world.line(&["tool"]).go();
    assert_eq!(ran.out(), "first\n", "{ran}");
}

#[test]
fn init_that_is_not_there() {
    let world = World::new();
    let bin = world.base().join("bin");
    std::fs::create_dir(&bin).expect("a fresh directory");
    let copied = std::process::Command::new("cp").arg(stockade_line_tests::stockade()).arg(&bin).status();
    assert!(copied.expect("cp runs").success());
    let mut command = std::process::Command::new(bin.join("stockade"));
    command.args(["run", "--", "touch", "ran"]).current_dir(world.work());
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ran = stockade_line_tests::Running::start(command, None).finish().ends_with(122);
    stockade_line_tests::said_no(&ran, "SK-F001");
    assert!(std::fs::read_dir(world.work()).expect("the workspace").next().is_none());
}
