//! The sentences a person reads on stderr: one for what happened, one for what to do next.

use std::io::{IsTerminal, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stockade_executor::Abort;
use stockade_proto::{Blocked, Code, ExecutionResult, Outcome, PublishedPort, Unreached};

const BOLD_RED: &str = "\x1b[1;31m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// A pipe that is ready takes this much without blocking.
const PROMISED: usize = 4096;
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// stderr may be closed, or a pipe that nobody reads; there is nobody left to tell then, and an end to come to.
fn line(text: &str) {
    let stderr = std::io::stderr();
    for part in format!("{text}\n").as_bytes().chunks(PROMISED) {
        let mut room = [PollFd::new(&stderr, PollFlags::OUT)];
        if !matches!(poll(&mut room, Some(&PATIENCE)), Ok(1)) {
            return;
        }
        match anstream::stderr().write_all(part) {
            Ok(()) => {}
            Err(_) => return,
        }
    }
}

pub(crate) fn exit_code(abort: &Abort) -> u8 {
    match abort {
        Abort::Refusal(refusal) => refusal.code.exit(),
        Abort::Profile(error) => error.refusal.code.exit(),
        Abort::Fault(fault) => fault.code.exit(),
    }
}

pub(crate) fn abort(abort: &Abort) {
    let (kind, message, remedy) = match abort {
        Abort::Refusal(refusal) => ("refused", refusal.to_string(), &refusal.remedy),
        Abort::Profile(error) => {
            return line(stockade_policy::render(error, true).trim_end());
        }
        Abort::Fault(fault) => ("failed", fault.to_string(), &fault.remedy),
    };
    line(&format!("{BOLD_RED}stockade {kind}{PLAIN}: {message}"));
    if !remedy.is_empty() {
        line(&format!("  {BOLD}what to do{PLAIN}: {remedy}"));
    }
}

pub(crate) fn warning(text: &str) {
    line(&format!("{BOLD}stockade{PLAIN}: {text}"));
}

pub(crate) fn published(port: PublishedPort) {
    warning(&format!("{} reaches port {} inside", port.host, port.port));
}

/// Nothing to say about a command that ended by itself; one line otherwise.
pub(crate) fn outcome(result: &ExecutionResult) {
    let text = match &result.outcome {
        Outcome::Exited { .. } | Outcome::Signaled { .. } | Outcome::Cancelled { .. } => None,
        Outcome::TimedOut => Some(format!("timed out after {}", seconds(result.usage.wall_ms))),
        Outcome::OomKilled => Some(format!(
            "killed: out of memory (peak {}); raise `memory` under [limits] of the profile {}",
            megabytes(result.usage.memory_peak_bytes),
            result.profile
        )),
        Outcome::Limit { which } => {
            Some(format!("ended at its limit: {which}; see [limits] of the profile {}", result.profile))
        }
        Outcome::LaunchFailed { stage, message, .. } => Some(format!("{message} [stage {stage}]")),
        Outcome::Lost { message } => Some(format!("lost: {message}")),
    };
    if let Some(text) = text {
        warning(&text);
    }
    if result.leaked_descendants > 0 && std::io::stderr().is_terminal() {
        warning(&format!("{} background process(es) were ended with the command", result.leaked_descendants));
    }
    blocked(&result.blocked);
    unreached(&result.unreached);
    for fault in &result.cleanup_faults {
        warning(&format!("clean-up: {fault}"));
    }
}

/// Lines of each kind in the footer.
const SHOWN: usize = 5;

/// The footer: what was refused, why, and what to write to allow it. A long list is for `--json`.
fn blocked(blocked: &[Blocked]) {
    for entry in blocked.iter().take(SHOWN) {
        let times = if entry.count > 1 { format!(" ({} times)", entry.count) } else { String::new() };
        warning(&format!("blocked {} {}{times}: {}", entry.operation, entry.target, entry.reason));
        let mut lines = entry.guidance.lines();
        if let Some(first) = lines.next() {
            line(&format!("  {BOLD}to allow it{PLAIN}: {first}"));
        }
        lines.for_each(|text| line(&format!("               {text}")));
    }
    if blocked.len() > SHOWN {
        warning(&format!("and {} more; --json lists them all", blocked.len() - SHOWN));
    }
}

/// Inside it looked like any connection that fails: who reads this has no other way to know that no wall was in it.
fn unreached(unreached: &[Unreached]) {
    for Unreached { host, port, reason, count } in unreached.iter().take(SHOWN) {
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        warning(&format!("{host}:{port} is allowed, and this host could not reach it{times}: {reason}"));
    }
    if unreached.len() > SHOWN {
        warning(&format!("and {} more; --json lists them all", unreached.len() - SHOWN));
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people, to one digit")]
fn seconds(millis: u64) -> String {
    format!("{:.1} s", millis as f64 / 1000.0)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

pub(crate) fn codes() -> Result<u8, Abort> {
    let mut text = String::from("code     exit  http  meaning\n");
    for row in Code::TABLE {
        text.push_str(&format!("{}  {:>4}  {:>4}  {}\n", row.id, row.exit, row.http_status, row.meaning));
    }
    match anstream::stdout().write_all(text.as_bytes()) {
        Ok(()) | Err(_) => Ok(0),
    }
}
