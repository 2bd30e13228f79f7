//! `stockade show`: all that is on record about one execution.

use clap::Args;
use stockade_executor::Abort;
use stockade_proto::door::{self, Ending, Execution, method};
use stockade_proto::link::NotRun;
use stockade_proto::{Blocked, Enforcement, ExecutionResult, Outcome, State, StreamTotals};

use super::door::SOON;
use super::text::{between, bytes, clean, exact, moment, now, span};
use super::{OneExecution, list, output};

/// Wide enough for `workspace` and `filesystem`.
const NAMES: usize = 10;
const STATES: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The record as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: OneExecution,
}

pub(super) async fn show(arguments: &ShowArguments) -> Result<u8, Abort> {
    let (door, id) = arguments.which.reach().await?;
    let execution: Execution = door.ask(method::GET, &door::Which { id }, SOON).await?;
    let shown = if arguments.json {
        output::print_json(&execution)
    } else {
        output::print(&rendered(&execution, now()))
    };
    shown.map(|_| 0)
}

/// Lines of a name and what there is to say.
#[derive(Debug, Default)]
struct Sheet(String);

impl Sheet {
    fn line(&mut self, name: &str, text: &str) {
        self.0.push_str(format!("{name:NAMES$}  {text}").trim_end());
        self.0.push('\n');
    }

    /// What others wrote, with its lines, behind a few words of ours.
    fn more(&mut self, head: &str, text: &str) {
        let mut head = head.to_owned();
        for line in text.lines() {
            self.line("", &format!("{head}{}", clean(line)));
            head = " ".repeat(head.len());
        }
    }
}

fn rendered(execution: &Execution, now: i64) -> String {
    let mut sheet = Sheet::default();
    sheet.line("execution", &clean(&execution.id));
    sheet.line("command", &clean(&execution.command));
    sheet.line("workspace", &clean(&execution.workspace));
    sheet.line("profile", &clean(&execution.profile));
    sheet
        .line("asked by", &format!("{} at the door {}", clean(&execution.principal), clean(&execution.door)));
    times(&mut sheet, execution, now);
    match &execution.ending {
        Some(Ending::Result(result)) => of_result(&mut sheet, execution, result),
        Some(Ending::NotRun(why)) => not_run(&mut sheet, why),
        None => {}
    }
    if let Some(code) = &execution.code {
        let class = execution.class.as_deref().map(|class| format!(", {}", clean(class))).unwrap_or_default();
        sheet.line("code", &format!("{}{class}", clean(code)));
    }
    if let Some(Ending::Result(result)) = &execution.ending {
        result.enforcement.iter().for_each(|layer| enforcement(&mut sheet, layer));
        result.blocked.iter().for_each(|entry| blocked(&mut sheet, entry));
        for traffic in &result.traffic {
            let (sent, received) = (bytes(traffic.sent_bytes), bytes(traffic.received_bytes));
            let host = clean(&traffic.host);
            sheet.line("reached", &format!("{host}:{}: {sent} sent, {received} received", traffic.port));
        }
        for unreached in &result.unreached {
            let (host, reason) = (clean(&unreached.host), clean(&unreached.reason));
            sheet.line("unreached", &format!("{host}:{}: {reason}", unreached.port));
        }
        result.cleanup_faults.iter().for_each(|fault| sheet.line("clean-up", &clean(fault)));
    }
    sheet.0
}

fn times(sheet: &mut Sheet, execution: &Execution, now: i64) {
    let Execution { created_ms, started_ms, ended_ms, .. } = *execution;
    let ago = span(between(ended_ms.or(started_ms).unwrap_or(created_ms), now));
    let state = match execution.state {
        door::State::Ended => format!("{}, {ago} ago", list::state(execution)),
        door::State::Queued | door::State::Running => format!("{} for {ago}", list::state(execution)),
    };
    sheet.line("state", &state);
    sheet.line("created", &moment(created_ms));
    if let Some(started) = started_ms {
        sheet.line("started", &format!("{}, after {}", moment(started), exact(between(created_ms, started))));
    }
    if let Some(ended) = ended_ms {
        let ran = started_ms.map(|started| format!(", after {}", exact(between(started, ended))));
        sheet.line("ended", &format!("{}{}", moment(ended), ran.unwrap_or_default()));
    }
}

fn of_result(sheet: &mut Sheet, execution: &Execution, result: &ExecutionResult) {
    sheet.line("outcome", &format!("{}; exit code {}", outcome(&result.outcome), result.exit_code));
    let usage = &result.usage;
    sheet.line(
        "usage",
        &format!(
            "{} of wall time, {} of processor time, {} of memory at the peak",
            exact(usage.wall_ms),
            exact(usage.cpu_user_ms.saturating_add(usage.cpu_system_ms)),
            bytes(usage.memory_peak_bytes)
        ),
    );
    sheet.line("stdout", &stream(execution.stdout_bytes, &result.stdout));
    sheet.line("stderr", &stream(execution.stderr_bytes, &result.stderr));
    if result.truncated {
        sheet.line("", "not all of the output was kept");
    }
    if result.leaked_descendants > 0 {
        let left = result.leaked_descendants;
        sheet.line("", &format!("{left} background process(es) were ended with the command"));
    }
    for limit in &result.limits_hit {
        sheet.line("limit", &format!("{limit} was hit"));
    }
}

fn stream(written: u64, totals: &StreamTotals) -> String {
    let mut text = bytes(written.max(totals.bytes));
    if totals.dropped > 0 {
        text.push_str(&format!(", {} of them beyond the limit", bytes(totals.dropped)));
    }
    if totals.redactions > 0 {
        text.push_str(&format!(", {} secret(s) redacted", totals.redactions));
    }
    text
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited { code: 0 } => "exited".to_owned(),
        Outcome::Exited { code } => format!("exited with {code}"),
        Outcome::Signaled { signal } => format!("ended by signal {signal}"),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::Cancelled { .. } => "stopped".to_owned(),
        Outcome::OomKilled => "killed: out of memory".to_owned(),
        Outcome::Limit { which } => format!("ended at its limit: {which}"),
        Outcome::LaunchFailed { stage, message, .. } => {
            format!("not started: {} [stage {}]", clean(message), clean(stage))
        }
        Outcome::Lost { message } => format!("lost: {}", clean(message)),
    }
}

fn not_run(sheet: &mut Sheet, why: &NotRun) {
    let (kind, text, remedy) = match why {
        NotRun::Refusal(refusal) => ("refused", refusal.to_string(), &refusal.remedy),
        NotRun::Fault(fault) => ("failed", fault.to_string(), &fault.remedy),
    };
    sheet.line("outcome", &format!("{kind}: {}", clean(&text)));
    sheet.more("what to do: ", remedy);
}

fn enforcement(sheet: &mut Sheet, layer: &Enforcement) {
    let state = match layer.state {
        State::Enforced => "enforced",
        State::Missing => "missing",
        State::Off => "off",
    };
    sheet.line(layer.layer.name(), &format!("{state:STATES$}  {}", clean(&layer.detail)));
}

fn blocked(sheet: &mut Sheet, entry: &Blocked) {
    let Blocked { operation, target, count, reason, guidance, .. } = entry;
    let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
    sheet.line("blocked", &format!("{} {target}{times}: {}", clean(operation), clean(reason)));
    sheet.more("to allow it: ", guidance);
}

#[cfg(test)]
pub(in crate::client) mod tests {
    use stockade_proto::{Bytes, Code, Fault, HostTraffic, Layer, LimitKind, Usage};

    use super::*;

    fn result() -> ExecutionResult {
        ExecutionResult {
            execution: "0-1".into(),
            profile: "default".into(),
            command: vec![Bytes::from("make")],
            outcome: Outcome::Exited { code: 3 },
            exit_code: 3,
            usage: Usage { wall_ms: 1500, cpu_user_ms: 900, cpu_system_ms: 150, memory_peak_bytes: 5 << 20 },
            stdout: StreamTotals { bytes: 10, dropped: 4, redactions: 1 },
            stderr: StreamTotals::default(),
            truncated: true,
            leaked_descendants: 2,
            limits_hit: vec![LimitKind::Processes],
            enforcement: vec![Enforcement {
                layer: Layer::Landlock,
                state: State::Enforced,
                detail: "Landlock ABI 7".into(),
            }],
            blocked: vec![Blocked {
                layer: Some(Layer::Network),
                operation: "resolve".into(),
                target: Bytes::from("example.org"),
                rule: None,
                reason: "no rule allows it".into(),
                guidance: "[egress]\nallow = [\"example.org\"]".into(),
                count: 2,
            }],
            traffic: vec![HostTraffic {
                host: "files.example".into(),
                port: 443,
                connections: 1,
                sent_bytes: 100,
                received_bytes: 2048,
            }],
            unreached: Vec::new(),
            published: Vec::new(),
            cleanup_faults: vec!["a cgroup stays".into()],
        }
    }

    /// One that exited with 3.
    pub(in crate::client) fn execution() -> Execution {
        Execution {
            id: "0-1".into(),
            principal: "uid:7".into(),
            door: "socket".into(),
            profile: "default".into(),
            command: "make test".into(),
            workspace: "/work".into(),
            state: door::State::Ended,
            created_ms: 1000,
            started_ms: Some(1500),
            ended_ms: Some(3000),
            stdout_bytes: 6,
            stderr_bytes: 0,
            code: None,
            class: None,
            ending: Some(Ending::Result(Box::new(result()))),
        }
    }

    #[test]
    fn all_that_is_known_of_a_result_is_shown() {
        let failed =
            Execution { code: Some("UZ-EXEC-010".into()), class: Some("policy_deny".into()), ..execution() };
        let expected = "\
execution   0-1
command     make test
workspace   /work
profile     default
asked by    uid:7 at the door socket
state       ended, 57 s ago
created     1970-01-01T00:00:01.000Z
started     1970-01-01T00:00:01.500Z, after 0.500 s
ended       1970-01-01T00:00:03.000Z, after 1.500 s
outcome     exited with 3; exit code 3
usage       1.500 s of wall time, 1.050 s of processor time, 5 MiB of memory at the peak
stdout      10 bytes, 4 bytes of them beyond the limit, 1 secret(s) redacted
stderr      0 bytes
            not all of the output was kept
            2 background process(es) were ended with the command
limit       processes was hit
code        UZ-EXEC-010, policy_deny
landlock    enforced  Landlock ABI 7
blocked     resolve example.org (2 times): no rule allows it
            to allow it: [egress]
                         allow = [\"example.org\"]
reached     files.example:443: 100 bytes sent, 2 KiB received
clean-up    a cgroup stays
";
        assert_eq!(rendered(&failed, 60_000), expected);
    }

    #[test]
    fn what_runs_and_what_did_not_run_have_less_to_show() {
        let running = Execution { state: door::State::Running, ended_ms: None, ending: None, ..execution() };
        let shown = rendered(&running, 62_000);
        assert!(shown.contains("state       running for 1 min\n"), "{shown}");
        assert!(!shown.contains("outcome") && !shown.contains("ended"), "{shown}");
        let why = NotRun::Fault(Fault::new(Code::ExecutorLost, "the executor died\u{1b}", "Try again."));
        let shown = rendered(&Execution { ending: Some(Ending::NotRun(why)), ..execution() }, 62_000);
        let outcome =
            "outcome     failed: the executor died\\u{1b} [SK-F010]\n            what to do: Try again.\n";
        assert!(shown.contains(outcome), "{shown}");
    }

    #[test]
    fn every_outcome_is_a_sentence() {
        for (one, sentence) in [
            (Outcome::Exited { code: 0 }, "exited"),
            (Outcome::Signaled { signal: 9 }, "ended by signal 9"),
            (Outcome::TimedOut, "timed out"),
            (Outcome::Cancelled { by: stockade_proto::Cancel::Terminate }, "stopped"),
            (Outcome::OomKilled, "killed: out of memory"),
            (Outcome::Limit { which: LimitKind::OutputBytes }, "ended at its limit: output-bytes"),
            (
                Outcome::LaunchFailed { stage: "exec".into(), errno: 2, message: "x: no such file".into() },
                "not started: x: no such file [stage exec]",
            ),
            (Outcome::Lost { message: "init died".into() }, "lost: init died"),
        ] {
            assert_eq!(outcome(&one), sentence);
        }
    }
}
