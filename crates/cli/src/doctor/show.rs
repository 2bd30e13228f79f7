//! The findings for people and for programs.

use std::fmt::Write as _;
use std::io::Write as _;

use stockade_executor::Abort;
use stockade_proto::{Code, Fault};

use super::findings::{Finding, Report, State, Verdict};

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const GREEN: &str = "\x1b[1;32m";
const PLAIN: &str = "\x1b[0m";

/// Wide enough for `filesystem` and `enforced`.
const NAMES: usize = 10;
const STATES: usize = 8;
/// Below the detail.
const REMEDY: usize = NAMES + STATES + 4;

pub(super) fn json(report: &Report) -> Result<(), Abort> {
    let text = serde_json::to_string(report).map_err(|error| lost(&error))?;
    write(&format!("{text}\n"))
}

pub(super) fn text(report: &Report, verbose: bool) -> Result<(), Abort> {
    write(&rendered(report, verbose))
}

fn lost(error: &dyn std::fmt::Display) -> Abort {
    Fault::new(
        Code::OutputFailed,
        format!("the findings could not be written: {error}"),
        "Give doctor a stdout that takes them.",
    )
    .into()
}

fn write(text: &str) -> Result<(), Abort> {
    let mut stdout = anstream::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| lost(&error))
}

fn rendered(report: &Report, verbose: bool) -> String {
    let mut text = format!(
        "{BOLD}stockade {}{PLAIN}  Linux {}  uid {}  init {}\n",
        report.version,
        report.kernel,
        report.uid,
        report.init.as_deref().unwrap_or("not found")
    );
    let mut told = Vec::new();
    for finding in &report.layers {
        line(&mut text, finding);
        // Layers that fall for one reason have one remedy.
        if let Some(remedy) = finding.remedy.as_ref().filter(|remedy| !told.contains(remedy)) {
            text.push_str(&format!("{:REMEDY$}{BOLD}what to do{PLAIN}: {remedy}\n", ""));
            told.push(remedy);
        }
        if verbose {
            attempts(&mut text, finding);
        }
    }
    for note in &report.notes {
        text.push_str(&format!("{BOLD}note{PLAIN}: {note}\n"));
    }
    text.push_str(&conclusion(report));
    text
}

fn line(text: &mut String, finding: &Finding) {
    let colour = match finding.state {
        State::Enforced => GREEN,
        State::Partial => YELLOW,
        State::Missing => RED,
    };
    let state = finding.state.name();
    let detail = [finding.detail.clone(), proof(finding)]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    let head = match &finding.why {
        Some(why) if detail.is_empty() => why.clone(),
        Some(why) => format!("{detail}; {why}"),
        None => detail,
    };
    // Writing to a string can't fail.
    let written = writeln!(text, "{:NAMES$}  {colour}{state:STATES$}{PLAIN}  {head}", finding.layer.name());
    debug_assert!(written.is_ok());
}

/// `4 attempts work without it and are refused with it; not provable here: io-uring`
fn proof(finding: &Finding) -> String {
    let unprovable: Vec<&str> = finding
        .attempts
        .iter()
        .filter(|attempt| attempt.with == Verdict::Refused && !attempt.proven)
        .map(|attempt| attempt.name.as_str())
        .collect();
    let mut parts = Vec::new();
    match finding.proven() {
        0 => {}
        1 => parts.push("1 attempt proven to fail".to_owned()),
        proven => parts.push(format!("{proven} attempts proven to fail")),
    }
    if !unprovable.is_empty() {
        parts.push(format!("not provable here: {}", unprovable.join(", ")));
    }
    parts.join("; ")
}

fn attempts(text: &mut String, finding: &Finding) {
    for attempt in &finding.attempts {
        text.push_str(&format!(
            "{:NAMES$}  {DIM}{}: {} without, {} with ({}){PLAIN}\n",
            "",
            attempt.name,
            attempt.without.name(),
            attempt.with.name(),
            attempt.detail
        ));
    }
}

fn conclusion(report: &Report) -> String {
    if report.ok {
        return format!("{GREEN}The profile `default` can be enforced in full.{PLAIN}\n");
    }
    let short: Vec<&str> = report
        .layers
        .iter()
        .filter(|finding| finding.state != State::Enforced)
        .map(|finding| finding.layer.name())
        .collect();
    format!("{RED}The profile `default` can't be enforced in full{PLAIN}: {}\n", short.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::findings::Attempt;
    use stockade_proto::Layer;

    fn report() -> Report {
        let tried = vec![
            Attempt::new("io-uring", Verdict::Works, Verdict::Refused, "ENOSYS"),
            Attempt::new("keyring", Verdict::Refused, Verdict::Refused, "ENOSYS"),
        ];
        let layers = vec![
            Finding::standing(Layer::Seccomp, "filter default".to_owned(), tried),
            Finding::missing(Layer::Limits, ("no cgroups".to_owned(), "mount them".to_owned())),
        ];
        Report::new("6.12".to_owned(), 1000, Some("/usr/bin/stockade-init".to_owned()), layers)
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn one_line_per_layer_and_one_per_remedy() {
        let text = plain(&rendered(&report(), false));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[0].starts_with("stockade ") && lines[0].contains("uid 1000"));
        assert_eq!(
            lines[1],
            "seccomp     enforced  filter default; 1 attempt proven to fail; not provable here: keyring"
        );
        assert_eq!(lines[2], "limits      missing   no cgroups");
        assert_eq!(lines[3].trim(), "what to do: mount them");
        assert!(lines[4].contains("can't be enforced in full: limits"));
    }

    #[test]
    fn attempts_are_shown_on_request() {
        let text = plain(&rendered(&report(), true));
        assert!(text.contains("io-uring: works without, refused with (ENOSYS)"));
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let value = serde_json::to_value(report()).expect("plain words");
        for field in ["version", "kernel", "uid", "init", "ok", "layers", "notes"] {
            assert!(value.get(field).is_some(), "{field}");
        }
        let layer = &value["layers"][0];
        assert_eq!((&layer["layer"], &layer["state"]), (&"seccomp".into(), &"enforced".into()));
        assert!(layer["why"].is_null() && layer["remedy"].is_null());
        assert_eq!(layer["attempts"][1]["without"], "refused");
        assert_eq!(value["layers"][1]["remedy"], "mount them");
    }
}
