//! P1 and where its time goes: every arm once per round, in a new order each round, so that a busy moment
//! of the machine and the kernel's late clean-up of namespaces fall on all of them alike.

use super::Subject;
use super::arm::{Arm, DEFAULT, profile, sandboxed};
use super::table::{Bar, Row, Unit};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const ROUNDS: usize = 400;
const QUICK_ROUNDS: usize = 60;
/// Page cache, dentries and the CPU's clock are cold at first.
const WARM_UP: usize = 5;

/// PERFORMANCE.md, P1.
const P1: f64 = 3.8;

/// An arm and the arm of the same run that it is divided by.
#[derive(Debug)]
struct Entry {
    arm: Arm,
    base: Option<usize>,
    bar: Option<Bar>,
}

const RAW: usize = 0;
const RAW_SHELL: usize = 1;
const SHELL: [&str; 3] = ["/bin/sh", "-c", "echo hi"];

/// Walls of the same kinds, though thinner, and nothing else: no libc, cgroup, init, relay or look at the host.
fn floor(subject: &Subject) -> Arm {
    let map = |id: u32| OsString::from(format!("0 {id} 1"));
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let places = [subject.ground(), subject.workspace()].map(PathBuf::into_os_string);
    let words = places.into_iter().chain([map(uid), map(gid), "/bin/true".into()]);
    Arm::new("the barest sandbox: a program that makes such walls and nothing else", &subject.floor, words)
}

/// The same command under rules of a person's own, as many as there are in a long profile; and without the wall that they are for.
fn ruled(subject: &Subject) -> Result<[Arm; 2]> {
    let mut rules = "extends = \"default\"\n".to_owned();
    for nth in 0..10 {
        rules.push_str(&format!(
            "[[unix_sockets]]\nname = \"rule-{nth}\"\npaths = [\"/run/service-{nth}/*.sock\", \"@service-{nth}-*\"]\n\
             operations = [\"connect\"]\ndecision = \"deny\"\n"
        ));
    }
    let without = "extends = \"default\"\n[layers]\nsockets = \"off\"\n";
    let config = profile(subject, "bench-rules", &rules)?;
    profile(subject, "bench-no-rules", without)?;
    let arm = |what: &str, profile| {
        let name = format!("`stockade run -- /bin/true`, {what}");
        sandboxed(&name, subject, profile, &["--", "/bin/true"]).configured(config.clone())
    };
    Ok([arm("ten socket rules more", "bench-rules"), arm("without the socket wall", "bench-no-rules")])
}

fn entries(subject: &Subject, peers: &[Arm]) -> Result<Vec<Entry>> {
    let run = |name: &str, rest: &[&str]| sandboxed(name, subject, DEFAULT, rest);
    let shell: Vec<&str> = std::iter::once("--").chain(SHELL).collect();
    let mut entries = vec![
        // RAW and RAW_SHELL say where these two stand.
        Entry {
            arm: Arm::new("raw `posix_spawn` of `/bin/true`", "/bin/true", [""; 0]),
            base: None,
            bar: None,
        },
        Entry { arm: Arm::new("raw `sh -c 'echo hi'`", SHELL[0], &SHELL[1..]), base: None, bar: None },
        Entry {
            arm: run("`stockade run -- /bin/true`", &["--", "/bin/true"]),
            base: Some(RAW),
            bar: Some(Bar::most("P1", P1)),
        },
        Entry { arm: floor(subject), base: Some(RAW), bar: None },
        Entry { arm: run("`stockade run -- sh -c 'echo hi'`", &shell), base: Some(RAW_SHELL), bar: None },
        Entry {
            arm: Arm::new("`stockade --version` (start-up)", &subject.stockade, ["--version"]),
            base: Some(RAW),
            bar: None,
        },
        Entry {
            arm: run("`stockade run --explain` (start-up and plan)", &["--explain", "--", "/bin/true"]),
            base: Some(RAW),
            bar: None,
        },
    ];
    let [rules, none] = ruled(subject)?;
    entries.push(Entry { arm: rules, base: Some(RAW), bar: Some(Bar::most("P1", P1)) });
    entries.push(Entry { arm: none, base: Some(RAW), bar: None });
    entries.extend(peers.iter().map(|arm| Entry { arm: arm.clone(), base: Some(RAW), bar: None }));
    Ok(entries)
}

pub(super) fn measure(subject: &Subject, peers: &[Arm], quick: bool) -> Result<Vec<Row>> {
    let entries = entries(subject, peers)?;
    for entry in &entries {
        entry.arm.works().with_context(|| entry.arm.name.clone())?;
    }
    let rounds = if quick { QUICK_ROUNDS } else { ROUNDS };
    let mut times: Vec<Vec<Duration>> = vec![Vec::with_capacity(rounds); entries.len()];
    let mut order: Vec<usize> = (0..entries.len()).collect();
    let mut dice = Dice::new();
    for round in 0..WARM_UP + rounds {
        dice.shuffle(&mut order);
        for &at in &order {
            let took = entries[at].arm.time()?;
            if round >= WARM_UP {
                times[at].push(took);
            }
        }
    }
    for one in &mut times {
        one.sort_unstable();
    }
    let rows = entries.into_iter().enumerate().map(|(at, entry)| {
        let median = |at: usize| micros(at_percent(&times[at], 50));
        let row = Row::plain(entry.arm.name, median(at), Unit::Micros);
        let row = row.spread(micros(at_percent(&times[at], 90)));
        let row = match entry.base {
            Some(base) => row.against(median(base)),
            None => row,
        };
        match entry.bar {
            Some(bar) => row.held_to(bar),
            None => row,
        }
    });
    Ok(rows.collect())
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The value below which so many percent of the sorted times lie.
pub(super) fn at_percent(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// Xorshift: the order has to vary, not to be unpredictable, and the same run can be had again.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.0 % bound).unwrap_or(0)
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values() {
        let times: Vec<Duration> = (1..=10).map(Duration::from_micros).collect();
        assert_eq!(at_percent(&times, 50), Duration::from_micros(6));
        assert_eq!(at_percent(&times, 90), Duration::from_micros(10));
        assert_eq!(at_percent(&times[..1], 90), Duration::from_micros(1));
        assert_eq!(at_percent(&[], 50), Duration::ZERO);
    }

    #[test]
    fn a_shuffle_keeps_every_arm_and_varies() {
        let mut dice = Dice::new();
        let mut order: Vec<usize> = (0..8).collect();
        let mut first = std::collections::BTreeSet::new();
        for _ in 0..100 {
            dice.shuffle(&mut order);
            first.insert(order[0]);
        }
        order.sort_unstable();
        assert_eq!(order, (0..8).collect::<Vec<_>>());
        assert_eq!(first.len(), 8);
    }
}
