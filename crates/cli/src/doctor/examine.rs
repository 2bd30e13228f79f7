//! The examination: the default profile first; where it does not start, each layer by itself, so that the
//! one in the way is known and the others are still proven. Next: `show`.

use stockade_executor::{find_init, survey};
use stockade_policy::{Place, Sources};
use stockade_proto::{Layer, LimitKind, Outcome};

use super::attempts::{ABSTRACT_SOCKET, ATTEMPTS, READ_OUTSIDE, WRITE_OUTSIDE};
use super::facts::Facts;
use super::findings::{Attempt, Finding, Report, Verdict};
use super::inside::{self, Answer};
use super::trial::{Obstacle, Ran, Stop, Trial, Tried, Work};
use super::variant::{self, Variant};

/// Landlock knows abstract sockets from here on.
const SCOPES: u32 = 6;

pub(super) fn examine(trial: &Trial<'_>, facts: &Facts) -> Result<Report, Stop> {
    let Standing { missing, with } = walls(trial, facts)?;
    let without = trial.execute(&Variant::host(), Work::Attempts)?;
    let on: Vec<Layer> =
        Layer::ALL.into_iter().filter(|layer| !missing.iter().any(|(absent, _)| absent == layer)).collect();
    let mut findings = Vec::new();
    for layer in Layer::ALL {
        let finding = match missing.iter().find(|(absent, _)| *absent == layer) {
            Some((_, obstacle)) => Finding::missing(layer, explained(facts, layer, obstacle, &missing)),
            None => {
                let attempts = match layer {
                    Layer::Filesystem | Layer::Process | Layer::Network | Layer::Seccomp | Layer::Sockets => {
                        compared(layer, &without, &with)
                    }
                    Layer::Landlock => landlock_alone(trial, facts)?,
                    Layer::Limits => vec![memory(trial, &on)?, processes(trial, &on)?],
                };
                Finding::standing(layer, how(layer, &with), attempts)
            }
        };
        findings.push(finding);
    }
    let init = find_init().ok().map(|path| path.display().to_string());
    let mut report = Report::new(facts.kernel.clone(), facts.uid, init, findings);
    report.notes.extend(own_default());
    report.notes.extend(left_behind(&with));
    Ok(report)
}

struct Standing {
    missing: Vec<(Layer, Obstacle)>,
    /// The attempts under every layer that is not missing.
    with: Tried,
}

fn walls(trial: &Trial<'_>, facts: &Facts) -> Result<Standing, Stop> {
    let with = trial.execute(&Variant::default_profile(), Work::Attempts)?;
    let Err(obstacle) = with else { return Ok(Standing { missing: Vec::new(), with }) };
    let mut missing = Vec::new();
    // First the process layer: two others stand on it, and root's sandboxes never go without.
    let process = trial.execute(&Variant::only(&[Layer::Process]), Work::Nothing)?;
    for layer in Layer::ALL {
        let mut set = vec![layer];
        if layer == Layer::Sockets {
            set.push(Layer::Seccomp);
        }
        if facts.uid == 0 || process.is_ok() || matches!(layer, Layer::Filesystem | Layer::Network) {
            set.push(Layer::Process);
        }
        if let Err(obstacle) = trial.execute(&Variant::only(&set), Work::Nothing)? {
            missing.push((layer, obstacle));
        }
    }
    if missing.is_empty() {
        // Each stands, all together do not: none of them counts.
        let missing = Layer::ALL.map(|layer| (layer, obstacle.clone())).to_vec();
        return Ok(Standing { missing, with: Err(obstacle) });
    }
    let on: Vec<Layer> =
        Layer::ALL.into_iter().filter(|layer| !missing.iter().any(|(absent, _)| absent == layer)).collect();
    let with = trial.execute(&Variant::only(&on), Work::Attempts)?;
    Ok(Standing { missing, with })
}

/// Root's sandboxes never go without the process layer: what is in its way is in the way of all.
fn explained(
    facts: &Facts,
    layer: Layer,
    obstacle: &Obstacle,
    missing: &[(Layer, Obstacle)],
) -> (String, String) {
    let stands_on_process = match layer {
        Layer::Landlock | Layer::Seccomp | Layer::Sockets | Layer::Limits => facts.uid == 0,
        Layer::Filesystem | Layer::Network => true,
        Layer::Process => false,
    };
    match missing.iter().find(|(absent, _)| *absent == Layer::Process) {
        Some((_, process)) if stands_on_process => {
            let (why, remedy) = facts.explain(Layer::Process, process);
            (format!("it stands on the process layer: {why}"), remedy)
        }
        Some(_) | None => facts.explain(layer, obstacle),
    }
}

fn how(layer: Layer, with: &Tried) -> String {
    let Ok(ran) = with else { return String::new() };
    let row = ran.result.enforcement.iter().find(|row| row.layer == layer);
    row.map(|row| row.detail.clone()).unwrap_or_default()
}

fn verdict(tried: &Tried, name: &str) -> (Verdict, String) {
    match tried {
        Ok(ran) => ran.answers.iter().find(|answer| answer.name == name).map_or_else(
            || (Verdict::NotRun, "the probe did not answer".to_owned()),
            |Answer { refused, detail, .. }| {
                (if *refused { Verdict::Refused } else { Verdict::Works }, detail.clone())
            },
        ),
        Err(obstacle) => (Verdict::NotRun, obstacle.why.clone()),
    }
}

fn attempt(name: &str, without: &Tried, with: &Tried) -> Attempt {
    let (with, detail) = verdict(with, name);
    Attempt::new(name, verdict(without, name).0, with, detail)
}

fn compared(layer: Layer, without: &Tried, with: &Tried) -> Vec<Attempt> {
    let of_layer = ATTEMPTS.iter().filter(|attempt| attempt.layer == layer);
    of_layer.map(|row| attempt(row.name, without, with)).collect()
}

/// Under the full profile the new root would hide what Landlock refuses, so here it stands alone. Root's
/// sandboxes keep the process layer, on both sides of the comparison.
fn landlock_alone(trial: &Trial<'_>, facts: &Facts) -> Result<Vec<Attempt>, Stop> {
    let ground: &[Layer] = if facts.uid == 0 { &[Layer::Process] } else { &[] };
    let without = trial.execute(&Variant::only(ground), Work::Attempts)?;
    let with = trial.execute(&Variant::only(&[ground, &[Layer::Landlock]].concat()), Work::Attempts)?;
    let mut names = vec![READ_OUTSIDE, WRITE_OUTSIDE];
    if facts.landlock_abi >= SCOPES {
        names.push(ABSTRACT_SOCKET);
    }
    Ok(names.into_iter().map(|name| attempt(name, &without, &with)).collect())
}

fn memory(trial: &Trial<'_>, on: &[Layer]) -> Result<Attempt, Stop> {
    let without = trial.execute(&Variant::host(), Work::Memory)?;
    let with = trial.execute(&Variant::limited(on, variant::MEMORY), Work::Memory)?;
    Ok(limited(inside::MEMORY, &without, with, |ran| ran.result.outcome == Outcome::OomKilled))
}

fn processes(trial: &Trial<'_>, on: &[Layer]) -> Result<Attempt, Stop> {
    let without = trial.execute(&Variant::host(), Work::Processes)?;
    let with = trial.execute(&Variant::limited(on, variant::PROCESSES), Work::Processes)?;
    Ok(limited(inside::MANY_PROCESSES, &without, with, |ran| {
        ran.result.limits_hit.contains(&LimitKind::Processes)
    }))
}

/// A limit counts as held only if the kernel's own counters say so.
fn limited(name: &str, without: &Tried, with: Tried, counted: fn(&Ran) -> bool) -> Attempt {
    let (with, detail) = match with {
        Err(obstacle) => (Verdict::NotRun, obstacle.why),
        Ok(ran) if counted(&ran) => {
            let told = ran.answers.first().map(|answer| answer.detail.clone());
            (Verdict::Refused, told.unwrap_or_else(|| "out of memory, by the kernel's count".to_owned()))
        }
        Ok(ran) => {
            let told = ran.answers.first().map_or("", |answer| answer.detail.as_str());
            (Verdict::Works, format!("the kernel counted nothing: {told}"))
        }
    };
    Attempt::new(name, verdict(without, name).0, with, detail)
}

/// Doctor answers for the built-in profile; a person may have another one of that name.
fn own_default() -> Option<String> {
    let profiles = survey::Profiles::new(&survey::caller(), None);
    let own = [Place::User, Place::System]
        .into_iter()
        .find_map(|place| profiles.find(place, "default").transpose())?;
    Some(match own {
        Ok(text) => format!("`default` is replaced by {}; see: stockade policy explain default", text.file),
        Err(refusal) => format!("{refusal}; {}", refusal.remedy),
    })
}

fn left_behind(with: &Tried) -> Vec<String> {
    with.as_ref().map_or_else(|_| Vec::new(), |ran| ran.result.cleanup_faults.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_proto::{ExecutionResult, StreamTotals, Usage};

    fn ran(outcome: Outcome, limits_hit: Vec<LimitKind>, answers: Vec<Answer>) -> Tried {
        Ok(Ran {
            result: ExecutionResult {
                execution: String::new(),
                profile: String::new(),
                command: Vec::new(),
                exit_code: outcome.exit_code(),
                outcome,
                usage: Usage::default(),
                stdout: StreamTotals::default(),
                stderr: StreamTotals::default(),
                truncated: false,
                leaked_descendants: 0,
                limits_hit,
                enforcement: Vec::new(),
                blocked: Vec::new(),
                traffic: Vec::new(),
                unreached: Vec::new(),
                published: Vec::new(),
                cleanup_faults: Vec::new(),
            },
            answers,
        })
    }

    fn answer(name: &str, refused: bool) -> Answer {
        Answer { name: name.to_owned(), layer: Layer::Limits, refused, detail: "told".to_owned() }
    }

    #[test]
    fn a_limit_that_only_the_probe_claims_is_not_proof() {
        let counted: fn(&Ran) -> bool = |ran| ran.result.limits_hit.contains(&LimitKind::Processes);
        let open = ran(Outcome::Exited { code: 0 }, Vec::new(), vec![answer("p", false)]);
        let claimed = ran(Outcome::Exited { code: 0 }, Vec::new(), vec![answer("p", true)]);
        assert!(!limited("p", &open, claimed, counted).proven);
        let held = ran(Outcome::Exited { code: 0 }, vec![LimitKind::Processes], vec![answer("p", true)]);
        let attempt = limited("p", &open, held, counted);
        assert!(attempt.proven && attempt.detail == "told");
    }

    #[test]
    fn every_attempt_is_told_even_when_the_probe_did_not_run() {
        let obstacle: Tried =
            Err(Obstacle { why: "no".to_owned(), remedy: String::new(), code: None, stage: None });
        let attempts = compared(Layer::Network, &obstacle, &obstacle);
        assert_eq!(attempts.len(), 3);
        assert!(attempts.iter().all(|attempt| attempt.with == Verdict::NotRun && attempt.detail == "no"));
    }
}
