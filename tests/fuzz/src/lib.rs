//! What must hold for any bytes that reach a parser of the service: no panic, bounded output, what was read is written
//! and read again as the same, and what is refused gets a sentence that is short and safe to show.
//!
//! Each room has one `check` for one target. The suite beside this replays the kept corpus through them and then
//! mutates it, on any toolchain; the targets in `fuzz/` give them to libFuzzer. An input that a fuzzer finds goes
//! into `corpus/`, under the name of its target.

#![expect(clippy::panic, reason = "a property that does not hold is told by panicking")]

mod body;
mod configuration;
pub mod mutate;
mod output;
mod profile;
mod query;
mod rpc;

use std::fmt::Debug;

use stockade_policy::{ProfileError, render};
use stockade_proto::Bytes;

/// One parser and what must hold for it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Of the corpus' directory and of the libFuzzer target.
    pub name: &'static str,
    pub check: fn(&[u8]),
}

/// Every target, one row each.
pub const TARGETS: [Target; 7] = [
    Target { name: "rpc", check: rpc::check },
    Target { name: "execute", check: body::check_execute },
    Target { name: "start", check: body::check_start },
    Target { name: "query", check: query::check },
    Target { name: "configuration", check: configuration::check },
    Target { name: "profile", check: profile::check },
    Target { name: "output", check: output::check },
];

/// Runs the target of that name.
pub fn check(name: &str, bytes: &[u8]) {
    match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => (target.check)(bytes),
        None => panic!("there is no target {name}"),
    }
}

/// Bytes of one sentence that a person is shown. Ours have less than 400 characters; what is quoted in them may have
/// been escaped.
const SENTENCE: usize = 4096;

/// A sentence of ours about somebody else's bytes: there is one, it ends, and a terminal can be shown it.
#[track_caller]
fn sentence(text: &str) {
    assert!(!text.is_empty(), "nothing is said");
    seen(text);
}

/// A part of one, which may be a name that is empty.
#[track_caller]
fn seen(text: &str) {
    assert!(text.len() <= SENTENCE, "{} bytes are said: {}", text.len(), Bytes::from(text));
    assert!(!text.contains(Bytes::is_unseen), "unseen characters are said: {}", Bytes::from(text));
}

/// The refusal of a text, and the picture of the place that it points at.
#[track_caller]
fn refusal(error: &ProfileError, text: &str) {
    sentence(&error.refusal.message);
    sentence(&error.refusal.remedy);
    if let Some(origin) = &error.refusal.origin {
        let lines = text.split('\n').count();
        let line = usize::try_from(origin.line).unwrap_or(usize::MAX);
        assert!((1..=lines).contains(&line), "line {line} of {lines}");
        let width = text.split('\n').nth(line - 1).map_or(0, |line| line.chars().count());
        let column = usize::try_from(origin.column).unwrap_or(usize::MAX);
        assert!((1..=width + 1).contains(&column), "column {column} of {width}");
    }
    let picture = render(error, false);
    assert!(picture.len() <= 4 * SENTENCE, "{} bytes are drawn", picture.len());
    picture.lines().filter(|line| !line.is_empty()).for_each(sentence);
}

/// What can't fail here, whatever the bytes are.
#[track_caller]
fn must<T, E: Debug>(result: Result<T, E>, what: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error:?}"),
    }
}
