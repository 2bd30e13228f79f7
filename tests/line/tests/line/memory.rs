//! The size of `stockade run` itself while it relays: bounded, whatever comes.

use stockade_line_tests::{World, status_kib, until};

const RELAYED: usize = 100 << 20;

/// The promise is for the released program; a debug build is larger by its unoptimised code.
fn bound_kib() -> u64 {
    if std::env::var_os("STOCKADE_RELEASE").is_some() { 10 << 10 } else { 40 << 10 }
}

#[test]
fn a_hundred_megabytes_pass_through_ten() {
    let world = World::new();
    let script = format!("head -c {RELAYED} /dev/zero; read line");
    let mut running = world.sh(&script).flag("--stdin").input_open().start();
    assert!(running.out_reaches(RELAYED));
    let peak = status_kib(running.pid(), "VmHWM").expect("it is still there");
    running.close_stdin();
    assert_eq!(running.finish().stdout.len(), RELAYED);
    assert!(peak <= bound_kib(), "{peak} KiB, more than {}", bound_kib());
}

#[test]
fn a_slow_reader_costs_no_memory() {
    use std::io::Read as _;
    let world = World::new();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let script = format!("head -c {RELAYED} /dev/zero");
    let running = world.sh(&script).stdout_to(writer).start();
    // Nobody reads yet: it fills its pipes and waits.
    let pid = running.pid();
    until("a full pipe", || {
        rustix::io::ioctl_fionread(&reader).ok().filter(|held| *held >= 65_536).map(drop)
    });
    let mut reader = std::fs::File::from(reader);
    let mut buffer = vec![0u8; 1 << 16];
    let mut got = 0;
    while got < RELAYED / 2 {
        got += reader.read(&mut buffer).expect("more comes");
    }
    let peak = status_kib(pid, "VmHWM").expect("it is still there");
    while let Ok(more @ 1..) = reader.read(&mut buffer) {
        got += more;
    }
    assert_eq!(got, RELAYED);
    assert_eq!(running.finish().code(), 0);
    assert!(peak <= bound_kib(), "{peak} KiB, more than {}", bound_kib());
}
