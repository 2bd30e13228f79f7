//! Judges a guest's report: did every suite report as every user, did every test pass, and was the guest
//! what its table says it is? Pure; it only makes sentences, `mod.rs` prints them.

use super::User;
use super::kernel::Kernel;
use super::payload::Suite;
use super::report::{Report, Tally};

/// What the limits of one execution need, and a delegated cgroup must therefore offer.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// What was asked of one guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) users: &'a [User],
    pub(crate) suites: &'a [Suite],
    /// With a filter, a suite may rightly have nothing to do.
    pub(crate) filtered: bool,
}

/// How one suite did as one user, if all of its executables have ended; the second is what is wrong.
pub(crate) fn suite(report: &Report, suite: &Suite, user: &str) -> Option<(Tally, Vec<String>)> {
    let mut total = Tally::default();
    let mut wrong = Vec::new();
    for executable in &suite.executables {
        let mut frames = report.frames.iter();
        let frame = frames.find(|frame| frame.user == user && frame.executable == *executable)?;
        let code = frame.code?;
        match frame.tally {
            Some(tally) => total = total.plus(tally),
            None => wrong.push(format!("{executable} ended with {} before it had a result", meaning(code))),
        }
        if code != 0 && frame.tally.is_some_and(|tally| tally.failed == 0) {
            wrong.push(format!("{executable} ended with {} after all its tests had passed", meaning(code)));
        }
    }
    if total.failed > 0 {
        wrong.push(format!("{} failed", total.failed));
    }
    Some((total, wrong))
}

/// Everything that is wrong with a finished report; empty is success.
pub(crate) fn judge(report: &Report, asked: Asked<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for user in asked.users {
        match report.facts.iter().find(|(name, _)| name == user.name()) {
            Some((_, facts)) => wrong.extend(
                guest(facts, *user, asked.kernel)
                    .into_iter()
                    .map(|sentence| format!("{}: {sentence}", user.name())),
            ),
            None => wrong.push(format!("{}: the guest never said what it is", user.name())),
        }
        for each in asked.suites {
            let place = format!("{} {}", user.name(), each.name);
            match suite(report, each, user.name()) {
                None => wrong.push(format!("{place}: did not report")),
                Some((tally, sentences))
                    if sentences.is_empty() && tally == Tally::default() && !asked.filtered =>
                {
                    wrong.push(format!("{place}: ran no test at all"));
                }
                Some((_, sentences)) => {
                    wrong.extend(sentences.into_iter().map(|sentence| format!("{place}: {sentence}")));
                }
            }
        }
    }
    wrong
}

fn guest(facts: &str, user: User, kernel: Kernel) -> Vec<String> {
    let fact = |name: &str| {
        facts.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or("unknown")
    };
    let mut wrong = Vec::new();
    let mut expect = |name: &str, expected: &str| {
        if fact(name) != expected {
            wrong.push(format!("{name} is {} where {expected} is expected", fact(name)));
        }
    };
    expect("landlock", kernel.landlock_abi());
    expect("namespaces", "made");
    expect("uid", if user == User::Root { "0" } else { "1000" });
    match user {
        User::Root => {}
        User::Ordinary => expect("child", "limited"),
        // A login session's cgroup belongs to root: exactly that is the point of testing in one.
        User::Session => expect("child", "refused"),
    }
    let offered = fact("controllers");
    for controller in CONTROLLERS {
        if !offered.split(',').any(|name| name == controller) {
            wrong.push(format!("controller {controller} is not offered, only {offered}"));
        }
    }
    if !fact("kernel").starts_with(&format!("{}.", kernel.name())) {
        wrong.push(format!("the kernel is {}", fact("kernel")));
    }
    wrong
}

/// An exit code in words: `timeout` and a signal each have theirs.
fn meaning(code: i32) -> String {
    match code {
        124 => "a timeout (124)".into(),
        129..=192 => format!("signal {} ({code})", code - 128),
        _ => format!("code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: &str = "uid=1000 kernel=6.1.0-50-cloud-amd64 landlock=2 controllers=cpuset,cpu,memory,pids child=limited namespaces=made cgroup=/a";

    fn suites() -> Vec<Suite> {
        vec![Suite { name: "escape".into(), executables: vec!["a-1".into()] }]
    }

    fn asked(suites: &[Suite]) -> Asked<'_> {
        Asked { kernel: Kernel::V6_1, users: &[User::Ordinary], suites, filtered: false }
    }

    fn report(facts: &str, result: &str, code: &str) -> Report {
        let mut report = Report::new("@m");
        report.line(&format!("@m FACTS ordinary {facts}"));
        report.line("@m BEGIN ordinary escape a-1");
        report.line(&format!("test result: {result}; 0 measured; 0 filtered out; finished in 0.00s"));
        report.line(&format!("@m END ordinary escape a-1 {code}"));
        report
    }

    #[test]
    fn a_clean_report_is_success() {
        let wrong = judge(&report(FACTS, "ok. 2 passed; 0 failed; 0 ignored", "0"), asked(&suites()));
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn failures_crashes_silence_and_emptiness_are_wrong() {
        let suites = suites();
        for (result, code, sentence) in [
            ("FAILED. 1 passed; 1 failed; 0 ignored", "101", "1 failed"),
            ("ok. 1 passed; 0 failed; 0 ignored", "139", "signal 11"),
            ("ok. 0 passed; 0 failed; 0 ignored", "0", "no test at all"),
            ("garbled", "124", "timeout"),
        ] {
            let wrong = judge(&report(FACTS, result, code), asked(&suites)).join("\n");
            assert!(wrong.contains(sentence), "{result}: {wrong}");
        }
        let wrong = judge(&Report::new("@m"), asked(&suites)).join("\n");
        assert!(wrong.contains("did not report") && wrong.contains("never said"), "{wrong}");
    }

    #[test]
    fn a_guest_that_is_not_what_it_should_be_is_wrong() {
        let suites = suites();
        for (from, to, sentence) in [
            ("landlock=2", "landlock=6", "landlock is 6"),
            ("cpu,", "", "controller cpu is not offered"),
            ("child=limited", "child=made", "child is made"),
            ("kernel=6.1.", "kernel=6.12.", "the kernel is 6.12."),
        ] {
            let facts = FACTS.replace(from, to);
            let wrong =
                judge(&report(&facts, "ok. 2 passed; 0 failed; 0 ignored", "0"), asked(&suites)).join("\n");
            assert!(wrong.contains(sentence), "{to}: {wrong}");
        }
    }
}
