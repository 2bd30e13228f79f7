//! `stockade secret`: values come from stdin and are never shown again, nor readable at rest. SEC-1.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use stockade_line_tests::{Line, Ran, World, files_below, said_no};

const VALUE: &str = "hunter2-hunter2-hunter2";

fn secret<'w>(world: &'w World, words: &[&str]) -> Line<'w> {
    world.cli(&[&["secret"], words].concat()).option("--state", world.base().join("state"))
}

fn set(world: &World, name: &str, value: &str) -> Ran {
    secret(world, &["set", name]).input(value).go()
}

/// No file below the state directory holds these bytes, and none is open to others.
#[track_caller]
fn not_at_rest(world: &World, value: &str) {
    for file in files_below(&world.base().join("state")) {
        let bytes = fs::read(&file).expect("a file of ours");
        assert!(!bytes.windows(value.len()).any(|window| window == value.as_bytes()), "{}", file.display());
        assert_eq!(
            fs::metadata(&file).expect("its mode").permissions().mode() & 0o077,
            0,
            "{}",
            file.display()
        );
    }
}

#[test]
fn a_value_goes_in_and_only_its_name_comes_out() {
    let world = World::new();
    let ran = set(&world, "API_KEY", &format!("{VALUE}\n")).ends_with(0);
    assert!(ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran}");
    set(&world, "OTHER", VALUE).ends_with(0);
    let listed = secret(&world, &["list"]).go().ends_with(0);
    let names: Vec<_> = listed.out().lines().map(|line| line.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(names, [Some("NAME".into()), Some("API_KEY".into()), Some("OTHER".into())], "{listed}");
    let json = secret(&world, &["list", "--json"]).go().ends_with(0);
    let first: serde_json::Value =
        serde_json::from_str(json.out().lines().next().expect("two secrets")).expect("JSON");
    let keys: Vec<_> = first.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(keys, ["created_ms", "name", "updated_ms"], "{json}");
    assert!(!listed.out().contains(VALUE) && !json.out().contains(VALUE));
    not_at_rest(&world, VALUE);
    assert!(world.base().join("state/secrets.key").exists());
}

#[test]
fn a_secret_is_replaced_and_forgotten() {
    let world = World::new();
    set(&world, "API_KEY", VALUE).ends_with(0);
    set(&world, "API_KEY", "another-value-of-it").ends_with(0);
    assert_eq!(secret(&world, &["list"]).go().out().lines().count(), 2);
    secret(&world, &["rm", "API_KEY"]).go().ends_with(0);
    assert_eq!(secret(&world, &["list"]).go().ends_with(0).out().lines().count(), 1);
    let again = secret(&world, &["rm", "API_KEY"]).go().ends_with(125);
    said_no(&again, "SK-R041");
}

#[test]
fn what_can_t_be_kept_or_redacted_is_refused_without_saying_it() {
    let world = World::new();
    for (name, value, code) in [
        ("API_KEY", "", "SK-R040"),
        ("API_KEY", "\n", "SK-R040"),
        ("API_KEY", "sh0rt\n", "SK-R040"),
        ("1KEY", VALUE, "SK-R041"),
        ("A-B", VALUE, "SK-R041"),
        ("A B", VALUE, "SK-R040"),
        ("API_KEY", &"x".repeat(70_000), "SK-R040"),
    ] {
        let ran = set(&world, name, value).ends_with(125);
        said_no(&ran, code);
        assert!(value.trim().is_empty() || !ran.err().contains(value.trim()), "{ran}");
    }
    assert_eq!(secret(&world, &["list"]).go().ends_with(0).out().lines().count(), 1);
    // The value is no argument.
    secret(&world, &["set", "API_KEY", VALUE]).go().ends_with(125);
}

#[test]
fn the_largest_value_and_a_newline_that_is_meant() {
    let world = World::new();
    set(&world, "BIG", &"x".repeat(64 << 10)).ends_with(0);
    set(&world, "BIG_LINE", &format!("{}\n", "x".repeat(64 << 10))).ends_with(0);
    let exact = |value: String| secret(&world, &["set", "EXACT", "--exact"]).input(value).go();
    exact(format!("{}\n", "x".repeat((64 << 10) - 1))).ends_with(0);
    said_no(&exact(format!("{}\n", "x".repeat(64 << 10))).ends_with(125), "SK-R041");
}

/// On a terminal nothing is echoed, and the terminal is as before afterwards, however it ended.
#[test]
fn a_terminal_shows_nothing_of_it() {
    use std::io::{Read as _, Write as _};

    let world = World::new();
    for (name, leave) in [("KEPT", false), ("LEFT", true)] {
        let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY)
            .expect("a terminal");
        rustix::pty::grantpt(&master).expect("ours");
        rustix::pty::unlockpt(&master).expect("ours");
        let path = rustix::pty::ptsname(&master, Vec::new()).expect("it has a name");
        let slave = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path.to_str().expect("text"))
            .expect("its other end");
        let before = rustix::termios::tcgetattr(&slave).expect("a terminal");
        let running = secret(&world, &["set", name]).input_from(slave.try_clone().expect("a copy")).start();
        running.wait_err("it is not shown");
        stockade_line_tests::until("the echo to go", || {
            let now = rustix::termios::tcgetattr(&slave).expect("a terminal");
            (!now.local_modes.contains(rustix::termios::LocalModes::ECHO)).then_some(())
        });
        let mut master = fs::File::from(master);
        master.write_all(VALUE.as_bytes()).expect("a terminal takes it");
        if leave {
            running.signal(Signal::INT);
        } else {
            master.write_all(b"\n").expect("a terminal takes it");
        }
        let ran = running.finish().ends_with(if leave { 125 } else { 0 });
        assert!(!ran.err().contains(VALUE), "{ran}");
        let after = rustix::termios::tcgetattr(&slave).expect("a terminal");
        assert_eq!(before.local_modes, after.local_modes);
        // What was shown: at most the newline.
        rustix::io::ioctl_fionbio(&master, true).expect("ours");
        let mut shown = [0; 256];
        let count = master.read(&mut shown).unwrap_or(0);
        assert!(shown[..count].iter().all(|byte| b"\r\n".contains(byte)), "{:?}", &shown[..count]);
        assert_eq!(secret(&world, &["list"]).go().ends_with(0).out().contains(name), !leave);
    }
}
