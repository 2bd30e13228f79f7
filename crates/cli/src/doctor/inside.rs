//! `stockade probe`: the program that doctor runs inside (and, for comparison, outside) the sandbox. Prints
//! one JSON line per attempt. Decides nothing: `examine` compares the two sides.

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use stockade_executor::Abort;
use stockade_proto::{Code, Fault, Layer, Refusal};

use super::attempts::{ATTEMPTS, Targets};

/// Twice the limit that it runs under.
pub(super) const MEMORY_BYTES: usize = 128 << 20;
/// Twice the limit that they run under.
pub(super) const PROCESSES: usize = 32;

/// They only wait.
const STACK: usize = 64 << 10;

pub(super) const MEMORY: &str = "memory-past-its-limit";
pub(super) const MANY_PROCESSES: &str = "processes-past-their-limit";

#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// End well
    Nothing,
    /// Go for every target; they are one JSON object
    Attempts { targets: String },
    /// Use more memory than the limit
    Memory,
    /// Start more threads, which count as processes, than the limit
    Processes,
}

/// One line of the probe's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) name: String,
    pub(super) layer: Layer,
    pub(super) refused: bool,
    pub(super) detail: String,
}

pub(crate) fn probe(arguments: &ProbeArguments) -> Result<u8, Abort> {
    match &arguments.what {
        What::Nothing => Ok(0),
        What::Attempts { targets } => attempts(targets),
        What::Memory => {
            let held = use_memory(MEMORY_BYTES);
            say(MEMORY, Layer::Limits, Ok(format!("used {} MiB", held >> 20)))
        }
        What::Processes => {
            let started = start_threads(PROCESSES);
            let detail = format!("{started} of {PROCESSES} started");
            say(MANY_PROCESSES, Layer::Limits, if started < PROCESSES { Err(detail) } else { Ok(detail) })
        }
    }
}

fn attempts(targets: &str) -> Result<u8, Abort> {
    let targets: Targets = serde_json::from_str(targets).map_err(|error| {
        Refusal::new(
            Code::OptionInvalid,
            format!("the probe's targets can't be read: {error}"),
            "Run `stockade doctor`, which starts the probe itself.",
        )
    })?;
    for attempt in ATTEMPTS {
        say(attempt.name, attempt.layer, (attempt.go)(&targets))?;
    }
    Ok(0)
}

fn say(name: &str, layer: Layer, tried: Result<String, String>) -> Result<u8, Abort> {
    let refused = tried.is_err();
    let (Ok(detail) | Err(detail)) = tried;
    let answer = Answer { name: name.to_owned(), layer, refused, detail };
    let text = serde_json::to_string(&answer).map_err(io::Error::other);
    text.and_then(|text| writeln!(io::stdout(), "{text}")).map(|()| 0).map_err(|error| {
        Fault::new(Code::OutputFailed, format!("the answer could not be written: {error}"), "Try again.")
            .into()
    })
}

fn use_memory(bytes: usize) -> usize {
    const STEP: usize = 1 << 20;
    let mut held = Vec::with_capacity(bytes / STEP);
    while held.len() * STEP < bytes {
        // Not zero: fresh pages of zeros are not memory yet.
        held.push(black_box(vec![1_u8; STEP]));
    }
    held.iter().map(Vec::len).sum()
}

/// How many of `wanted` could be started while all the earlier ones are alive.
fn start_threads(wanted: usize) -> usize {
    // Held until the end: a thread waits on its receiver for as long as its sender lives.
    let mut held: Vec<(Sender<()>, JoinHandle<()>)> = Vec::new();
    for _ in 0..wanted {
        let (hold, wait) = channel::<()>();
        let made = std::thread::Builder::new().stack_size(STACK).spawn(move || match wait.recv() {
            Ok(()) | Err(_) => {}
        });
        match made {
            Ok(thread) => held.push((hold, thread)),
            Err(_) => break,
        }
    }
    held.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_really_held() {
        assert_eq!(use_memory(3 << 20), 3 << 20);
    }

    #[test]
    fn threads_are_counted() {
        assert_eq!(start_threads(3), 3);
    }
}
