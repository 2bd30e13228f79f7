//! Every rule of the default filter, issued as a real call: the answer is the one the rule file says,
//! and it is the filter's answer, because without the filter it differs wherever it can.

use std::collections::BTreeMap;

use stockade_escape_tests::{Sandbox, Verdict};
use stockade_proto::Layer;
use stockade_seccomp::{Action, RuleRow, filter};

/// No capability, not built in, no such family, type or protocol: what the kernel itself may say.
const REFUSED_BY_THE_KERNEL: [i32; 5] = [
    rustix::io::Errno::PERM.raw_os_error(),
    rustix::io::Errno::NOSYS.raw_os_error(),
    rustix::io::Errno::AFNOSUPPORT.raw_os_error(),
    rustix::io::Errno::SOCKTNOSUPPORT.raw_os_error(),
    rustix::io::Errno::PROTONOSUPPORT.raw_os_error(),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Returned,
    Failed(i32),
    Killed,
}

fn rows() -> Vec<&'static RuleRow> {
    filter("default").expect("the default filter").rules.iter().collect()
}

fn word(row: &RuleRow, noise: bool) -> String {
    let mut text = row.number.to_string();
    for (at, argument) in row.sample.iter().enumerate() {
        // The upper half of a 32-bit argument is the caller's to fill: it must change nothing.
        let index = u8::try_from(at).unwrap_or(0);
        let narrow = row
            .conditions
            .iter()
            .any(|one| one.arg == index && matches!(one.width, stockade_seccomp::Width::Bits32));
        let high = if noise && narrow { 0x7eed_beef_0000_0000 } else { 0 };
        text.push_str(&format!(":{}", argument | high));
    }
    text
}

/// All calls in one sandbox: the attacker issues each in a child of its own.
fn answers(sandbox: &Sandbox, rows: &[&RuleRow], noise: bool) -> BTreeMap<usize, Answer> {
    let words: Vec<String> = rows.iter().map(|row| word(row, noise)).collect();
    let ran = sandbox.run_attack(&format!("raw-many {}", words.join(" ")));
    Verdict::of(&ran).won();
    let text = ran.stdout_text();
    let mut found = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("ANSWER ")) {
        let parts: Vec<&str> = line.split(' ').collect();
        let [index, kind, value] = parts[..] else { panic!("{line:?}") };
        let answer = match kind {
            "ok" => Answer::Returned,
            "errno" => Answer::Failed(value.parse().expect("a number")),
            _ => Answer::Killed,
        };
        found.insert(index.parse().expect("a number"), answer);
    }
    assert_eq!(found.len(), rows.len(), "{ran}");
    found
}

fn expected(action: Action) -> Option<Answer> {
    match action {
        Action::Errno(0) => Some(Answer::Returned),
        Action::Errno(number) => Some(Answer::Failed(i32::from(number))),
        Action::KillProcess => Some(Answer::Killed),
        Action::Allow | Action::Notify => None,
    }
}

#[test]
fn each_rule_answers_as_written() {
    let rows = rows();
    for noise in [false, true] {
        let sandbox = Sandbox::new();
        let found = answers(&sandbox, &rows, noise);
        for (at, row) in rows.iter().enumerate() {
            if let Some(expected) = expected(row.action) {
                assert_eq!(
                    found[&at], expected,
                    "{} {:?} (noise {noise}): {}",
                    row.syscall, row.sample, row.reason
                );
            }
        }
    }
}

#[test]
fn without_the_filter_the_answers_differ() {
    let rows: Vec<&RuleRow> = rows().into_iter().filter(|row| expected(row.action).is_some()).collect();
    let sandbox = Sandbox::new().without(&[Layer::Seccomp]);
    let found = answers(&sandbox, &rows, false);
    let differs: Vec<&str> = rows
        .iter()
        .enumerate()
        .filter(|(at, row)| Some(&found[at]) != expected(row.action).as_ref())
        .map(|(_, row)| row.syscall)
        .collect();
    // A process without capabilities is told EPERM by the kernel itself for many of them, and ENOSYS for
    // what it was built without. The filter is a second wall there; for the others it is the only one.
    for name in ["clone3", "io_uring_setup", "keyctl", "socket", "ioctl"] {
        assert!(differs.contains(&name), "{name} is refused without the filter too: {differs:?}");
    }
    for (at, row) in rows.iter().enumerate() {
        let answer = &found[&at];
        let same = Some(answer) == expected(row.action).as_ref();
        let by_the_kernel = matches!(answer, Answer::Failed(errno) if REFUSED_BY_THE_KERNEL.contains(errno));
        assert!(
            !same || by_the_kernel,
            "{} {:?}: {answer:?} with and without the filter",
            row.syscall,
            row.sample
        );
    }
}
