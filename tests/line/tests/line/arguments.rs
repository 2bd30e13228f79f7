//! RUN-3: what is wrong with a command is said before anything starts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use stockade_line_tests::{World, skip};
use stockade_proto::{Code, Outcome};

/// MAX_ARG_STRLEN without the NUL.
const LONGEST: usize = 131_071;

#[test]
fn an_empty_command() {
    let world = World::new();
    let none: [&str; 0] = [];
    world.line(&none).go().refused(Code::CommandEmpty);
    world.line(&[""]).go().refused(Code::CommandEmpty);
    world.line(&["", "true"]).go().refused(Code::CommandEmpty);
    // Without `--` as well.
    let ran = world.cli(&["run"]).go().ends_with(125);
    stockade_line_tests::said_no(&ran, "SK-R001");
}

#[test]
fn an_empty_argument_is_an_argument() {
    let world = World::new();
    let ran = world.line(&["sh", "-c", "echo $#", "sh", "", "x", ""]).go().ends_with(0);
    assert_eq!(ran.out(), "3\n");
}

#[test]
fn a_carriage_return() {
    let world = World::new();
    for (words, which) in [
        (vec!["tr\rue"], "the command"),
        (vec!["echo", "a\r\nb"], "argument 1"),
        (vec!["echo", "fine", "x\r"], "argument 2"),
    ] {
        let ran = world.line(&words).go();
        let refusal = ran.refused(Code::CommandByte);
        assert!(refusal.message.starts_with(which), "{ran}");
        assert!(refusal.message.contains("carriage return"), "{ran}");
    }
    world.line(&["touch ran\r"]).flag("--shell").go().refused(Code::CommandByte);
    assert!(std::fs::read_dir(world.work()).expect("the workspace").next().is_none());
}

#[test]
fn control_characters_of_a_command_do_not_reach_the_terminal() {
    let world = World::new();
    let ran = world.line(&["no\u{1b}[31m-such\u{7}-thing"]).go().ends_with(127);
    assert!(!ran.stderr.contains(&0x1b) && !ran.stderr.contains(&7), "{ran}");
    let ran = world.line(&["x\u{1b}[2J\r"]).go().ends_with(125);
    let said = ran.err().replace("\u{1b}[1;31m", "").replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    assert!(!said.contains('\u{1b}'), "{ran}");
}

#[test]
fn the_longest_argument_the_kernel_takes() {
    let world = World::new();
    let longest = "x".repeat(LONGEST);
    let ran = world.line(&["sh", "-c", "printf %s \"$1\" | wc -c", "sh", &longest]).go().ends_with(0);
    assert_eq!(ran.out().trim(), LONGEST.to_string());
    // One more and the kernel does not even start `stockade`: there is nobody to refuse it.
    let longer = "x".repeat(LONGEST + 1);
    let error = world.line(&["true", &longer]).command().spawn().expect_err("E2BIG");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::TOOBIG.raw_os_error()));
}

#[test]
fn a_variable_that_is_longer_than_the_kernel_takes() {
    let world = World::new();
    let fits = "x".repeat(LONGEST - "A=".len());
    let ran = world.sh("printf %s \"$A\" | wc -c").option("--env", format!("A={fits}")).go().ends_with(0);
    assert_eq!(ran.out().trim(), fits.len().to_string());
    // A profile can hold what no command line can.
    world.profile("long", &format!("extends = \"default\"\n[env]\nset = {{ A = \"{fits}x\" }}\n"));
    let refusal = world.line(&["true"]).profile("long").go().refused(Code::CommandTooLong);
    assert!(refusal.message.contains("131072") && refusal.message.contains("131071"), "{refusal}");
    assert!(!refusal.message.contains("xxxx"), "the value is in the message");
}

/// With a larger stack the kernel lets `stockade` itself have more arguments than a command can have.
fn with_stack(kib: &str) -> Vec<&str> {
    vec!["/bin/sh", "-c", "k=$1; shift; ulimit -s $k || exit 99; exec \"$@\"", "sh", kib]
}

#[test]
fn all_arguments_together_beyond_the_kernels_limit() {
    let world = World::new();
    let arg = "y".repeat(100_000);
    let mut words = vec!["true".to_owned()];
    words.extend(std::iter::repeat_n(arg, 30));
    let mut command = world.line(&words).before(&with_stack("65536")).command();
    // The shell that raises the limit has the old one itself: hand the words over in a file.
    let script = world.base().join("script");
    let mut text = String::from("ulimit -s 65536 || exit 99\nset -- \n");
    for word in command.get_args().skip_while(|word| *word != "65536").skip(1) {
        text.push_str(&format!("set -- \"$@\" '{}'\n", word.to_string_lossy()));
    }
    text.push_str("exec \"$@\"\n");
    std::fs::write(&script, text).expect("the script");
    let env: Vec<(OsString, OsString)> =
        command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    command = std::process::Command::new("/bin/sh");
    command.arg(&script).env_clear().envs(env).current_dir(world.work());
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ran = stockade_line_tests::Running::start(command, None).finish();
    if ran.status.code() == Some(99) {
        return skip("the stack limit can't be raised here");
    }
    let ran = ran.ends_with(125);
    stockade_line_tests::said_no(&ran, "SK-R003");
    assert!(ran.err().contains("31 arguments"), "{ran}");
}

#[test]
fn a_small_stack_limit_of_the_callers() {
    // The kernel's room for arguments is a quarter of the stack limit, and the caller's was lowered.
    let world = World::new();
    let arg = "z".repeat(100_000);
    let ran = world.line(&["sh", "-c", "echo ${#1}", "sh", &arg]).before(&with_stack("512")).go();
    // It runs, or it says that this was too much: never a bare errno, never our own failure.
    match ran.code() {
        0 => assert_eq!(ran.out(), "100000\n"),
        125 => drop(ran.refused(Code::CommandTooLong)),
        126 => assert!(ran.err().contains("exceed the kernel's limit"), "{ran}"),
        other => panic!("{other}: {ran}"),
    }
}

#[test]
fn bytes_that_are_no_text() {
    let world = World::new();
    let odd = OsString::from_vec(vec![0xc3, 0x28, 0xff, 0xfe]);
    let ran = world
        .line(&["printf".into(), "%s".into(), odd.clone()])
        .option("--env", OsString::from_vec(b"ODD=\xff\xfe".to_vec()))
        .go()
        .ends_with(0);
    assert_eq!(ran.stdout, odd.clone().into_vec());
    let ran = world
        .sh("printf %s \"$ODD\"")
        .option("--env", OsString::from_vec(b"ODD=\xff\xfe".to_vec()))
        .go()
        .ends_with(0);
    assert_eq!(ran.stdout, [0xff, 0xfe]);
    // As a command that is not there.
    let ran = world.line(&[odd]).go().ends_with(127);
    assert!(ran.err().contains("\\xff\\xfe"), "{ran}");
    assert!(matches!(ran.result().outcome, Outcome::LaunchFailed { .. }));
}
