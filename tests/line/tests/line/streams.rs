//! RUN-1, RUN-4: stdout and stderr as they are, byte for byte, each in its order.

use std::fs::File;
use std::time::Duration;

use stockade_line_tests::{Running, World, unique};

/// No pattern that a redactor could take for a token; not compressible to a shorter test by chance.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

#[test]
fn every_byte_value_comes_through() {
    let world = World::new();
    let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    world.plant("work/all", &all);
    let ran = world.sh("cat all; cat all >&2").go().ends_with(0);
    assert_eq!(ran.stdout, all);
    assert_eq!(ran.stderr, all);
    let result = ran.result();
    assert_eq!((result.stdout.bytes, result.stderr.bytes), (512, 512));
}

#[test]
fn fifty_megabytes_are_exact() {
    let world = World::new();
    let sent = noise(50 << 20);
    world.plant("work/big", &sent);
    let ran = world.line(&["cat", "big"]).go().ends_with(0);
    assert!(ran.stdout == sent, "{} bytes came", ran.stdout.len());
    let result = ran.result();
    assert_eq!(result.stdout.bytes, 50 << 20);
    assert_eq!((result.stdout.dropped, result.stdout.redactions, result.truncated), (0, 0, false));
}

#[test]
fn both_streams_at_once_lose_nothing() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 3000 ]; do echo out-$i; echo err-$i >&2; i=$((i+1)); done";
    let ran = world.sh(script).go().ends_with(0);
    let expected = |word: &str| (0..3000).map(|at| format!("{word}-{at}\n")).collect::<String>();
    assert_eq!(ran.out(), expected("out"));
    assert_eq!(ran.err(), expected("err"));
}

#[test]
fn one_stream_that_nobody_reads_does_not_stop_the_other() {
    let world = World::new();
    // The reader of stderr does not read; stdout must still come, and the deadline must still hold.
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let running = world
        .sh("head -c 4000000 /dev/zero >&2 & echo prompt; sleep 1000")
        .timeout("2s")
        .stderr_to(writer)
        .start();
    running.wait_out("prompt");
    assert!(running.ends_within(Duration::from_secs(15)), "it waits for a reader that does not read");
    assert_eq!(running.finish().code(), 124);
    drop(reader);
}

#[test]
fn output_without_a_newline_at_its_end() {
    let world = World::new();
    let ran = world.sh("printf abc; printf def >&2").go().ends_with(0);
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("abc", "def"));
}

#[test]
fn output_is_shown_while_the_command_runs() {
    let world = World::new();
    let mut running =
        world.sh("echo first; read line; echo second $line").flag("--stdin").input_open().start();
    running.wait_out("first\n");
    assert!(!running.out_now().contains("second"));
    running.write(b"word\n");
    running.wait_out("second word\n");
    assert_eq!(running.finish().code(), 0);
}

#[test]
fn a_prompt_without_a_newline_appears_at_once() {
    let world = World::new();
    let running = world.sh("printf 'Password: '; read line").flag("--stdin").input_open().start();
    // From when it can have been written: the shell is there.
    stockade_line_tests::until("the shell", || {
        (stockade_line_tests::descendants(running.pid()).len() >= 2).then_some(())
    });
    assert!(running.out_within("Password: ", Duration::from_secs(1)), "{:?}", running.out_now());
}

#[test]
fn straight_to_files() {
    let world = World::new();
    let (out, err) = (world.base().join("out"), world.base().join("err"));
    world.plant("out", "an older and longer text that must be gone");
    let ran = world
        .sh("echo one; echo two >&2")
        .option("--stdout", &out)
        .option("--stderr", &err)
        .go()
        .ends_with(0);
    assert!(ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran}");
    assert_eq!((world.read("out").as_str(), world.read("err").as_str()), ("one\n", "two\n"));
    assert_eq!((ran.result().stdout.bytes, ran.result().stderr.bytes), (4, 4));
}

#[test]
fn a_file_that_can_t_be_written_is_refused_before_anything_runs() {
    let world = World::new();
    let ran = world.sh("touch ran").option("--stdout", world.base().join("no/such/directory/out")).go();
    let refusal = ran.refused(stockade_proto::Code::OptionInvalid);
    assert!(refusal.message.contains("no/such/directory/out"), "{ran}");
    assert!(!world.work().join("ran").exists());
}

#[test]
fn a_link_that_a_command_planted_is_not_followed() {
    let world = World::new();
    world.plant("precious", "precious\n");
    world.sh("ln -s ../precious out; ln -s .. up").go().ends_with(0);
    for path in ["out", "up/precious"] {
        for option in ["--stdout", "--stderr", "--json"] {
            let ran = world.sh("echo text; echo text >&2").no_json().option(option, path).go().ends_with(125);
            stockade_line_tests::said_no(&ran, "SK-R041");
            assert_eq!(world.read("precious"), "precious\n", "{option} {path}: {ran}");
        }
    }
}

#[test]
fn a_file_gets_what_is_appended_after_what_is_there() {
    // A shell's `>> log`: our writes go where the shared offset is.
    let world = World::new();
    let log = world.plant("log", "before\n");
    let file = File::options().append(true).open(&log).expect("the log");
    let ran = world.sh("echo during").stdout_to(file).go().ends_with(0);
    assert_eq!(world.read("log"), "before\nduring\n", "{ran}");
}

#[test]
fn a_reader_that_goes_away_ends_it_promptly() {
    let world = World::new();
    let marker = unique("yes-");
    // As `stockade run -- yes | head -1`: no panic, no message, no wait.
    let inner = world.line(&["yes", &marker]).timeout("50s");
    let line = inner.command();
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", "\"$@\" | head -n 1", "sh"]).arg(line.get_program()).args(line.get_args());
    shell.env_clear().envs(line.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(world.work());
    shell.stdin(std::process::Stdio::null());
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ran = Running::start(shell, None).finish().ends_with(0);
    assert_eq!(ran.out(), format!("{marker}\n"));
    assert!(!ran.err().contains("panicked"), "{ran}");
    assert!(ran.wall < Duration::from_secs(20) * stockade_line_tests::slowness(), "{ran}");
    assert!(stockade_line_tests::settle(&marker).is_empty());
}

#[test]
fn the_command_gets_its_sigpipe() {
    let world = World::new();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    drop(reader);
    let ran = world.line(&["yes"]).timeout("50s").stdout_to(writer).go().ends_with(128 + 13);
    assert!(!ran.err().contains("panicked"), "{ran}");
    assert_eq!(ran.value()["outcome"]["kind"], "signaled", "{ran}");
}

#[test]
fn stdout_that_was_never_open() {
    let world = World::new();
    // `stockade run ... >&- 2>&-`: no descriptor of ours may take their numbers and their output.
    let ran = world
        .sh("echo out; echo err >&2; echo done > made")
        .before(&["/bin/sh", "-c", "exec \"$@\" >&- 2>&-", "sh"])
        .go();
    assert!(ran.status.code().is_some(), "{ran}");
    assert!(!ran.err().contains("panicked"), "{ran}");
    let json = ran.json.as_deref().unwrap_or_default();
    assert!(json.starts_with(b"{") || json.is_empty(), "output went into the result: {ran}");
}

#[test]
fn a_socket_as_stdout() {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    let world = World::new();
    let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        ours.read_to_end(&mut bytes).map(|_| bytes)
    });
    world.line(&["head", "-c", "3000000", "/dev/zero"]).stdout_to(theirs).go().ends_with(0);
    let bytes = reading.join().expect("the reader").expect("all of it");
    assert_eq!(bytes.len(), 3_000_000);
}
