//! RUN-4: stdin is `/dev/null` unless asked for; then it is a pipe with an end.

use std::time::Duration;

use stockade_line_tests::World;

#[test]
fn null_by_default() {
    let world = World::new();
    let ran = world.sh("cat; readlink /proc/self/fd/0; wc -c").input("must not arrive\n").go().ends_with(0);
    assert_eq!(ran.out(), "/dev/null\n0\n", "{ran}");
}

#[test]
fn the_callers_input_is_left_for_the_next_reader() {
    // `while read host; do stockade run ...; done < hosts` must not lose lines.
    let world = World::new();
    let file = world.plant("hosts", "one\ntwo\nthree\n");
    let input = std::fs::File::open(file).expect("the file");
    let ran = world
        .line(&["cat"])
        .before(&["/bin/sh", "-c", "read a; \"$@\"; read b; echo $a $b", "sh"])
        .input_from(input)
        .go()
        .ends_with(0);
    assert_eq!(ran.out(), "one two\n", "{ran}");
}

#[test]
fn piped_with_its_end() {
    let world = World::new();
    let all: Vec<u8> = (0..=255).collect();
    let ran = world.line(&["cat"]).flag("--stdin").input(all.clone()).go().ends_with(0);
    assert_eq!(ran.stdout, all);
    let ran = world.sh("cat; echo end").flag("-i").input("").go().ends_with(0);
    assert_eq!(ran.out(), "end\n");
}

#[test]
fn a_large_input_is_exact() {
    let world = World::new();
    let sent: Vec<u8> = (0..8_000_000u32).flat_map(u32::to_le_bytes).collect();
    let ran = world.line(&["cat"]).flag("--stdin").input(sent.clone()).go().ends_with(0);
    assert!(ran.stdout == sent, "{} of {} bytes", ran.stdout.len(), sent.len());
}

#[test]
fn a_command_that_does_not_read() {
    let world = World::new();
    let ran = world.line(&["true"]).flag("--stdin").input(vec![b'x'; 10 << 20]).go().ends_with(0);
    assert!(ran.wall < Duration::from_secs(20) * stockade_line_tests::slowness(), "{ran}");
}

#[test]
fn a_command_that_closes_its_input_goes_on() {
    let world = World::new();
    let mut running =
        world.sh("exec <&-; echo closed; sleep 0.2; echo end").flag("--stdin").input_open().start();
    running.wait_out("closed\n");
    running.write(&vec![b'x'; 1 << 16]);
    let ran = running.finish().ends_with(0);
    assert_eq!(ran.out(), "closed\nend\n");
}

#[test]
fn an_input_that_never_ends_does_not_hold_the_result() {
    let world = World::new();
    let running = world.sh("head -n 1 > /dev/null; echo end").flag("--stdin").input_open().start();
    let mut running = running;
    running.write(b"line\n");
    assert!(running.ends_within(Duration::from_secs(20)), "{}", running.out_now());
    assert_eq!(running.finish().out(), "end\n");
}

#[test]
fn from_a_file() {
    let world = World::new();
    let file = world.plant("input", "from a file\n");
    let input = std::fs::File::open(file).expect("the file");
    let ran = world.line(&["cat"]).flag("--stdin").input_from(input).go().ends_with(0);
    assert_eq!(ran.out(), "from a file\n");
}

#[test]
fn the_command_gets_a_copy_not_the_callers_file() {
    let world = World::new();
    let file = world.plant("input", "text\n");
    let input = std::fs::File::options().read(true).write(true).open(file).expect("the file");
    let ran = world.sh("readlink /proc/self/fd/0; echo evil >&0").flag("--stdin").input_from(input).go();
    assert!(ran.out().starts_with("pipe:"), "{ran}");
    assert_eq!(world.read("input"), "text\n", "{ran}");
}

#[test]
fn a_closed_stdin_of_the_callers() {
    let world = World::new();
    let ran = world.line(&["cat"]).before(&["/bin/sh", "-c", "exec \"$@\" <&-", "sh"]).go().ends_with(0);
    assert_eq!(ran.out(), "");
    let ran = world
        .line(&["cat"])
        .flag("--stdin")
        .before(&["/bin/sh", "-c", "exec \"$@\" <&-", "sh"])
        .timeout("20s")
        .go()
        .ends_with(0);
    assert_eq!(ran.out(), "", "{ran}");
}
