//! `stockade audit` over a log that this test writes itself, from the description of its format and with
//! `sha256sum`: what is whole is so called, and of each change the first bad entry is named. OPS-2.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use stockade_line_tests::{Line, Ran, World, am_root, said_no};

fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum is in coreutils");
    child.stdin.take().expect("piped").write_all(bytes).expect("it reads");
    let out = child.wait_with_output().expect("it ends").stdout;
    String::from_utf8_lossy(&out).split(' ').next().expect("a hash").to_owned()
}

const ENTRIES: usize = 6;

struct Log {
    world: World,
    lines: Vec<String>,
}

impl Log {
    fn new() -> Self {
        let world = World::new();
        let mut prev = "0".repeat(64);
        let mut lines = Vec::new();
        for number in 1..=ENTRIES {
            let line = format!(
                r#"{{"seq":{number},"at":"2026-01-01T00:00:0{number}.000000Z","kind":"noted","execution":null,"principal":"uid:7","body":{{"event":"test-{number}","text":"\u001b[2J"}},"prev":"{prev}"}}"#
            );
            prev = sha256(line.as_bytes());
            lines.push(line);
        }
        let log = Self { world, lines };
        log.write(&log.lines);
        let (first, head) = (sha256(log.lines[0].as_bytes()), prev);
        let anchor = format!(r#"{{"count":{ENTRIES},"first":"{first}","head":"{head}"}}"#);
        fs::write(log.directory().join("anchor"), anchor).expect("a fresh file");
        log
    }

    fn directory(&self) -> PathBuf {
        self.world.base().join("state/audit")
    }

    fn write(&self, lines: &[String]) {
        fs::create_dir_all(self.directory()).expect("a directory");
        let text = lines.iter().fold(String::new(), |mut text, line| {
            writeln!(text, "{line}").expect("a string takes it");
            text
        });
        fs::write(self.directory().join("000001.log"), text).expect("a file");
    }

    fn audit(&self, words: &[&str]) -> Line<'_> {
        self.world.cli(&[&["audit"], words].concat()).option("--state", self.world.base().join("state"))
    }

    /// Says what is wrong, as text and as JSON, with exit code 1.
    #[track_caller]
    fn broken(&self, entry: usize, why: &str) -> Ran {
        let ran = self.audit(&["verify"]).go().ends_with(1);
        let file = self.directory().join("000001.log");
        assert!(ran.out().starts_with(&format!("broken: entry {entry} in {}: ", file.display())), "{ran}");
        assert!(ran.out().contains(why) && ran.out().contains("what to do"), "{ran}");
        let json = self.audit(&["verify", "--json"]).go().ends_with(1);
        let value: serde_json::Value = serde_json::from_str(&json.out()).expect("JSON");
        assert_eq!((&value["ok"], &value["entry"]), (&false.into(), &entry.into()), "{json}");
        ran
    }
}

#[test]
fn a_whole_log_is_ok_with_its_count_and_head() {
    let log = Log::new();
    let head = sha256(log.lines[ENTRIES - 1].as_bytes());
    let ran = log.audit(&["verify"]).go().ends_with(0);
    assert_eq!(ran.out(), format!("ok: {ENTRIES} entries, head {head}\n"), "{ran}");
    let json = log.audit(&["verify", "--json"]).go().ends_with(0);
    let value: serde_json::Value = serde_json::from_str(&json.out()).expect("JSON");
    assert_eq!((&value["ok"], &value["entries"]), (&true.into(), &ENTRIES.into()), "{json}");
    assert_eq!(value["head"], head.as_str(), "{json}");
}

#[test]
fn edits_cuts_swaps_and_duplicates_are_found_where_they_are() {
    let log = Log::new();
    let change = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = log.lines.clone();
        change(&mut lines);
        log.write(&lines);
    };
    change(&|lines| lines[2] = lines[2].replace("test-3", "test-X"));
    log.broken(3, "not those that the next entry was chained to");
    change(&|lines| lines[ENTRIES - 1] = lines[ENTRIES - 1].replace("test-6", "test-X"));
    log.broken(6, "not those that the anchor was made from");
    change(&|lines| drop(lines.pop()));
    log.broken(6, "it is missing");
    change(&|lines| drop(lines.remove(0)));
    log.broken(1, "numbered 2");
    change(&|lines| lines.swap(1, 2));
    log.broken(2, "numbered 3");
    change(&|lines| lines.insert(3, lines[2].clone()));
    log.broken(4, "numbered 3");
    change(&|lines| lines[4] = "no entry".to_owned());
    log.broken(5, "no entry");
    change(&|_| {});
    fs::remove_file(log.directory().join("anchor")).expect("it is there");
    log.broken(1, "no anchor");
}

#[test]
fn the_last_entries_for_people_and_as_stored() {
    let log = Log::new();
    let ran = log.audit(&["tail", "-n", "2"]).go().ends_with(0);
    let out = ran.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{ran}");
    assert!(lines[0].starts_with("5  2026-01-01T00:00:05.000000Z  noted   -  uid:7  {"), "{ran}");
    assert!(!out.contains('\u{1b}') && out.contains(r"\u001b[2J"), "{ran}");
    let json = log.audit(&["tail", "-n", "2", "--json"]).go().ends_with(0);
    assert_eq!(json.out(), format!("{}\n{}\n", log.lines[4], log.lines[5]), "{json}");
    assert_eq!(log.audit(&["tail"]).go().ends_with(0).out().lines().count(), ENTRIES);
    assert_eq!(log.audit(&["tail", "-n", "0"]).go().ends_with(0).out(), "");
}

#[test]
fn an_export_is_byte_for_byte() {
    let log = Log::new();
    let stored = fs::read(log.directory().join("000001.log")).expect("the log");
    assert_eq!(log.audit(&["export"]).go().ends_with(0).stdout, stored);
    let file = log.world.base().join("copy.jsonl");
    let ran = log.audit(&["export", file.to_str().expect("text")]).go().ends_with(0);
    assert!(ran.stdout.is_empty() && ran.err().contains("6 entries"), "{ran}");
    assert_eq!(fs::read(&file).expect("the copy"), stored);
    // Not through a link that somebody left at that name.
    let link = log.world.base().join("link");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    said_no(&log.audit(&["export", link.to_str().expect("text")]).go().ends_with(125), "SK-R041");
    // A reader that has seen enough is no failure.
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    drop(read);
    let ran = log.audit(&["export"]).stdout_to(write).go().ends_with(0);
    assert!(ran.stderr.is_empty(), "{ran}");
}

#[test]
fn a_log_that_is_not_there_or_not_ours_to_read() {
    let world = World::new();
    let ran =
        world.cli(&["audit", "verify"]).option("--state", world.base().join("nowhere")).go().ends_with(125);
    said_no(&ran, "SK-R041");
    if am_root() {
        return stockade_line_tests::skip("nothing is closed to root");
    }
    use std::os::unix::fs::PermissionsExt as _;
    let log = Log::new();
    fs::set_permissions(log.directory(), fs::Permissions::from_mode(0o000)).expect("ours");
    said_no(&log.audit(&["verify"]).go().ends_with(125), "SK-R051");
    fs::set_permissions(log.directory(), fs::Permissions::from_mode(0o700)).expect("ours");
}
