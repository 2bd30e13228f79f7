//! Replays the kept corpus of every target, then inputs that are nearly those. What fails is printed as it can be kept.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests, and what failed is printed")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use stockade_fuzz_tests::mutate::{Random, mutate};
use stockade_fuzz_tests::{TARGETS, check};

/// Of mutated inputs for each target: some seconds where the machine is slow.
const INPUTS: u64 = 5000;
/// Where each is a file that is read many times.
const FILES: u64 = 1000;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn kept(name: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory().join(name)).unwrap();
    let mut files = entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    // The seed means the same inputs only if the files come in one order.
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn survives(name: &str, input: &[u8], what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(name, input))) {
        eprintln!("{name}, {what}:\nprintf '%b' '{}'", printable(input));
        resume_unwind(panic);
    }
}

/// For the shell's `printf`.
fn printable(input: &[u8]) -> String {
    let plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'\'' && byte != b'\\';
    let shown = |byte: &u8| match plain(*byte) {
        true => char::from(*byte).to_string(),
        false => format!("\\0{byte:03o}"),
    };
    input.iter().map(shown).collect()
}

fn replay(name: &str, inputs: u64) {
    let corpus = kept(name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    for (at, input) in corpus.iter().enumerate() {
        survives(name, input, &format!("file {at}"));
    }
    let corpus = corpus.iter().map(Vec::as_slice).collect::<Vec<_>>();
    for seed in 0..inputs {
        survives(name, &mutate(&mut Random::new(seed), &corpus), &format!("seed {seed}"));
    }
}

#[test]
fn rpc() {
    replay("rpc", INPUTS);
}

#[test]
fn execute() {
    replay("execute", INPUTS);
}

#[test]
fn start() {
    replay("start", INPUTS);
}

#[test]
fn query() {
    replay("query", INPUTS);
}

#[test]
fn configuration() {
    replay("configuration", INPUTS);
}

#[test]
fn profile() {
    replay("profile", INPUTS);
}

#[test]
fn output() {
    replay("output", FILES);
}

/// A target without a test here, a directory or a file for libFuzzer would never run.
#[test]
fn every_target_is_replayed_and_has_a_corpus_and_a_fuzzer() {
    let fuzzers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    for target in TARGETS {
        let name = target.name;
        assert!(include_str!("main.rs").contains(&format!("fn {name}() {{")), "{name} has no test");
        assert!(directory().join(name).is_dir(), "{name} has no corpus");
        assert!(fuzzers.join(format!("{name}.rs")).is_file(), "{name} has no fuzzer");
    }
    let directories = std::fs::read_dir(directory()).unwrap().count();
    assert_eq!(directories, TARGETS.len(), "a corpus is nobody's");
}
