//! What was measured, as rows with a bar each where there is one, printed as Markdown and stored as JSON.

use super::peers::Absent;
use serde::Serialize;
use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unit {
    Micros,
    /// Shown as they are: calls, not programs.
    SingleMicros,
    GigabytesPerSecond,
    Bytes,
    Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Sense {
    Most,
    Least,
}

/// What a figure is held to: the ratio where the row has one, else the figure itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Bar {
    name: &'static str,
    sense: Sense,
    goal: f64,
}

impl Bar {
    pub(super) fn most(name: &'static str, goal: f64) -> Self {
        Self { name, sense: Sense::Most, goal }
    }

    pub(super) fn least(name: &'static str, goal: f64) -> Self {
        Self { name, sense: Sense::Least, goal }
    }

    fn holds(&self, value: f64) -> bool {
        match self.sense {
            Sense::Most => value <= self.goal,
            Sense::Least => value >= self.goal,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    what: String,
    median: f64,
    p90: Option<f64>,
    unit: Unit,
    /// To the bare thing, of the same run.
    ratio: Option<f64>,
    bar: Option<Bar>,
    pass: Option<bool>,
}

impl Row {
    pub(super) fn plain(what: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self { what: what.into(), median: value, p90: None, unit, ratio: None, bar: None, pass: None }
    }

    pub(super) fn spread(self, p90: f64) -> Self {
        Self { p90: Some(p90), ..self }
    }

    pub(super) fn against(self, base: f64) -> Self {
        Self { ratio: Some(self.median / base), ..self }
    }

    pub(super) fn held_to(mut self, bar: Bar) -> Self {
        self.pass = Some(bar.holds(self.ratio.unwrap_or(self.median)));
        self.bar = Some(bar);
        self
    }

    fn markdown(&self) -> String {
        let dash = || "–".to_owned();
        let bar = self.bar.as_ref().map_or_else(dash, |bar| {
            let sign = match bar.sense {
                Sense::Most => '≤',
                Sense::Least => '≥',
            };
            let goal =
                if self.ratio.is_some() { format!("{}", bar.goal) } else { shown(bar.goal, self.unit) };
            format!("{} {sign} {goal}", bar.name)
        });
        let verdict = match self.pass {
            Some(true) => "pass",
            Some(false) => "**miss**",
            None => "",
        };
        format!(
            "| {} | {} | {} | {} | {bar} | {verdict} |",
            self.what,
            shown(self.median, self.unit),
            self.p90.map_or_else(dash, |value| shown(value, self.unit)),
            self.ratio.map_or_else(dash, |ratio| format!("{ratio:.2}")),
        )
    }
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Micros => format!("{:.2} ms", value / 1e3),
        Unit::SingleMicros => format!("{value:.2} µs"),
        Unit::GigabytesPerSecond => format!("{value:.2} GB/s"),
        Unit::Bytes => format!("{:.2} MB", value / 1e6),
        Unit::Count => format!("{value}"),
    }
}

/// The circumstances, without which the times say nothing.
#[derive(Debug, Serialize)]
struct Host {
    kernel: String,
    cpus: usize,
    /// Of the last minute, when the run began: above the number of CPUs, trust nothing.
    load: String,
    /// Percent of the time in which something wanted to run, and the hypervisor ran somebody else.
    stolen: f64,
}

/// What `/proc/stat` has counted since the machine started, in ticks.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    used: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Self {
        Self::of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(stat: &str) -> Self {
        let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        match fields[..] {
            [user, nice, system, _idle, _waiting, hard, soft, stolen, ..] => {
                Self { used: user + nice + system + hard + soft, stolen }
            }
            _ => Self::default(),
        }
    }

    /// Percent of the wanted time that was stolen since then.
    fn stolen_since(self, then: Self) -> f64 {
        let (used, stolen) = (self.used - then.used, self.stolen - then.stolen);
        if used + stolen == 0 { 0.0 } else { 100.0 * stolen as f64 / (used + stolen) as f64 }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    quick: bool,
    host: Host,
    #[serde(skip)]
    began: Ticks,
    pub(super) rows: Vec<Row>,
    pub(super) absent: Vec<Absent>,
}

impl Report {
    pub(super) fn new(quick: bool) -> Self {
        let line = |file: &str| std::fs::read_to_string(file).unwrap_or_default().trim_end().to_owned();
        let load = line("/proc/loadavg");
        let host = Host {
            kernel: line("/proc/sys/kernel/osrelease"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            stolen: 0.0,
        };
        Self { quick, host, began: Ticks::now(), rows: Vec::new(), absent: Vec::new() }
    }

    /// Everything is measured.
    pub(super) fn end(&mut self) {
        self.host.stolen = Ticks::now().stolen_since(self.began);
    }

    pub(super) fn missed(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| row.pass == Some(false)).map(|row| row.what.as_str()).collect()
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("| what | median | p90 | ratio | bar | |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            text.push_str(&row.markdown());
            text.push('\n');
        }
        let Host { kernel, cpus, load, stolen } = &self.host;
        let quick = if self.quick { ", quick: too few rounds to conclude from" } else { "" };
        // A String never refuses a write.
        writeln!(
            text,
            "\nKernel {kernel}, {cpus} CPUs, load {load} at the start, {stolen:.1} % of the time stolen{quick}."
        )
        .unwrap_or_default();
        for Absent { peer, why } in &self.absent {
            writeln!(text, "Not compared: {peer} ({why}).").unwrap_or_default();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_what_was_wanted() {
        let then = Ticks::of("cpu  100 0 50 9000 10 0 0 5 0 0\ncpu0 1 2 3\n");
        let now = Ticks::of("cpu  160 10 70 9900 99 5 5 30 0 0\n");
        assert!((now.stolen_since(then) - 20.0).abs() < 1e-9);
        assert!(Ticks::of("intr 1 2").stolen_since(Ticks::default()).abs() < 1e-9);
    }

    #[test]
    fn a_bar_is_held_to_the_ratio_where_there_is_one() {
        let row = Row::plain("x", 7.8, Unit::Micros).against(2.0);
        assert_eq!(row.clone().held_to(Bar::most("P1", 3.8)).pass, Some(false));
        assert_eq!(row.held_to(Bar::least("P6", 0.8)).pass, Some(true));
        let row = Row::plain("size", 48_848.0, Unit::Bytes).held_to(Bar::most("size", 1.5e6));
        assert_eq!(row.markdown(), "| size | 0.05 MB | – | – | size ≤ 1.50 MB | pass |");
    }

    #[test]
    fn a_miss_and_an_absent_peer_are_said() {
        let mut report = Report::new(true);
        report.rows.push(Row::plain("x", 2.0, Unit::Count).held_to(Bar::most("b", 1.0)));
        report.absent.push(Absent { peer: "nsjail", why: "not installed".to_owned() });
        assert_eq!(report.missed(), ["x"]);
        let text = report.markdown();
        assert!(text.contains("**miss**") && text.contains("nsjail (not installed)"), "{text}");
    }
}
