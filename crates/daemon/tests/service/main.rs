//! `stockaded` as a process: what it refuses, what it prints, how signals and the service manager find it, and what
//! it leaves. The executor is a stand-in: what runs is another suite's.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test's fixture fails by panicking")]

mod place;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use place::{Notes, Place, Running, is_alive, until};
use rustix::process::Signal;

#[test]
fn check_says_what_is_wrong_and_where() {
    let place = Place::new();
    let check = |arguments: &[&str]| {
        let mut command = place.command();
        command.args(arguments).arg("--check");
        Place::said(command)
    };
    let (code, said) = check(&[]);
    assert_eq!((code, said.trim()), (Some(0), "the configuration can be used"));
    assert!(!place.path("state").exists(), "a look changes nothing");

    place.configure("[http]\nadress = \"127.0.0.1:0\"\n");
    let (code, said) = check(&[]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("c.toml:4:1") && said.contains("did you mean `address`?"), "{said}");

    place.configure("[http]\naddress = \"0.0.0.0:0\"\n");
    let (code, said) = check(&[]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("without a secret the HTTP door opens on loopback only"), "{said}");

    let (code, said) = check(&["--config"]);
    assert_eq!(code, Some(125), "{said}");
    let mut version = place.command();
    version.arg("--version");
    assert_eq!(version.output().unwrap().status.code(), Some(0));
}

#[test]
fn variables_that_cant_be_used_keep_it_from_starting() {
    let place = Place::new();
    for (name, value) in [
        ("EXECUTOR_PORT", "http"),
        ("EXECUTOR_MEMORY_LIMIT_MB", "0"),
        ("EXECUTOR_CPU_LIMIT_PERCENT", "-5"),
        ("EXECUTOR_NETWORK_POLICY", "allow_all"),
        ("RUN_TIMEOUT_MS", "soon"),
        ("EXECUTOR_SOCKET_PATH", "here"),
        ("EXECUTOR_SECRET", "a\nb"),
    ] {
        let mut command = place.command();
        command.env(name, value);
        let (code, said) = Place::said(command);
        assert_eq!(code, Some(125), "{name}: {said}");
        assert!(said.contains(name), "{said}");
    }
    assert!(!place.path("state").exists());
}

#[test]
fn a_credential_is_the_secrets_key_and_a_broken_one_refuses_to_start() {
    let place = Place::new();
    let given = place.path("credentials");
    fs::create_dir(&given).unwrap();
    let command = || {
        let mut command = place.command();
        command.env("CREDENTIALS_DIRECTORY", &given);
        command
    };
    // None of that name is none.
    Running::start(command()).stop();
    assert!(!place.path("state/secrets.credential").exists());
    let key = given.join("stockade-secrets-key");
    fs::write(&key, [7; 31]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
    let (code, said) = Place::said(command());
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("stockade-secrets-key") && said.contains("not 32 bytes long"), "{said}");
    fs::remove_file(&key).unwrap();
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
    let running = Running::start(command());
    let executor = place.heard().iter().rev().find_map(|word| word["pid"].as_u64()).unwrap();
    let environment = fs::read(format!("/proc/{executor}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("CREDENTIALS"), "it is the service's alone");
    running.stop();
    assert!(place.path("state/secrets.credential").exists() && !place.path("state/secrets.key").exists());
}

#[test]
fn without_a_secret_it_says_so_loudly_and_ends_well() {
    let place = Place::new();
    let running = place.start();
    let executor = place.heard()[0]["pid"].as_u64().unwrap();
    assert!(is_alive(executor));
    let said = running.stop();
    assert!(said.lines().any(|line| line == "Auth: disabled"), "{said}");
    assert!(said.contains("NO SECRET"), "{said}");
    assert!(!is_alive(executor));
    assert!(!place.path("state/executor").exists(), "no mark of an executor that is gone");
    assert_eq!(place.heard_methods("shutdown").len(), 1);
}

#[test]
fn the_secret_is_nowhere_to_be_seen() {
    let place = Place::new();
    place.configure("[log]\nlevel = \"trace\"\n");
    let mut command = place.command();
    command.env("EXECUTOR_SECRET", "walrus-and-carpenter");
    let running = Running::start(command);
    let environment = fs::read(format!("/proc/{}/environ", running.pid())).unwrap();
    let command_line = fs::read(format!("/proc/{}/cmdline", running.pid())).unwrap();
    for (name, bytes) in [("environ", environment), ("cmdline", command_line)] {
        assert!(!String::from_utf8_lossy(&bytes).contains("walrus"), "{name}");
    }
    assert!(fs::read_to_string(format!("/proc/{}/comm", running.pid())).unwrap().starts_with("stockaded"));
    let said = running.stop();
    assert!(said.lines().any(|line| line == "Auth: enabled"), "{said}");
    assert!(!said.contains("walrus"), "{said}");
    assert!(!fs::read_to_string(place.path("bin/heard")).unwrap().contains("walrus"));
}

#[test]
fn two_on_one_state_directory_do_not_go_together() {
    let place = Place::new();
    let first = place.start();
    let (code, said) = Place::said(place.command());
    assert_eq!(code, Some(122), "{said}");
    assert!(said.contains("stockaded failed: the store can't be opened"), "{said}");
    first.stop();
    place.start().stop();
}

#[test]
fn a_reload_changes_what_can_change_and_a_broken_one_nothing() {
    let place = Place::new();
    let running = place.start();
    place.configure("[limits]\nmemory = \"1G\"\n[log]\nlevel = \"debug\"\n");
    running.signal(Signal::HUP);
    let told = until("the new terms", || place.heard_methods("terms").pop());
    let text = told["profiles"][0]["text"].as_str().unwrap();
    assert!(text.contains("memory = 1073741824"), "{text}");

    place.configure("[limits]\nmemory = \"many\"\n");
    running.signal(Signal::HUP);
    running.until_said("the configuration in force stays");
    assert!(running.said().contains("c.toml:4:10"), "{}", running.said());

    // A profile that is broken keeps the new configuration out, too.
    let profiles = place.path(".config/stockade/profiles");
    fs::create_dir_all(&profiles).unwrap();
    fs::write(profiles.join("mine.toml"), "memry = 1\n").unwrap();
    place.configure("[limits]\nmemory = \"2G\"\n");
    running.signal(Signal::HUP);
    running.until_said("mine.toml:1:1");
    fs::write(profiles.join("mine.toml"), "extends = \"build\"\n").unwrap();
    place.configure("[limits]\nmemory = \"2G\"\n[http]\naddress = \"127.0.0.1:1\"\n");
    running.signal(Signal::HUP);
    let told = until("both profiles", || {
        place.heard_methods("terms").pop().filter(|told| told["profiles"].as_array().unwrap().len() == 2)
    });
    assert_eq!(told["profiles"][0]["name"], "mine");
    assert!(told["profiles"][1]["text"].as_str().unwrap().contains("2147483648"));
    running.until_said("in force after a restart only: http.address");
    assert_eq!(place.heard_methods("terms").len(), 2);
    running.stop();
}

#[test]
fn production_starts_no_service_without_walls() {
    let place = Place::new();
    place.configure("profile = \"host\"\nproduction = true\n");
    let (code, said) = Place::said(place.command());
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("builds no walls"), "{said}");
    place.configure("profile = \"hots\"\n");
    let (code, said) = Place::said(place.command());
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("there is no profile `hots`"), "{said}");
}

#[test]
fn an_executor_of_an_earlier_life_is_waited_for() {
    let place = Place::new();
    fs::write(place.path("bin/linger"), "2").unwrap();
    let mut first = place.start();
    let stray = place.heard()[0]["pid"].as_u64().unwrap();
    first.signal(Signal::KILL);
    assert_eq!(first.ended().code(), None);
    assert!(is_alive(stray));
    fs::remove_file(place.path("bin/linger")).unwrap();
    let second = place.start();
    assert!(!is_alive(stray), "nothing of an earlier run is there when it serves");
    assert!(second.said().contains("waiting for the executor of an earlier run"), "{}", second.said());
    second.stop();
}

#[test]
fn the_service_manager_hears_of_every_turn() {
    let place = Place::new();
    let mut notes = Notes::new(&place);
    let mut command = place.command();
    command.env("NOTIFY_SOCKET", &notes.path).env("WATCHDOG_USEC", "300000");
    let running = Running::start(command);
    notes.until("READY=1");
    notes.until("WATCHDOG=1");
    notes.until("WATCHDOG=1");
    running.signal(Signal::HUP);
    assert!(notes.until("RELOADING=1").contains("MONOTONIC_USEC="));
    notes.until("READY=1");
    place.configure("nonsense");
    running.signal(Signal::HUP);
    notes.until("RELOADING=1");
    assert!(notes.until("READY=1").contains("the last reload failed"));
    running.signal(Signal::TERM);
    let stopping = notes.until("STOPPING=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC=90000000"), "{stopping}");
    running.stop();
}

#[test]
fn its_files_are_its_own() {
    let place = Place::new();
    let running = place.start();
    for name in ["state", "run"] {
        let mode = fs::metadata(place.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
    running.stop();
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let place = Place::new();
    place.configure("[log]\nlevel = \"trace\"\n");
    let mut notes = Notes::new(&place);
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut command = place.command();
    command.env("NOTIFY_SOCKET", &notes.path).stderr(writer);
    let mut child = command.spawn().unwrap();
    notes.until("READY=1");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    place.configure("nonsense");
    for _ in 0..100 {
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        notes.until("READY=1");
    }
    let begun = Instant::now();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let status = until("its end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(reader);
}

#[test]
fn few_descriptors_are_no_end() {
    let place = Place::new();
    let mut command = std::process::Command::new("sh");
    let program = place.path("bin/stockaded");
    command.arg("-c").arg("ulimit -n 12; exec \"$0\" --config \"$1\"").arg(program).arg(place.path("c.toml"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", place.path(""));
    let mut running = Running::begin(&mut command);
    // Too few to serve with: it says so and ends, and nothing of it stays.
    let status = running.ended();
    assert!(status.code().is_some_and(|code| code == 122 || code == 125), "{status:?} {}", running.said());
}
